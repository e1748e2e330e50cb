"""Room: how far the settings of a study can move the error, computed before anything is trained.

A task leaves room between its floor, the least possible error, and its ignorance, the error of the best fixed guess.
The error of the best known algorithm after k steps shows the abilities of k layers. If this error is the same at both
ends of an axis, the axis cannot move the answer. The exception are nets that fall short of the algorithm. The error of
a net also depends on its width, its heads and its training. An algorithm has none of these settings, so the room says
nothing about their axes.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from loopscale.core.config import leaves
from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.evaluate import prompt_set
from loopscale.models.architecture import LoopedArchitecture
from loopscale.questions.axes.base import is_number
from loopscale.questions.measures import CURVE_MEASURES
from loopscale.regret import How, floor
from loopscale.solvers.base import Solver
from loopscale.solvers.prefixes import shared_prefixes
from loopscale.stats.learning import LEAST_ROOM
from loopscale.stats.power import percent
from loopscale.studies.cells import Cell, labels
from loopscale.studies.spec import Study
from loopscale.tasks.base import Task
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.training.trial import Trial

MOST_ROOM_PROMPTS, LEAST_PROMPTS = 512, 32
"""Prompts of a sample, for a study of one small task."""
ALL_PROMPTS = 2048
"""Prompts of all samples of a study."""
FEW_PROMPTS = 8
"""Prompts of a task at the ends and in the middle of the axes, in a study of more than `MANY_TASKS` tasks."""
MANY_TASKS = 40
CLEAR = 4
"""Standard errors that a small sample must be away from a limit."""
SLOWER = 4
POINTS_IN_A_SAMPLE = 2**22
"""Prompts x points² x steps x `Solver.work` of a sample are at most this, for more than the fewest prompts."""
MOST_QUERIES = 2048
"""Queries of the longest prompt whose room is computed."""
MOST_WORK = 2**28
"""A room is computed if its fewest prompts need less work, which takes about a minute."""
LEAST_EFFECT = 0.1
"""An axis with a smaller effect cannot move the answer."""


@dataclass(frozen=True)
class QueryErrors:
    """An error over the variance of the target: the mean over queries, and at the last query."""

    mean: float
    last: float


@dataclass(frozen=True)
class Room:
    """The errors between which a net's error lies, on the same prompts."""

    floor: QueryErrors
    """The least possible error; NaN if unknown."""
    floor_sem: float
    """The standard error of the mean floor over prompts."""
    how: How
    """How the floor is known (see `loopscale.regret.Floor`)."""
    floor_name: str
    """The solver that has the floor."""
    ignorance: QueryErrors
    """The error of the best fixed guess."""
    after: Mapping[int, QueryErrors]
    """The error of the best known algorithm by its number of steps; empty if no algorithm goes step by step."""
    algorithm: str
    """The kind of the algorithm that is best after the most steps."""
    enough: int
    """The steps after which the algorithms gain less than 1 % of their error; 0 without algorithms."""
    rank: float | None
    """The effective rank of the features Φ; None for a task without Φ."""
    prompts: int

    @property
    def sure(self) -> bool:
        """True if the sample shows clearly whether the task leaves room to learn."""
        return abs(self.reducible - LEAST_ROOM) > CLEAR * self.floor_sem / self.ignorance.mean

    @property
    def reducible(self) -> float:
        """The part of the ignorance that can be learnt; NaN if the floor is unknown."""
        return 1 - self.floor.mean / self.ignorance.mean

    def best(self, steps: int) -> QueryErrors:
        """The error of the best known algorithm after some steps; the floor if no algorithm goes step by step."""
        return self.after.get(steps, self.floor)


@dataclass(frozen=True)
class TaskRoom:
    """The room of the cells that share a task."""

    label: str
    """The settings in which the task differs from the other tasks of the study."""
    cells: tuple[str, ...]
    """The keys of the cells."""
    steps: tuple[int, ...]
    """The numbers of steps of the cells' nets, ascending."""
    room: Room


@dataclass(frozen=True)
class AxisRoom:
    """How far an axis moves the error of the best known algorithm."""

    axis: str
    """The path of the axis."""
    values: str
    """The values of the axis, in words."""
    effect: float | None
    """The largest relative change of the mean error between cells that differ along this axis only. None if no
    algorithm depends on the axis."""
    effect_error: float
    """The standard error of `effect`, from the sample of prompts. 0 if all cells have one task, because the prompts are
    then the same."""
    effect_last: float | None
    """The change of the error at the last query, relative to the error of the best fixed guess there."""
    depth: bool
    """True if the axis changes the number of steps only, and not the task."""

    def too_small(self, least: float = LEAST_EFFECT) -> bool:
        """True if the axis cannot move the answer by this part, for any sample of prompts."""
        return self.effect is not None and self.effect + 2 * self.effect_error < least

    def moves(self, least: float) -> bool:
        """True if the axis clearly moves the answer, also at the last query. True if no algorithm depends on it."""
        if self.effect is None or self.effect_last is None:
            return True
        return min(self.effect, self.effect_last) - CLEAR * self.effect_error > 2 * least


@dataclass(frozen=True)
class StudyRoom:
    """The rooms of a study's tasks, and the effects of its axes."""

    tasks: tuple[TaskRoom, ...]
    axes: tuple[AxisRoom, ...]
    of: int
    """The number of tasks, some of which may have no room here."""
    tight: int
    """The number of tasks that leave no room to learn."""
    too_long: int = 0
    """The number of tasks whose prompts are too long for a room here."""


def study_room(study: Study, least: float = LEAST_EFFECT) -> StudyRoom:
    """The rooms of a study's tasks, and how far each axis can move the error.

    In a study of many tasks, the tasks at the ends and in the middle of each axis have a room, on few prompts. A task
    between two tasks that both leave room, or that both leave none, has no room of its own.

    Parameters
    ----------
    least
        The least effect of an axis, as a part of the error.
    """
    posed = study.tasks()
    groups = defaultdict[str, list[Cell]](list)
    for cell in study.cells():
        groups[posed[cell.key].model_dump_json()].append(cell)
    tasks = _StudyTasks(study, tuple(tuple(cells) for cells in groups.values()))
    short = [number for number in range(len(tasks.cells)) if tasks.affordable(number)]
    if len(tasks.cells) > MANY_TASKS and len(short) == len(tasks.cells):
        rooms = tasks.few_rooms()
        if all(axis.moves(least) for axis in rooms.axes):
            return rooms
    rooms = tasks.rooms({number: tasks.room(number) for number in short})
    return replace(rooms, too_long=len(tasks.cells) - len(short))


@dataclass(frozen=True)
class _StudyTasks:
    """The tasks of a study by their number, each with its cells."""

    study: Study
    cells: tuple[tuple[Cell, ...], ...]

    def steps(self, number: int) -> set[int]:
        """The numbers of steps of a task's nets."""
        return {layers_of(self.study.layout.trials[cell.key]) for cell in self.cells[number]}

    def affordable(self, number: int) -> bool:
        """True if the room of a task takes about a minute at most."""
        task = self.study.task(self.cells[number][0].key)
        queries = len(task.seen)
        return queries <= MOST_QUERIES and LEAST_PROMPTS * _work(task, max(self.steps(number))) <= MOST_WORK

    def room(self, number: int, prompts: int | None = None) -> Room:
        """The room of a task, by default on its share of `ALL_PROMPTS`."""
        cells = self.cells[number]
        fewest = min(prompts or LEAST_PROMPTS, LEAST_PROMPTS)
        task = self.study.task(cells[0].key)
        return room(task, self.steps(number), prompts or ALL_PROMPTS // len(self.cells), fewest)

    def few_rooms(self) -> StudyRoom:
        """Rooms at the ends and in the middle of each axis, and where it is not clear who leaves room."""
        axes = [axis for axis, values in self.study.scientific.items() if all(map(is_number, values))]
        places: list[tuple[Any, ...]] = [
            tuple(cells[0].written.get(axis) for axis in axes) for cells in self.cells
        ]
        kept = [_ends_and_middle({place[n] for place in places}) for n in range(len(axes))]
        others = [
            repr({path: value for path, value in cells[0].written.items() if path not in axes})
            for cells in self.cells
        ]
        rooms, tight = dict[int, Room](), dict[int, bool]()

        def compute(number: int) -> None:
            few = self.room(number, FEW_PROMPTS)
            rooms[number] = few if few.sure else self.room(number)
            tight[number] = rooms[number].reducible < LEAST_ROOM

        def between(number: int) -> bool | None:
            """Whether a task between two equal ones leaves no room; None if no axis has such neighbours."""
            for axis in range(len(axes)):
                line = [
                    (places[other][axis], tight[other])
                    for other in tight
                    if others[other] == others[number]
                    and all(places[other][n] == places[number][n] for n in range(len(axes)) if n != axis)
                ]
                below = max((each for each in line if each[0] < places[number][axis]), default=None)
                above = min((each for each in line if each[0] > places[number][axis]), default=None)
                if below and above and below[1] == above[1]:
                    return below[1]
            return None

        for number, place in enumerate(places):
            if all(value in ends for value, ends in zip(place, kept, strict=True)):
                compute(number)
        while rest := [number for number in range(len(places)) if number not in tight]:
            known = {number: state for number in rest if (state := between(number)) is not None}
            tight |= known
            if not known:
                compute(rest[0])
        return self.rooms(rooms, sum(tight.values()))

    def rooms(self, chosen: Mapping[int, Room], tight: int | None = None) -> StudyRoom:
        """The rooms of some tasks, and the axes that they describe. `tight` counts tasks without room."""
        study, posed = self.study, self.study.tasks()
        steps = {key: layers_of(trial) for key, trial in study.layout.trials.items()}
        settings = [dict(leaves(posed[cells[0].key].model_dump(mode="json"))) for cells in self.cells]
        named = labels(
            [{f"task.{name}": value for name, value in each.items()} for each in settings], "all cells"
        )
        rooms = [
            TaskRoom(
                named[number],
                tuple(cell.key for cell in self.cells[number]),
                tuple(sorted({steps[cell.key] for cell in self.cells[number]})),
                found,
            )
            for number, found in sorted(chosen.items())
        ]
        of_cell = {key: (n, each.room) for n, each in enumerate(rooms) for key in each.cells}
        axes = [
            _axis_room(study, axis, of_cell, steps)
            for axis, values in study.scientific.items()
            if len(values) > 1
        ]
        if tight is None:
            tight = sum(each.room.reducible < LEAST_ROOM for each in rooms)
        return StudyRoom(tuple(rooms), tuple(axes), len(self.cells), tight)


def _ends_and_middle(values: Collection[Any]) -> set[Any]:
    ordered = sorted(values)
    return {ordered[0], ordered[len(ordered) // 2], ordered[-1]}


def room_remarks(study: Study, rooms: StudyRoom, least: float = LEAST_EFFECT) -> Iterator[str]:
    """Yield one sentence for each axis that hardly moves the best known algorithm, and one for tasks without room.

    Parameters
    ----------
    least
        The least effect of an axis, as a part of the error.
    """
    for axis in rooms.axes:
        name = f"{axis.axis} ({axis.values})"
        if axis.too_small(least):
            why = f"it changes the error of this algorithm by {percent(axis.effect or 0.0)}, less than "
            why += percent(least)
            if axis.depth:
                why += f"; {_enough(rooms)}"
                why += _more_levels(study)
            yield f"{name} moves only nets that fall short of the best known algorithm: {why}"
        elif axis.effect_last is not None and axis.effect_last < least:
            laws = (law.of for law in study.laws if law.along == axis.axis)
            last = [
                of
                for of in dict.fromkeys(laws)
                if of in CURVE_MEASURES and CURVE_MEASURES[of].query == "last"
            ]
            for of in last:
                yield (
                    f"{name} cannot move {of}: at the last query, the error of the best known algorithm changes by "
                    f"{percent(axis.effect_last)} of the ignorance, less than {percent(least)}"
                )
    if rooms.too_long:
        named = f"{rooms.too_long} of {rooms.of} tasks" if rooms.of > 1 else "the task"
        yield f"the room of {named} is not known: the algorithms would take minutes on these prompts"
    if rooms.tight:
        first = next(each for each in rooms.tasks if each.room.reducible < LEAST_ROOM)
        named = f" ({first.label})" if rooms.of > 1 else ""
        many = f"{rooms.tight} of {rooms.of} tasks leave" if rooms.of > 1 else "the task leaves"
        yield f"{many} nothing to learn{named}: a fixed guess is within {percent(LEAST_ROOM)} of the least error"


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
def room(
    task: Task, steps: Collection[int], prompts: int = MOST_ROOM_PROMPTS, fewest: int = LEAST_PROMPTS
) -> Room:
    """The room of a task on the first of its evaluation prompts.

    The best known algorithm is chosen at each query and after each number of steps. Its error never rises with the
    steps, because a longer net may leave steps out.

    Parameters
    ----------
    steps
        The numbers of steps to report. 1 is added.
    prompts
        The size of the sample. It is smaller for long prompts and many steps, and at least `fewest`.
    """
    most = max(steps)
    affordable = POINTS_IN_A_SAMPLE // _work(task, most)
    if task.floor_rule and task.floor_rule.how in ("bound", "reference"):
        prompts //= SLOWER  # these floors come from iterations with restarts
    prompts = max(fewest, min(MOST_ROOM_PROMPTS, prompts, affordable))
    known = floor(task, "evaluate", prompts)
    batches = list(prompt_set("evaluate", task, prompts))
    algorithms = _stepwise(batches[0].problem)
    with shared_prefixes():
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
        float(known.errors.mean(axis=1).std() / math.sqrt(prompts)),
        known.how,
        known.name,
        _ends(known.ignorance),
        after,
        algorithm,
        enough,
        _rank(batches),
        prompts,
    )


def _stepwise(problem: Any) -> list[Solver]:
    """The algorithms whose steps compare with layers."""
    return [solver for choice in Solver.choices().values() for solver in choice.stepwise(problem)]


def _work(task: Task, steps: int) -> int:
    """The work of the most expensive algorithm on a prompt: points² x steps x `Solver.work`."""
    problem = task.sample(1, stream("problem")).problem
    return len(task.seen) ** 2 * steps * max((each.work(problem) for each in _stepwise(problem)), default=1)


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
        if cell.key in rooms:
            groups[repr({path: value for path, value in cell.written.items() if path != axis})].append(cell)
    effects, same_task = list[tuple[float, float, float]](), True
    for cells in groups.values():
        if len({cell.values.get("model.kind") for cell in cells}) > 1:
            continue  # a comparison of nets, which no algorithm tells apart
        tasks = {rooms[cell.key][0] for cell in cells}
        if len(tasks) == 1 and len({steps[cell.key] for cell in cells if rooms[cell.key][1].after}) < 2:
            continue
        same_task = same_task and len(tasks) == 1
        of_cells = [rooms[cell.key][1] for cell in cells]
        errors = [each.best(steps[cell.key]) for each, cell in zip(of_cells, cells, strict=True)]
        means, lasts = [error.mean for error in errors], [error.last for error in errors]
        low, high = min(means), max(means)
        ends = [of_cells[means.index(end)] for end in (low, high)] if len(tasks) > 1 else []
        error = (
            low
            / high
            * math.hypot(*(each.floor_sem / each.floor.mean for each in ends if each.floor.mean > 0))
        )
        ignorance = max(each.ignorance.last for each in of_cells)
        effects.append((1 - low / high, error, (max(lasts) - min(lasts)) / ignorance))
    known = [effect for effect in effects if not math.isnan(effect[0])]
    words = _words(study.scientific[axis])
    if not known:
        return AxisRoom(axis, words, None, 0.0, None, depth=False)
    effect, error, _ = max(known)
    return AxisRoom(axis, words, effect, error, max(last for *_, last in known), same_task)


def _words(values: Sequence[Any]) -> str:
    """`4 .. 12` for numbers, else the number of values."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return f"{min(values):g} .. {max(values):g}"
    return f"{len(values)} values"
