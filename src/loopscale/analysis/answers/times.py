"""The time to learn: steps, FLOPs and seconds until the validation regret of a cell is below a level."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from loopscale.analysis.recorded.learning import passages
from loopscale.analysis.recorded.results import CellResult, Results
from loopscale.analysis.table import Column
from loopscale.stats.milestones import Milestone, Unit


@dataclass(frozen=True)
class TimeToLevel:
    """When the runs of a cell reach a regret."""

    label: str
    """The cell."""
    regret: float
    """The level."""
    reached: int
    """The number of runs that reached the level."""
    of: int
    """The number of runs with a known floor."""
    steps: float | None
    flops: float | None
    seconds: float | None
    """Medians over the runs; None if at least half of the runs never reached the level."""
    spread: float | None
    """The standard deviation of log regret between seeds, after all steps; None for one run, or a regret of 0."""

    @property
    def runs(self) -> str:
        return f"{self.reached} of {self.of}"


TIME_COLUMNS: list[Column[TimeToLevel]] = [
    Column.attribute("label", "cell"),
    Column.attribute("regret"),
    Column.attribute("runs", "runs that reach it"),
    Column.attribute("steps"),
    Column.attribute("flops", "FLOPs"),
    Column.attribute("seconds", "seconds", "s"),
    Column.attribute("spread", "sd of log regret between seeds"),
]


def times_to_levels(results: Results, levels: Sequence[float]) -> list[TimeToLevel]:
    """One row for each cell and level, in the order of the study. Cells without a known floor have no row."""
    return [row for cell in results.answered for row in _of_cell(results, cell, levels)]


def _of_cell(results: Results, cell: CellResult, levels: Sequence[float]) -> Iterator[TimeToLevel]:
    regrets = np.array([run["regret"] for run in cell.runs])
    spread = float(np.log(regrets).std(ddof=1)) if len(regrets) > 1 and (regrets > 0).all() else None
    for level in levels:
        by = {
            unit: [each.by for each in passages(results, cell.runs, Milestone(level, unit)) if each]
            for unit in get_args(Unit)
        }
        if known := by["steps"]:
            reached = sum(map(math.isfinite, known))
            steps, flops, seconds = (_median(by[unit]) for unit in get_args(Unit))
            yield TimeToLevel(cell.label, level, reached, len(known), steps, flops, seconds, spread)


def _median(times: Sequence[float]) -> float | None:
    """The median; None if it is infinite or unknown."""
    middle = float(np.median(times))
    return middle if math.isfinite(middle) else None
