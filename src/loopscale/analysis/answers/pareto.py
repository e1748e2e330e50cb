"""The Pareto front of a task: the least regret that any cell reaches for every cost of training.

The points are the reports of all cells, each averaged over the runs of its cell. Before the end of its training a net
is in the middle of its schedule, so points before the end are indicative.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from loopscale.analysis.recorded.equal_cost import Measure, history_by_cost
from loopscale.analysis.recorded.prices import study_prices
from loopscale.analysis.recorded.results import CellResult, Results
from loopscale.analysis.table import Column

CostBasis = Literal["flops", "seconds"]
COST_UNITS: dict[CostBasis, str] = {"flops": "FLOPs", "seconds": "s"}


@dataclass(frozen=True)
class CostPoint:
    """A report of a cell: the cost so far, and the mean over runs."""

    cell: str
    label: str
    index: int
    step: int
    cost: float
    value: float
    complete: bool
    """True at the end of the training."""


@dataclass(frozen=True)
class Front:
    """The points of one task, by cost."""

    task: str
    basis: CostBasis
    measure: str
    """The name of the measure in texts, as `MeanFloor.measure` gives it."""
    points: tuple[CostPoint, ...]
    """All points of all cells."""
    best: tuple[CostPoint, ...]
    """The points that no other point beats in both cost and measure, the cheapest first."""


@dataclass(frozen=True)
class Stretch:
    """Neighbouring points of the front that belong to one cell."""

    task: str
    basis: CostBasis
    label: str
    measure: str
    from_cost: float
    to_cost: float
    first: float
    last: float
    ends_complete: bool

    @property
    def schedule(self) -> str:
        return "complete at its end" if self.ends_complete else "not complete, so indicative"


PARETO_COLUMNS: list[Column[Stretch]] = [
    Column.attribute("label", "cell"),
    Column.attribute("task"),
    Column(("cost",), "cost", lambda stretch: COST_UNITS[stretch.basis]),
    Column.attribute("from_cost", "from"),
    Column.attribute("to_cost", "to"),
    Column.attribute("measure"),
    Column.attribute("first", "at its beginning"),
    Column.attribute("last", "at its end"),
    Column.attribute("schedule"),
]


def compares_models(results: Results) -> bool:
    """True if cells of more than one kind of model have an answer."""
    return len({cell.runs[0].settings.get("model.kind") for cell in results.answered}) > 1


def fronts(results: Results, basis: CostBasis) -> list[Front]:
    """The front of every task on which several cells have a history with known costs."""
    priced = study_prices(results)
    made = []
    for task, cells in results.tasks.items():
        floor = cells[0].runs[0].validation_floor
        of: Measure = "error" if floor is None or floor.how == "none" else "regret"
        points = [point for cell in cells for point in _points(cell, basis, of, priced)]
        if len({point.cell for point in points}) > 1:
            measure = floor.measure if floor else "error"
            made.append(Front(task, basis, measure, tuple(points), _best(points)))
    return made


def stretches(front: Front) -> list[Stretch]:
    """The front as a table: which cell is best between which costs."""
    groups = list[list[CostPoint]]()
    for point in front.best:
        if groups and groups[-1][-1].cell == point.cell:
            groups[-1].append(point)
        else:
            groups.append([point])
    return [
        Stretch(
            front.task,
            front.basis,
            group[0].label,
            front.measure,
            group[0].cost,
            group[-1].cost,
            group[0].value,
            group[-1].value,
            group[-1].complete,
        )
        for group in groups
    ]


def _points(cell: CellResult, basis: CostBasis, of: Measure, priced: dict) -> list[CostPoint]:
    """The reports that all runs of the cell share."""
    courses = []
    for run in cell.runs:
        steps, _ = run.history()
        costs, values = history_by_cost(run, priced[run.trial], basis, of)
        courses.append({int(step): point for step, *point in zip(steps, costs, values, strict=True)})
    shared = sorted(set(courses[0]).intersection(*courses)) if courses else []
    points = []
    for step in shared:
        cost, value = np.mean([course[step] for course in courses], axis=0)
        if np.isfinite(cost) and np.isfinite(value) and cost > 0:
            complete = step == cell.runs[0].settings.get("training.steps")
            place = (cell.key, cell.label, cell.index, step)
            points.append(CostPoint(*place, float(cost), float(value), complete))
    return points


def _best(points: Sequence[CostPoint]) -> tuple[CostPoint, ...]:
    kept, lowest = [], np.inf
    for point in sorted(points, key=lambda point: (point.cost, point.value)):
        if point.value < lowest:
            lowest = point.value
            kept.append(point)
    return tuple(kept)
