"""The price of a training by step: its FLOPs and its seconds.

FLOPs are counted from the settings of a trial by today's counter. Records hold counts of several ages, which differ by
up to three quarters. Seconds are those of the speed that the first run of the study has recorded. A study
without a recorded speed has the pace of each cell: its training time over its FLOPs, the median over its trials. So the
clock of one busy machine decides no comparison.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from loopscale.analysis.recorded.results import Array, CellResult, Results, TrialResult
from loopscale.core.plugins import MissingPlugin
from loopscale.notation.settings import put
from loopscale.pricing.training_budget import Prices
from loopscale.stats.milestones import Unit
from loopscale.training.cost import StepCosts, step_flops
from loopscale.training.trial import Trial

PACED_TRIALS = 20
"""The largest number of trials of a cell in the median of its pace."""
ONE_STEP = StepCosts((0,), (1.0,))


@dataclass(frozen=True)
class Price:
    """The cost of a training by step."""

    flops: StepCosts
    """The FLOPs of the steps; NaN if unknown."""
    seconds: StepCosts
    """The seconds of the steps; NaN if unknown."""
    counted: Literal["today", "record"] = "today"
    """today: FLOPs are counted from the settings. record: this version does not know the settings, so FLOPs are the
    recorded count."""

    def after(self, steps: Any, basis: Unit) -> Array:
        """The cost of the first `steps` steps."""
        return (ONE_STEP if basis == "steps" else self.flops if basis == "flops" else self.seconds).after(
            steps
        )


def study_prices(results: Results) -> dict[str, Price]:
    """The prices of the runs that answer for the cells of a study, by trial.

    All prices are counted in the same way: if one run cannot be counted today, all keep the count of their records.
    """
    runs = [run for cell in results.cells for run in cell.runs]
    priced = {run.trial: price_of(run) for run in runs}
    if any(price.counted == "record" for price in priced.values()):
        priced = {run.trial: _recorded_price(run) for run in runs}
    planned = _planned_seconds(results, runs)
    for cell in results.cells:
        pace = _pace(cell, priced) if cell.runs and not planned else np.nan
        for run in cell.runs:
            price = priced[run.trial]
            seconds = planned.get(run.trial) or price.flops.times(pace)
            priced[run.trial] = replace(price, seconds=seconds)
    return priced


def price_of(trial: TrialResult) -> Price:
    """The price of one trial, at the pace of its own clock."""
    settings = as_trial(trial)
    if settings is None:
        return _recorded_price(trial)
    return _at_own_pace(trial, step_flops(settings), "today")


def as_trial(trial: TrialResult) -> Trial | None:
    """The trial of a record; None if this version does not know all settings."""
    tree = dict[str, Any]()
    for path, value in trial.settings.items():
        put(tree, path, value)
    try:
        return Trial.model_validate(tree | {"seed": trial.seed or 0})
    except (ValidationError, ValueError, OSError, MissingPlugin):
        return None


def _planned_seconds(results: Results, runs: Sequence[TrialResult]) -> dict[str, StepCosts]:
    """The seconds at the speed that the study has recorded; empty if a run has no such price."""
    try:
        planned = Prices.of_document(results.study.get("prices") or {})
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    prices = {run.trial: (trial := as_trial(run)) and planned.of(trial, "seconds") for run in runs}
    return {name: price for name, price in prices.items() if price} if all(prices.values()) else {}


def _pace(cell: CellResult, priced: Mapping[str, Price]) -> float:
    """The median time of a FLOP over the trials of a cell; NaN if no time is recorded."""
    trials = [*cell.runs, *(trial for trial in cell.tuning if trial not in cell.runs)]
    prices = (priced.get(trial.trial) or price_of(trial) for trial in trials[:PACED_TRIALS])
    paces = np.array([price.seconds.costs[0] / price.flops.costs[0] for price in prices])
    return float(np.median(paces[np.isfinite(paces)])) if np.isfinite(paces).any() else float("nan")


def _recorded_price(trial: TrialResult) -> Price:
    steps = trial.settings.get("training.steps")
    return _at_own_pace(trial, StepCosts((0,), (trial["flops"] / steps if steps else np.nan,)), "record")


def _at_own_pace(trial: TrialResult, flops: StepCosts, counted: Literal["today", "record"]) -> Price:
    """`seconds` of a record are those of all steps that were trained."""
    spent = float(flops.after(trial.step or 0))
    return Price(flops, flops.times(trial["seconds"] / spent if spent > 0 else np.nan), counted)
