"""Errors at a given cost, read from the history of each training.

A history shows a net in the middle of its schedule. A comparison at equal cost is complete only if each net was trained
for this cost. Otherwise the comparison is indicative.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from loopscale.analysis.recorded.prices import Price, price_of
from loopscale.analysis.recorded.results import Array, TrialResult
from loopscale.questions.measures import CURVE_MEASURES
from loopscale.stats.milestones import Unit

Measure = Literal["error", "error_last", "regret", "regret_last"]
ROUNDING = 1e-9
"""A report at the budget itself is within the budget, in spite of rounding."""


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
    of
        `regret` is NaN if no floor of the task is known.
    price
        The trial's entry of `study_prices`. By default the pace is the trial's own clock.

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
    trial: TrialResult, price: Price, basis: Unit, of: Measure = "error"
) -> tuple[Array, Array]:
    """The cost so far and the measure, at every report of a trial."""
    measure = CURVE_MEASURES[of]
    steps, errors = trial.history(measure.of_error)
    if measure.grid == "regret":
        floor = trial.validation_floor
        errors = errors - (np.nan if floor is None else measure.at(floor.error))
    return price.after(steps, basis), errors


def common_budget(trials: Iterable[TrialResult], priced: Mapping[str, Price], basis: Unit) -> float:
    """The largest cost that every trial has reached; NaN if a trial has no history."""
    reached = [priced[trial.trial].after(trial.history()[0][-1:], basis) for trial in trials]
    return min((float(cost[0]) if cost.size else np.nan for cost in reached), default=np.nan)
