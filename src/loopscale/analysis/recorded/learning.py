"""When runs pass milestones, whether they have learnt, and whether their training is over.

This is the only place of the words for the state of runs. A run that never passes a milestone is censored, and no run
is dropped.

A run that stands on the plateau says nothing of the question, so a law or comparison with such runs has the verdict
"not learnt". A law on runs that are still falling describes nets after this many steps.
"""

import math
from collections.abc import Sequence
from typing import Literal

from loopscale.analysis.recorded.results import CellResult, Results, TrialResult
from loopscale.questions.axes.base import axis_of
from loopscale.stats.learning import Emergence, Learnt
from loopscale.stats.milestones import Milestone, is_milestone

NOT_LEARNT: Literal["not learnt"] = "not learnt"
"""The verdict on runs that stand on the plateau."""


def learnt(runs: Sequence[TrialResult]) -> Learnt:
    """How many of the runs have left the plateau, and how many are still falling."""
    return Learnt.count(run.learning for run in runs)


def on_plateau(runs: Sequence[TrialResult], of: str = "error") -> str:
    """The runs on the plateau, in words. Empty if all have left the plateau, or if their states are unknown.

    Also empty for milestones: there a run on the plateau is censored, and is judged with the others.
    """
    counted = Learnt(0, 0) if is_milestone(of) else learnt(runs)
    return "" if counted.all else counted.words


def steps_words(runs: Sequence[TrialResult], along: str = "") -> str:
    """The number of steps behind a result on falling runs, as `per 3,200 steps, still falling`. Otherwise empty.

    Trainings that `until.steps` has made longer name their steps too.

    Parameters
    ----------
    along
        The axis of the result. Along the steps themselves the words would say nothing.
    """
    counted = learnt(runs)
    longer = any(run.steps_factor > 1 for run in runs)
    if not (counted.falling or longer) or along == "training.steps" or axis_of(along).is_training:
        return ""
    steps = sorted({int(run.settings["training.steps"]) for run in runs if "training.steps" in run.settings})
    if not steps:
        return ""
    count = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    if not counted.falling:
        return f"per {count} steps"
    falling = (
        "still falling"
        if counted.falling == counted.of
        else f"{counted.falling} of {counted.of} runs still falling"
    )
    if all(run.settings.get("training.schedule", "constant") == "constant" for run in runs):
        return f"per {count} steps, {falling}"
    return f"per {count} steps of this schedule, {falling}; the schedule says nothing of more steps"


def learnt_words(cell: CellResult) -> str:
    """The state of a cell's runs in a table: `2 of 3, still falling`. Empty if their states are unknown."""
    counted = cell.learnt
    if not counted.of:
        return ""
    ending = f", {counted.falling} still falling" if counted.falling else ""
    ending = ", still falling" if counted.falling == counted.emerged > 0 else ending
    over = ", over" if counted.over == counted.emerged > 0 else ""
    return f"{counted.emerged} of {counted.of}{ending}{over}"


def study_sentence(counted: Learnt) -> str:
    """The learning of all runs of a study, as one sentence. Empty if their states are unknown."""
    if not counted.of:
        return ""
    if counted.emerged == 0:
        return f"{_capital(counted.words)}: the study answers no question yet."
    plateau = f"All {counted.of} runs have left the plateau" if counted.all else _capital(counted.words)
    return f"{plateau}. {counted.falling} runs are still falling, and the training of {counted.over} runs is over."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


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
