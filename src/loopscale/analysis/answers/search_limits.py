"""Limits of a search: cells that may have a better point than the search found.

There are two signs of a better point. The best value lies at the end of a tuned range, so a better value may lie beyond
the end (Godbole, Dahl, Gilmer, Shallue, Nado: Deep Learning Tuning Playbook, 2023, search space boundaries). Or a trial
was pruned on a plateau, where all points look alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from loopscale.analysis.answers.best import Best
from loopscale.analysis.results import CellResult, Results, TrialResult
from loopscale.stats.intervals import PooledVariance
from loopscale.studies.space import Axis, Space

NEAR = 0.05
"""The share of a range, measured on the scale of the range, that counts as its end."""


@dataclass(frozen=True)
class AtEnd:
    """Cells whose best value lies at one end of a range.

    Attributes
    ----------
    side
        `lowest` or `highest`.
    labels
        The labels of the cells.
    """

    path: str
    end: float
    side: str
    labels: tuple[str, ...]

    def __str__(self) -> str:
        cells = ", ".join(label or "the only cell" for label in self.labels)
        return f"the best {self.path} of {cells} is at the {self.side} end of its range, {self.end:g}"


@dataclass(frozen=True)
class CloseCall:
    """A pruned trial that was hardly behind the best trial of its cell.

    Attributes
    ----------
    step
        The training step at which the trial was pruned.
    ratio
        The validation error of the trial at that step, divided by the error of the best trial at the same step.
    """

    trial: str
    label: str
    step: int
    ratio: float


def tuned_ranges(results: Results) -> dict[str, Axis]:
    """The tuned ranges by dotted path; empty if another version recorded them in another form."""
    try:
        return TypeAdapter(Space).validate_python(dict(results.study.get("nuisance") or {}))
    except ValidationError:
        return {}


def cells_at_ends(results: Results, answers: Sequence[Best]) -> list[AtEnd]:
    """The ends of ranges at which cells are best. An end of 0 does not count: nothing lies beyond it."""
    return [
        AtEnd(path, end, side, labels)
        for path, axis in tuned_ranges(results).items()
        for side, end, low, high in (
            ("lowest", axis.ends[0], 0.0, NEAR),
            ("highest", axis.ends[-1], 1 - NEAR, 1.0),
        )
        if end
        and (labels := tuple(best.label for best in answers if low <= _place(axis, best, path) <= high))
    ]


def run_factor(noise: PooledVariance) -> float:
    """The typical factor between two runs of one point: one standard deviation of their log ratio."""
    return math.exp(math.sqrt(2 * noise.variance))


def close_calls(results: Results, noise: PooledVariance | None) -> list[CloseCall]:
    """Pruned trials that were less far behind the best trial than two runs of one point differ, sorted by cell.

    Parameters
    ----------
    noise
        The noise of replicates at the end of training, pooled over cells. Without it the list is empty.
    """
    if noise is None:
        return []
    calls = [
        CloseCall(trial.trial, cell.label, trial.step, ratio)
        for cell in results.cells
        for trial in cell.tuning
        if trial.outcome == "pruned" and trial.step is not None
        if (ratio := _behind(cell, trial, trial.step)) < run_factor(noise)
    ]
    return sorted(calls, key=lambda call: call.label)


def _behind(cell: CellResult, pruned: TrialResult, step: int) -> float:
    """The error of a pruned trial over that of the best trial; infinite if one was not measured at that step."""
    finished = [trial for trial in cell.tuning if trial.finished]
    if not finished:
        return math.inf
    best = min(finished, key=lambda trial: trial["error"])
    errors = [dict(zip(*trial.history(), strict=True)).get(step, math.nan) for trial in (pruned, best)]
    return errors[0] / errors[1] if errors[0] > 0 and errors[1] > 0 else math.inf


def _place(axis: Axis, best: Best, path: str) -> float:
    """The place of a cell's value in a range, from 0 to 1; NaN if the cell has no such number."""
    value = best.settings.get(path)
    return axis.place(value) if isinstance(value, int | float) else math.nan
