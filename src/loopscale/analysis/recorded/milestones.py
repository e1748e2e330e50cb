"""When runs pass milestones, in steps, FLOPs or seconds. A run that never passes is censored, and no run is dropped."""

import math
from collections.abc import Sequence

from loopscale.analysis.recorded.results import Results, TrialResult
from loopscale.stats.learning import Emergence
from loopscale.stats.milestones import Milestone


def emergences(runs: Sequence[TrialResult]) -> list[Emergence | None]:
    """The interval of the emergence of every run; None if the task has no room, or if the floor is unknown."""
    return [run.learning.emergence if run.learning else None for run in runs]


def passages(results: Results, runs: Sequence[TrialResult], milestone: Milestone) -> list[Emergence | None]:
    """The two reports between which every run passed, in the unit of the milestone.

    FLOPs and seconds are those of `prices.study_prices`, so the clock of one busy machine decides nothing.

    Parameters
    ----------
    runs
        Runs that answer for the cells of the study.
    """
    passed = emergences(runs) if milestone.regret is None else [run.passed(milestone) for run in runs]
    if milestone.unit == "steps":
        return passed
    # Imported here, because the module imports torch, which the step of a milestone does not need.
    from loopscale.analysis.recorded.prices import study_prices

    priced = study_prices(results)

    def cost(run: TrialResult, step: float) -> float:
        return float(priced[run.trial].after(step, milestone.unit)) if math.isfinite(step) else step

    return [
        each and Emergence(cost(run, each.after), cost(run, each.by))
        for run, each in zip(runs, passed, strict=True)
    ]
