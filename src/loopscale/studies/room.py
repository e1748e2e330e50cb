"""Room: how far the settings of a study can move the error, computed before anything is trained.

A task leaves room between its floor, the least possible error, and its ignorance, the error of the best fixed guess.
The best known algorithm after k steps shows what k layers can do. If this error is the same at both ends of an axis,
then the axis cannot move the answer, unless nets fall short of the algorithm. The error of a net also depends on its
width, its heads and its training, which no algorithm has. The room says nothing about such axes.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from loopscale.core.prompt import Batch
from loopscale.evaluate import prompt_set
from loopscale.models.architecture import LoopedArchitecture
from loopscale.regret import How, floor
from loopscale.solvers.base import Solver
from loopscale.stats.emergence import LEAST_ROOM
from loopscale.stats.power import percent
from loopscale.studies.cells import Cell, labels
from loopscale.studies.spec import Study
from loopscale.studies.trees import leaves
from loopscale.tasks.base import Task
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.training.trial import Trial

PROMPTS, LEAST_PROMPTS = 512, 32
"""Prompts of a sample, for a study of one small task."""
ALL_PROMPTS = 2048
"""Prompts of all samples of a study."""
SLOWER = 4
POINTS_IN_A_SAMPLE = 2**22
"""Prompts x points² x steps of a sample are at most this."""
LEAST_EFFECT = 0.1
"""An axis with a smaller effect cannot move the answer."""


@dataclass(frozen=True)
class QueryErrors:
    """An error over the variance of the target: the mean over queries, and at the last query."""

    mean: float
    last: float


@dataclass(frozen=True)
class Room:
    """The errors between which a net's error lies, on the same prompts.

    Attributes
    ----------
    floor
        The least possible error; NaN if unknown.
    how, floor_name
        How the floor is known, and the solver that has it (see `loopscale.regret.Floor`).
    ignorance
        The error of the best fixed guess.
    after
        The error of the best known algorithm by its number of steps; empty if no algorithm goes step by step.
    algorithm
        The kind of the algorithm that is best after the most steps.
    enough
        The steps after which the algorithms gain less than 1 % of their error; 0 without algorithms.
    rank
        The effective rank of the features Φ; None for a task without Φ.
    """

    floor: QueryErrors
    how: How
    floor_name: str
    ignorance: QueryErrors
    after: Mapping[int, QueryErrors]
    algorithm: str
    enough: int
    rank: float | None
    prompts: int

    @property
    def reducible(self) -> float:
        """The part of the ignorance that can be learnt; NaN if the floor is unknown."""
        return 1 - self.floor.mean / self.ignorance.mean

    def best(self, steps: int) -> QueryErrors:
        """The error of the best known algorithm after some steps; the floor if no algorithm goes step by step."""
        return self.after.get(steps, self.floor)


@dataclass(frozen=True)
class TaskRoom:
    """The room of the cells that share a task.

    Attributes
    ----------
    label
        The settings in which the task differs from the other tasks of the study.
    cells
        The keys of the cells.
    steps
        The numbers of steps of the cells' nets, ascending.
    """

    label: str
    cells: tuple[str, ...]
    steps: tuple[int, ...]
    room: Room


@dataclass(frozen=True)
class AxisRoom:
    """How far an axis moves the error of the best known algorithm.

    Attributes
    ----------
    axis, values
        The path of the axis, and its values in words.
    effect
        The largest relative change of the mean error between cells that differ along this axis only. None if no
        algorithm depends on the axis.
    effect_last
        The same for the last query, in parts of its ignorance.
    depth
        True if the axis changes the number of steps only, and not the task.
    """

    axis: str
    values: str
    effect: float | None
    effect_last: float | None
    depth: bool

    def too_small(self, least: float = LEAST_EFFECT) -> bool:
        """True if the axis cannot move the answer by this part."""
        return self.effect is not None and self.effect < least


@dataclass(frozen=True)
class StudyRoom:
    """The rooms of a study's tasks, and the effects of its axes."""

    tasks: tuple[TaskRoom, ...]
    axes: tuple[AxisRoom, ...]


def study_room(study: Study) -> StudyRoom:
    """The room of every task of a study, and how far each axis can move the error."""
    posed = study.tasks()
    steps = {key: layers_of(trial) for key, trial in study.layout.trials.items()}
    groups = defaultdict[str, list[Cell]](list)
    for cell in study.cells():
        groups[posed[cell.key].model_dump_json()].append(cell)
    tasks = [posed[cells[0].key] for cells in groups.values()]
    share = ALL_PROMPTS // len(tasks)
    settings = [dict(leaves(task.model_dump(mode="json"))) for task in tasks]
    rooms = [
        TaskRoom(
            label,
            tuple(cell.key for cell in cells),
            tuple(sorted({steps[cell.key] for cell in cells})),
            room(task, {steps[cell.key] for cell in cells}, share),
        )
        for label, task, cells in zip(
            labels(
                [{f"task.{name}": value for name, value in each.items()} for each in settings], "all cells"
            ),
            tasks,
            groups.values(),
            strict=True,
        )
    ]
    of_cell = {key: (n, each.room) for n, each in enumerate(rooms) for key in each.cells}
    axes = [
        _axis_room(study, axis, of_cell, steps)
        for axis, values in study.scientific.items()
        if len(values) > 1
    ]
    return StudyRoom(tuple(rooms), tuple(axes))


def room_remarks(study: Study, rooms: StudyRoom, least: float = LEAST_EFFECT) -> Iterator[str]:
    """Yield one sentence for each axis that cannot move the answer, and one for tasks without room.

    Parameters
    ----------
    least
        The least effect of an axis, as a part of the error.
    """
    for axis in rooms.axes:
        name = f"{axis.axis} ({axis.values})"
        if axis.too_small(least):
            why = f"it changes the error of the best known algorithm by {percent(axis.effect or 0.0)}, less than "
            why += percent(least)
            if axis.depth:
                why += f"; {_enough(rooms)}"
            yield f"{name} cannot move the answer: {why}{_more_levels(study) if axis.depth else ''}"
        elif axis.effect_last is not None and axis.effect_last < least:
            laws = [law.of for law in study.laws if law.along == axis.axis and law.of.endswith("_last")]
            for of in laws:
                yield (
                    f"{name} cannot move {of}: at the last query, the error of the best known algorithm changes by "
                    f"{percent(axis.effect_last)} of the ignorance, less than {percent(least)}"
                )
    if tight := [each for each in rooms.tasks if each.room.reducible < LEAST_ROOM]:
        named = f" ({tight[0].label})" if len(rooms.tasks) > 1 else ""
        many = (
            f"{len(tight)} of {len(rooms.tasks)} tasks leave" if len(rooms.tasks) > 1 else "the task leaves"
        )
        yield f"{many} no room to learn{named}: a fixed guess is within {percent(LEAST_ROOM)} of the least error"


def _enough(rooms: StudyRoom) -> str:
    enough = max(each.room.enough for each in rooms.tasks)
    names = dict.fromkeys(each.room.algorithm for each in rooms.tasks)
    verb = "needs" if len(names) == 1 else "need"
    return f"{' and '.join(names)} {verb} {enough} step{'s' * (enough > 1)}"


def _more_levels(study: Study) -> str:
    """The remedy for inputs whose spectrum has two levels."""
    two = [
        task
        for task in study.tasks().values()
        if isinstance(task, LinearRegression) and task.condition > 1 and task.spectrum_levels == 2
    ]
    return "; a spectrum with more levels (task.spectrum_levels, task.dim) needs more steps" if two else ""


def layers_of(trial: Trial) -> int:
    """The layers that a prompt passes one after the other in a net's loop. An algorithm may need a layer for a step."""
    model = trial.model
    return trial.steps_per_prompt * (model.layers_within if isinstance(model, LoopedArchitecture) else 1)


@torch.no_grad()
def room(task: Task, steps: Collection[int], prompts: int = PROMPTS) -> Room:
    """The room of a task on a sample of its validation prompts.

    The best known algorithm is chosen at each query and after each number of steps. Its error never rises with the
    steps, because a longer net may leave steps out.

    Parameters
    ----------
    steps
        The numbers of steps to report. 1 is added.
    prompts
        The size of the sample. It is smaller for long prompts and many steps.
    """
    most = max(steps)
    affordable = POINTS_IN_A_SAMPLE // (len(task.seen) ** 2 * most)
    if task.floor_rule and task.floor_rule.how in ("bound", "reference"):
        prompts //= SLOWER  # these floors come from iterations with restarts
    prompts = max(LEAST_PROMPTS, min(PROMPTS, prompts, affordable))
    known = floor(task, "validate", prompts)
    batches = list(prompt_set("validate", task, prompts))
    algorithms = [
        solver for choice in Solver.choices().values() for solver in choice.stepwise(batches[0].problem)
    ]
    curves = [_curve(solver, task, batches, most) for solver in algorithms]
    after, algorithm, enough = dict[int, QueryErrors](), "", 0
    least = np.minimum(np.maximum(known.error, 0), known.ignorance)
    if curves:
        by_step = np.minimum(np.minimum.accumulate(np.min(curves, axis=0)), known.ignorance)
        if known.how in ("bayes", "exact"):
            # The best of several algorithms falls below the floor by the luck of this sample only.
            by_step = np.maximum(by_step, least)
        elif known.how == "reference":
            least = np.minimum(least, by_step[-1])
        after = {k: _ends(by_step[k - 1]) for k in sorted({1, *steps})}
        enough = 1 + int(np.argmax(by_step.mean(1) <= 1.01 * by_step[-1].mean()))
        algorithm = algorithms[int(np.argmin([curve[-1].mean() for curve in curves]))].kind
    return Room(
        _ends(least),
        known.how,
        known.name,
        _ends(known.ignorance),
        after,
        algorithm,
        enough,
        _rank(batches),
        prompts,
    )


def effective_rank(features: Float[torch.Tensor, "*batch width"]) -> float:
    """The exponential of the entropy of the second moment's normalised eigenvalues; 1 for a single direction."""
    rows = features.flatten(0, -2).double()
    values = np.linalg.eigvalsh((rows.mT @ rows).numpy())
    shares = values[values > 0] / values[values > 0].sum()
    return float(np.exp(-np.sum(shares * np.log(shares))))


def _rank(batches: Sequence[Batch]) -> float | None:
    features = [getattr(batch.problem, "representation", None) for batch in batches]
    known = [each for each in features if each is not None]
    return effective_rank(torch.cat(known)) if known else None


def _curve(solver: Solver, task: Task, batches: Sequence[Batch], steps: int) -> np.ndarray:
    """The mean error after every step at every query [steps, points]."""
    errors = [task.error(solver.predict(batch, steps), batch).double() for batch in batches]
    return torch.cat(errors, dim=1).mean(1).numpy()


def _ends(errors: np.ndarray) -> QueryErrors:
    return QueryErrors(float(errors.mean()), float(errors[-1]))


def _axis_room(
    study: Study, axis: str, rooms: Mapping[str, tuple[int, Room]], steps: Mapping[str, int]
) -> AxisRoom:
    groups = defaultdict[str, list[Cell]](list)
    for cell in study.cells():
        groups[repr({path: value for path, value in cell.written.items() if path != axis})].append(cell)
    effects, same_task = list[tuple[float, float]](), True
    for cells in groups.values():
        if len({cell.values.get("model.kind") for cell in cells}) > 1:
            continue  # a comparison of nets, which no algorithm tells apart
        tasks = {rooms[cell.key][0] for cell in cells}
        if len(tasks) == 1 and len({steps[cell.key] for cell in cells if rooms[cell.key][1].after}) < 2:
            continue
        same_task = same_task and len(tasks) == 1
        errors = [rooms[cell.key][1].best(steps[cell.key]) for cell in cells]
        means, lasts = [error.mean for error in errors], [error.last for error in errors]
        ignorance = max(rooms[cell.key][1].ignorance.last for cell in cells)
        effects.append((1 - min(means) / max(means), (max(lasts) - min(lasts)) / ignorance))
    known = [effect for effect in effects if not math.isnan(effect[0])]
    effect, last = (max(values) for values in zip(*known, strict=True)) if known else (None, None)
    return AxisRoom(axis, _words(study.scientific[axis]), effect, last, same_task and bool(known))


def _words(values: Sequence[Any]) -> str:
    """`4 .. 12` for numbers, else the number of values."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return f"{min(values):g} .. {max(values):g}"
    return f"{len(values)} values"
