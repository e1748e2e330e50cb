"""Learning curves for trials that are not trained: as recorded, of the nearest recorded trial, or made up.

A trial that is in the records has its own curve. One that is not has that of the nearest recorded trial: of its own
cell or else of the cell whose settings differ least, and in it nearest in the nuisance ranges, each brought to 0 .. 1;
stretched to the trial's own number of steps. What was pruned in the records goes on as the nearest trial of that cell
that went further did, in proportion. Without records a curve is made up: a power of the steps towards a floor that
rises with the distance from an optimum of the cell (both drawn from the keys), under 3 % noise.
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loopscale.records.model.note import flatten
from loopscale.runner.decide.job import Job
from loopscale.runner.simulation.recorded_curves import Recorded
from loopscale.studies.space import Axis, Choice
from loopscale.studies.spec import Study

RATE = 1e12
"""FLOP/s of a trial where neither the records nor the caller know: a share of one GPU, roughly."""


@dataclass(frozen=True)
class Course:
    """What a trial would do: errors by the share of its steps, seconds of a step, where it breaks off."""

    points: tuple[tuple[float, float], ...]
    seconds: float
    outcome: str = "finished"
    last: float = 1.0
    """The share of its steps at which `outcome` comes, if it is not `finished`."""

    def error(self, share: float) -> float:
        """Between two recorded errors along a straight line in the logarithm, where there is one."""
        before = max((p for p in self.points if p[0] <= share), default=self.points[0])
        after = min((p for p in self.points if p[0] > share), default=before)
        if before[0] == after[0]:
            return before[1]
        weight = min(1.0, max(0.0, (share - before[0]) / (after[0] - before[0])))
        if min(before[1], after[1]) <= 0:
            return before[1] + weight * (after[1] - before[1])
        return math.exp(math.log(before[1]) + weight * (math.log(after[1]) - math.log(before[1])))


@dataclass
class Curves:
    """The course of every job of a study."""

    study: Study
    recorded: Iterable[Recorded]
    rate: float | None = None
    found: dict[str, str] = field(default_factory=dict)
    """How each job came by its curve: exact, nearest or surrogate."""

    def __post_init__(self) -> None:
        self._by_key, self._by_cell = {}, defaultdict[str, list[Recorded]](list)
        for each in self.recorded:
            if each.points:
                self._by_key[each.key] = each
                self._by_cell[each.cell].append(each)
        self._cells = {cell.key: cell for cell in self.study.cells()}
        self._alike: dict[str, str] = {}
        self._courses: dict[str, Course] = {}

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.found.values())

    @property
    def speed(self) -> float | None:
        """FLOP/s that times are counted from; None if every curve brings its own seconds."""
        timed = self._by_key and all(math.isfinite(each.seconds) for each in self._by_key.values())
        return self.rate or (None if timed else RATE)

    def course(self, job: Job) -> Course:
        if job.key not in self._courses:
            self.found[job.key], self._courses[job.key] = self._course(job)
        return self._courses[job.key]

    def _course(self, job: Job) -> tuple[str, Course]:
        if exact := self._by_key.get(job.key):
            return "exact", self._replayed(job, exact)
        if not self._by_cell:
            return "surrogate", _made_up(
                job, self.study.space(self._cells[job.cell]), self._per_step(job, None)
            )
        space = self.study.space(self._cells[job.cell])
        near = min(
            self._by_cell[self._similar(job)], key=lambda each: distance(space, job.point, each.settings)
        )
        return "nearest", self._replayed(job, near)

    def _similar(self, job: Job) -> str:
        if job.cell not in self._alike:
            settings, space = flatten(job.work.settings), self.study.space(self._cells[job.cell])
            fixed = {path: value for path, value in settings.items() if path not in space and path != "seed"}
            cells = self._by_cell
            self._alike[job.cell] = (
                job.cell
                if job.cell in cells
                else min(cells, key=lambda c: _unlike(fixed, cells[c][0].settings))
            )
        return self._alike[job.cell]

    def _replayed(self, job: Job, like: Recorded) -> Course:
        seconds = self._per_step(job, like)
        points, last = list(like.points), like.points[-1][0]
        if like.outcome in ("diverged", "out_of_memory"):
            return Course(tuple(points), seconds, like.outcome, last)
        further = [each for each in self._by_cell[like.cell] if each.points[-1][0] > last + 1e-9]
        if last < 1 - 1e-9 and further:
            longest = max(each.points[-1][0] for each in further)
            longest = [each for each in further if each.points[-1][0] == longest]
            space = self.study.space(self._cells[job.cell])
            guide = Course(
                tuple(min(longest, key=lambda e: distance(space, like.settings, e.settings)).points), 0.0
            )
            scale = points[-1][1] / max(guide.error(last), 1e-300)
            points += [(share, error * scale) for share, error in guide.points if share > last]
        return Course(tuple(points), seconds)

    def _per_step(self, job: Job, like: Recorded | None) -> float:
        flops = job.flops / max(job.steps, 1)
        if self.rate is None and like and math.isfinite(like.seconds):
            return like.seconds * (flops / like.flops if like.flops > 0 else 1.0)
        return flops / (self.rate or RATE)


def distance(space: Mapping[str, Axis], one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Between two points, squared, each range brought to 0 .. 1; a setting that one has not got is far away."""
    total = 0.0
    for path, axis in space.items():
        if path not in one or path not in other:
            total += 1
        elif isinstance(axis, Choice):
            total += one[path] != other[path]
        else:
            total += (_unit(axis, one[path]) - _unit(axis, other[path])) ** 2
    return total


def _unit(axis: Axis, value: float) -> float:
    assert not isinstance(axis, Choice)
    low, high = axis.ends
    if axis.scale == "log":
        low, high, value = math.log(low), math.log(high), math.log(max(value, 1e-300))
    return (value - low) / (high - low)


def _unlike(fixed: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """How much two cells differ: kinds most of all, numbers by their ratio."""
    total = 0.0
    for path in fixed.keys() | other.keys():
        one, two = fixed.get(path), other.get(path)
        if one == two:
            continue
        if path.endswith(".kind"):
            total += 100
        elif isinstance(one, int | float) and isinstance(two, int | float) and one > 0 and two > 0:
            total += min(1.0, abs(math.log(one / two)) / 5)
        else:
            total += path in fixed
    return total


def _made_up(job: Job, space: Mapping[str, Axis], seconds: float) -> Course:
    cell, own = random.Random(job.cell), random.Random(job.key)
    away = 0.0
    for path, axis in space.items():
        best = cell.uniform(0.25, 0.75)
        away += (_position(axis, job.point.get(path)) - best) ** 2
    floor = (0.02 + 0.1 * cell.random()) * (1 + 8 * away)
    speed = own.uniform(0.8, 1.2) / (1 + 2 * away)
    shares = [n / 40 for n in range(41)]
    points = [
        (s, (floor + (1 - floor) * (1 + 60 * s) ** -speed) * math.exp(own.gauss(0, 0.03))) for s in shares
    ]
    return Course(tuple(points), seconds)


def _position(axis: Axis, value: Any) -> float:
    if isinstance(axis, Choice):
        return axis.choice.index(value) / max(len(axis.choice) - 1, 1) if value in axis.choice else 0.0
    return _unit(axis, value)
