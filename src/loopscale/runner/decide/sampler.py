"""Proposals of a cell's points by its search: an Optuna study in memory, rebuilt from records.

The Optuna study is asked and told, and never run. A point is one Optuna trial, whatever the number of its seeds.
"""

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import TrialState

from loopscale.notation.space import Axis, Real, draws, finite_points
from loopscale.studies.searches.base import Feasible, Point, Search, distribution, trial_state

MAX_ATTEMPTS = 16
"""Number of rejected proposals in a row after which points are drawn at random from the points that are left."""

FIXED = "fixed_params"
"""Optuna's attribute with the settings of a waiting trial."""


class Exhausted(Exception):
    """The cell has tried every point of its space."""


@dataclass(frozen=True)
class TriedPoint:
    """A point that the search has tried, with the result of all its seeds."""

    point: dict[str, Any]
    outcome: str
    error: float
    progress: Mapping[int, float]
    """The error at each of the scheduler's rungs, by the steps so far."""
    flops: float
    """FLOPs of the training with one seed."""
    memory: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The attributes that the sampler stores with the point."""


class Sampler:
    """Proposes the points of a cell. Optuna's sampler is made anew for each point, with a seed from the point's number.

    A proposal therefore depends on the results so far only. A driver that dies between a proposal and its record
    proposes the same point again.
    """

    def __init__(
        self,
        space: Mapping[str, Axis],
        search: Search,
        size: int,
        name: str,
        done: Iterable[TriedPoint],
        known: Sequence[Point] = (),
        feasible: Feasible = lambda _: True,
    ) -> None:
        """Rebuild the search from the points that it has tried.

        Parameters
        ----------
        size
            Points that the search tries in all.
        name
            Names the search's random numbers.
        known
            Points that are tried first. The search draws the settings that a point leaves out.
        feasible
            Says which points may be tried.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.search, self.size, self.name, self.feasible = search, size, name, feasible
        self.ranges = space
        self.known = [point for point in known if point.keys() < space.keys() or feasible(point)]
        self.space = {path: distribution(axis) for path, axis in space.items()}
        listed = search.listed_points(space, _seed(name, 0))
        self.listed = None if listed is None else list(filter(feasible, listed))
        self.several = len(search.objectives) > 1
        self.asked: dict[str, optuna.Trial] = {}
        """Points that are being trained, by their identity."""
        self._done = list(done)
        """The points that are over, from which the study is rebuilt. A search without a memory is never rebuilt."""
        self.study = self._rebuilt()
        self._tried: set[tuple[tuple[type, Any], ...]] = set()
        self._points: list[Point] = []
        for tried in self._done:
            self._add_tried(tried.point)
        if not search.stateful:
            self._done.clear()
        self._next = 0
        """All listed points before this one have been tried."""

    def ask(self, number: int, attempt: int = 0) -> tuple[optuna.Trial, Point]:
        """The point of trial `number`. Another `attempt` gives another point. Raises Exhausted at the end of a list.

        A list gives its first point that has not been tried, for every number. Values that were added to the study
        later may stand anywhere in the list. Known points come before the points of the search. A point that is not
        feasible is rejected. After MAX_ATTEMPTS rejected points or attempts, a random point that is left is drawn.
        """
        if self.listed is not None:
            while self._next < len(self.listed) and self._identity(self.listed[self._next]) in self._tried:
                self._next += 1
            if self._next == len(self.listed):
                raise Exhausted
            return self._enqueued(self.listed[self._next])
        if not attempt:
            for known in self.known:
                if not any(known.items() <= point.items() for point in self._points):
                    with suppress(Exhausted):  # no feasible point has these settings
                        return self._drawn(number, attempt, known)
                self.known = self.known[1:]
        if attempt >= MAX_ATTEMPTS:
            return self._left_over(number, attempt, {})
        return self._drawn(number, attempt, {})

    def _drawn(self, number: int, attempt: int, known: Point) -> tuple[optuna.Trial, Point]:
        """A feasible point with the known settings. Raises Exhausted if there seems to be none."""
        for rejected in range(MAX_ATTEMPTS):
            name = f"{self.name}/{rejected}" if rejected else self.name
            sampler = self.search.sampler(_seed(name, number + 10_000 * attempt), self.size)
            if known.keys() == self.space.keys():
                return self._adopted(known)
            if known:
                self._wait(known, {})
            self.study.sampler = sampler
            trial = self.study.ask(self.space)
            point = self._exact(trial.params)
            if self.feasible(point):
                self._add_tried(point)
                if rejected and self.search.stateful:
                    memory = self.memory(trial)
                    self._forget_rejected()
                    trial = self._enqueued(point, memory)[0]
                    self.search.restore(self.study, self.size)
                return trial, point
            self.study.tell(trial, state=TrialState.FAIL)
        self._forget_rejected()
        return self._left_over(number, attempt, known)

    def _exact(self, params: Mapping[str, Any]) -> Point:
        """The proposed point. Samplers give the values of a step with rounding errors, and each would be a point."""
        ranges = self.ranges
        return {
            path: axis.nearest(value) if isinstance(axis := ranges[path], Real) else value
            for path, value in params.items()
        }

    def _left_over(self, number: int, attempt: int, known: Point) -> tuple[optuna.Trial, Point]:
        """A random point that nobody has tried. Raises Exhausted if there seems to be none.

        The last points of a small space are rare among random points, so all its points are listed after them.
        """
        name = f"{self.name}/{number}/{attempt}"
        for point in chain(draws(self.ranges, name), self._listed_points(name)):
            if self.feasible(point | known) and self._identity(point | known) not in self._tried:
                return self._adopted(point | known)
        raise Exhausted

    def _listed_points(self, name: str) -> Iterator[Point]:
        """All points of a small space, in a random order that `name` names; nothing for a large space."""
        points = list(finite_points(self.ranges) or ())
        random.Random(name).shuffle(points)
        yield from points

    def again(self, key: str, point: dict[str, Any], memory: Mapping[str, Any]) -> None:
        """Tell the sampler of a point that is being trained, so that other points keep away from it."""
        self.asked[key] = self._enqueued(point, memory)[0]
        self.search.restore(self.study, self.size)

    def memory(self, trial: optuna.Trial) -> dict[str, Any]:
        """The attributes that the sampler stores with a point, such as a generation. Its record keeps them."""
        if not self.search.stateful:
            return {}
        attributes = self.study.get_trials(deepcopy=False)[trial.number].system_attrs
        return {name: value for name, value in attributes.items() if name != FIXED}

    def tell(self, key: str, tried: TriedPoint) -> None:
        trial = self.asked.pop(key)
        if not self.several:  # Optuna takes no intermediate values for several objectives
            for step, value in sorted(tried.progress.items()):
                trial.report(value, step)
        state, value = trial_state(tried.outcome, tried.error)
        self.study.tell(trial, self._values(value, tried.flops), state=state)
        if self.search.stateful:
            self._done.append(tried)

    def drop(self, trial: optuna.Trial) -> None:
        """Reject a proposal."""
        self.study.tell(trial, state=TrialState.FAIL)
        self._forget_rejected()

    def _forget_rejected(self) -> None:
        """Rebuild the study of a stateful search as the next driver would, which knows no rejected proposal."""
        if not self.search.stateful:
            return
        under_way = {key: (dict(trial.params), self.memory(trial)) for key, trial in self.asked.items()}
        self.study, self.asked = self._rebuilt(), {}
        for key, (point, memory) in under_way.items():
            self.again(key, point, memory)

    def _rebuilt(self) -> optuna.Study:
        """The study with all points that are over."""
        directions = [StudyDirection.MINIMIZE] * len(self.search.objectives)
        study = optuna.create_study(study_name=self.name, directions=directions)
        study.add_trials([self._frozen(tried) for tried in self._done])
        self.search.restore(study, self.size)
        return study

    def _add_tried(self, point: Point) -> None:
        self._tried.add(self._identity(point))
        if self.known:
            self._points.append(point)

    def _identity(self, point: Mapping[str, Any]) -> tuple[tuple[type, Any], ...]:
        """A hashable form of a point, in which True differs from 1, as in a study.

        Numbers are rounded: the old values of a grid whose range has grown return with rounding errors.
        """
        values: list[Any] = [point[path] for path in self.space]
        rounded: list[Any] = [float(f"{v:.12g}") if isinstance(v, float) else v for v in values]
        return tuple((type(value), value) for value in rounded)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]: points hold values of any type

    def _adopted(self, point: Point) -> tuple[optuna.Trial, Point]:
        """A new trial with these settings, and with the attributes that the search stores with its own proposals."""
        trial, point = self._enqueued(point)
        self.search.adopt(self.study, trial, self.size)
        return trial, point

    def _enqueued(self, point: Point, memory: Mapping[str, Any] = {}) -> tuple[optuna.Trial, Point]:
        self._add_tried(point)
        self._wait(point, memory)
        # Optuna may call the sampler although every value is fixed: use the cheapest one.
        self.study.sampler = optuna.samplers.RandomSampler(seed=0)
        return self.study.ask(self.space), dict(point)

    def _wait(self, point: Point, memory: Mapping[str, Any]) -> None:
        """Let the next trial have these settings, as `enqueue_trial` does, which takes no attributes."""
        attributes = {**memory, FIXED: point}
        self.study.add_trial(optuna.trial.create_trial(state=TrialState.WAITING, system_attrs=attributes))

    def _values(self, error: float | None, flops: float) -> list[float] | None:
        if error is None:
            return None
        measured = {"error": error, "flops": flops}
        return [measured[objective] for objective in self.search.objectives]

    def _frozen(self, tried: TriedPoint) -> optuna.trial.FrozenTrial:
        state, value = trial_state(tried.outcome, tried.error)
        return optuna.trial.create_trial(
            state=state,
            values=self._values(value, tried.flops),
            params=tried.point,
            distributions=self.space,
            intermediate_values={} if self.several else dict(tried.progress),
            system_attrs=dict(tried.memory),
        )


def _seed(name: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{name}/{number}".encode()).digest()[:4])
