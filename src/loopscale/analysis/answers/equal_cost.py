"""Errors at a given cost, read from the history of each training.

FLOPs are counted from the settings of a trial by today's counter, because records hold counts of several ages, which
differ by up to three quarters. Seconds are those FLOPs at the pace of the cell: its recorded training time over its
FLOPs, the median over the cell's trials. So the time of one busy machine does not decide a comparison.

A history shows a net in the middle of its schedule. A comparison at equal cost is complete only if each net was trained
for this cost. Otherwise the comparison is indicative.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from loopscale import regret
from loopscale.analysis.results import Array, Results, TrialResult
from loopscale.evaluate import VALIDATION_PROMPTS
from loopscale.studies.settings import put
from loopscale.tasks.base import Task
from loopscale.training.cost import StepFlops, step_flops
from loopscale.training.trial import Trial

Basis = Literal["steps", "flops", "seconds"]
Measure = Literal["error", "error_last", "regret", "regret_last"]
ROUNDING = 1e-9
"""A report at the budget itself is within the budget, in spite of rounding."""


@dataclass(frozen=True)
class Price:
    """The cost of a training by step.

    Attributes
    ----------
    step_flops
        FLOPs of the steps, in the count of `counted`.
    pace
        Seconds of one FLOP; NaN if no time is recorded.
    counted
        today: counted from the settings. record: the settings are unknown to this version, so the record's own count.
    """

    step_flops: StepFlops
    pace: float = float("nan")
    counted: Literal["today", "record"] = "today"

    def after(self, steps: Any, basis: Basis) -> Array:
        """The cost of the first `steps` steps."""
        if basis == "steps":
            return np.asarray(steps, dtype=np.float64)
        return np.asarray(self.step_flops.after(steps) * (self.pace if basis == "seconds" else 1.0))


def error_at_cost(
    trial: TrialResult,
    flops: float | None = None,
    seconds: float | None = None,
    of: Measure = "error",
    price: Price | None = None,
) -> float:
    """The validation error at the last report within a budget; NaN if no report lies within the budget.

    Parameters
    ----------
    flops, seconds
        The budget. Give one of the two.
    price
        The trial's entry of `prices`, whose pace is that of the cell. By default the pace is the trial's own.

    Raises
    ------
    ValueError
        Unless exactly one budget is given.
    """
    if (flops is None) == (seconds is None):
        raise ValueError("error_at_cost needs one budget; give flops or seconds")
    basis, budget = ("flops", flops) if flops is not None else ("seconds", seconds)
    assert budget is not None
    spent, values = history_by_cost(trial, price or price_of(trial), basis, of)
    within = values[spent <= budget * (1 + ROUNDING)]
    return float(within[-1]) if within.size else float("nan")


def history_by_cost(
    trial: TrialResult, price: Price, basis: Basis, of: Measure = "error"
) -> tuple[Array, Array]:
    """The cost so far and the measure, at every report of a trial."""
    steps, errors = trial.history(of.replace("regret", "error"))
    floor = _floor(_task(trial), last=of.endswith("last")) if of.startswith("regret") else 0.0
    return price.after(steps, basis), errors - floor


def prices(trials: Sequence[TrialResult]) -> dict[str, Price]:
    """The prices of trials that are to be compared, by trial.

    All prices are counted in the same way: if one trial cannot be counted today, all keep the count of their records.
    The pace is the median over the trials of a cell.
    """
    priced = {trial.trial: price_of(trial) for trial in trials}
    if any(price.counted == "record" for price in priced.values()):
        priced = {trial.trial: _recorded_price(trial) for trial in trials}
    paces = dict[str, list[float]]()
    for trial in trials:
        paces.setdefault(trial.cell, []).append(priced[trial.trial].pace)
    medians = {cell: _median(values) for cell, values in paces.items()}
    return {trial.trial: replace(priced[trial.trial], pace=medians[trial.cell]) for trial in trials}


def study_prices(results: Results) -> dict[str, Price]:
    """The prices of all trained trials of a study, by trial."""
    return prices(results.trained)


def common_budget(trials: Iterable[TrialResult], priced: Mapping[str, Price], basis: Basis) -> float:
    """The largest cost that every trial has reached; NaN if a trial has no history."""
    reached = [priced[trial.trial].after(trial.history()[0][-1:], basis) for trial in trials]
    return min((float(cost[0]) if cost.size else np.nan for cost in reached), default=np.nan)


def price_of(trial: TrialResult) -> Price:
    """The price of one trial, at its own pace."""
    settings = as_trial(trial)
    if settings is None:
        return _recorded_price(trial)
    return _at_own_pace(trial, Price(step_flops(settings)))


def as_trial(trial: TrialResult) -> Trial | None:
    """The trial of a record; None if this version does not know all settings."""
    tree = _tree(trial)
    try:
        return Trial.model_validate(tree | {"seed": trial.seed or 0})
    except (ValidationError, ValueError, OSError):
        return None


def _recorded_price(trial: TrialResult) -> Price:
    steps = trial.settings.get("training.steps")
    step = trial["flops"] / steps if steps else float("nan")
    return _at_own_pace(trial, Price(StepFlops((0,), (step,)), counted="record"))


def _at_own_pace(trial: TrialResult, price: Price) -> Price:
    """`seconds` of a record are those of all steps that were trained."""
    spent = float(price.after(trial.step or 0, "flops"))
    return replace(price, pace=trial["seconds"] / spent if spent > 0 else float("nan"))


def _tree(trial: TrialResult) -> dict[str, Any]:
    tree = dict[str, Any]()
    for path, value in trial.settings.items():
        put(tree, path, value)
    return tree


def _task(trial: TrialResult) -> str:
    return Task.model_validate(_tree(trial)["task"]).model_dump_json()


@cache
def _floor(task: str, last: bool) -> float:
    """The floor on the validation prompts, over all queries or at the last query; NaN if no floor is known."""
    errors = regret.floor(Task.model_validate_json(task), "validate", VALIDATION_PROMPTS).error
    return float(errors[-1] if last else errors.mean())


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.median(known)) if known else float("nan")
