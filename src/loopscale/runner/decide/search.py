"""One cell's search: an Optuna study in memory, rebuilt from records, asked and told and never run."""

import hashlib
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import TrialState

from loopscale.records.model.note import Record
from loopscale.studies.space import Axis, told
from loopscale.studies.spec import Search

SAMPLERS: dict[str, Callable[[int, int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed, _: optuna.samplers.TPESampler(seed=seed, n_startup_trials=5),
    "random": lambda seed, _: optuna.samplers.RandomSampler(seed=seed),
    "gp": lambda seed, _: optuna.samplers.GPSampler(seed=seed),
    # A generation of Optuna's default 50 would make all of a cell's search random.
    "nsga2": lambda seed, trials: optuna.samplers.NSGAIISampler(
        seed=seed, population_size=min(50, max(4, trials // 4))
    ),
    "grid": lambda seed, _: optuna.samplers.RandomSampler(seed=seed),
}


class Exhausted(Exception):
    """The space has no point left that the cell has not had."""


class Sampler:
    """Points of a space. The sampler is made afresh for every point, and seeded by its number.

    So what is asked next depends on what has been told, and on nothing that dies with the driver: a driver killed
    between asking and recording asks the very same point again.
    """

    def __init__(
        self, space: Mapping[str, Axis], search: Search, size: int, name: str, done: Iterable[Record]
    ) -> None:
        """`size` points are wanted of the space in all; `name` is what its random numbers are named by."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.search, self.size, self.name = search, size, name
        self.space = {path: axis.distribution() for path, axis in space.items()}
        self.grid = _product(space, _seed(name, 0)) if search.kind == "grid" else None
        self.both = search.kind == "nsga2"
        directions = [StudyDirection.MINIMIZE] * (2 if self.both else 1)
        self.study = optuna.create_study(study_name=name, directions=directions)
        self.asked: dict[str, optuna.Trial] = {}
        done = list(done)
        self.study.add_trials([self._frozen(record) for record in done])
        self._had = {self._place(record.point) for record in done}
        self._next = 0
        """All points of the grid before this one have been had."""

    def ask(self, number: int, attempt: int = 0) -> tuple[optuna.Trial, dict[str, Any]]:
        """The point of trial `number`; a further `attempt` gives another. Raises Exhausted at the end of a grid.

        A grid gives the first of its points that the search has not had, whatever its number: values may have been
        added to the study since, anywhere among the others.
        """
        if self.grid is not None:
            while self._next < len(self.grid) and self._place(self.grid[self._next]) in self._had:
                self._next += 1
            if self._next == len(self.grid):
                raise Exhausted
            return self._enqueued(self.grid[self._next])
        self.study.sampler = SAMPLERS[self.search.kind](
            _seed(self.name, number + 10_000 * attempt), self.size
        )
        trial = self.study.ask(self.space)
        return trial, dict(trial.params)

    def again(self, key: str, point: dict[str, Any]) -> None:
        """A point that is under way: known to the sampler, so that it stays away from it."""
        self.asked[key] = self._enqueued(point)[0]

    def memory(self, trial: optuna.Trial) -> dict[str, Any]:
        """What the sampler itself remembers with a trial (NSGA-II: its generation); a record must keep it."""
        if not self.both:
            return {}
        return dict(self.study.get_trials(deepcopy=False)[trial.number].system_attrs)

    def tell(self, key: str, outcome: str, error: float, rungs: Mapping[int, float], flops: float) -> None:
        trial = self.asked.pop(key)
        if not self.both:
            for step, value in sorted(rungs.items()):
                trial.report(value, step)
        state, value = told(outcome, error)
        self.study.tell(trial, self._values(value, flops), state=state)

    def drop(self, trial: optuna.Trial) -> None:
        self.study.tell(trial, state=TrialState.FAIL)

    def _place(self, point: Mapping[str, Any]) -> tuple[tuple[type, Any], ...]:
        """A point as something to look up: True is not 1 here, as it is not in a study.

        A grid over a range that was made longer meets its old values again but for rounding: these are the same.
        """
        values = (point[path] for path in self.space)
        return tuple((type(v), float(f"{v:.12g}") if isinstance(v, float) else v) for v in values)

    def _enqueued(self, point: dict[str, Any]) -> tuple[optuna.Trial, dict[str, Any]]:
        self._had.add(self._place(point))
        self.study.enqueue_trial(point)
        # Every value is fixed, but Optuna runs the sampler all the same: the cheapest one.
        self.study.sampler = optuna.samplers.RandomSampler(seed=0)
        return self.study.ask(self.space), dict(point)

    def _values(self, value: float | None, flops: float) -> list[float] | None:
        if value is None:
            return None
        return [value, flops] if self.both else [value]

    def _frozen(self, record: Record) -> optuna.trial.FrozenTrial:
        state, value = told(record.outcome, record.error)
        return optuna.trial.create_trial(
            state=state,
            values=self._values(value, record.metrics.get("flops", math.inf)),
            params=record.point,
            distributions=self.space,
            intermediate_values={} if self.both else dict(record.rungs),
            system_attrs=_memory(record),
        )


def _memory(record: Record) -> dict[str, Any]:
    return json.loads(record.tags.get("sampler", "{}"))


def _product(space: Mapping[str, Axis], seed: int) -> list[dict[str, Any]]:
    """All points of the grid, shuffled: in order, early trials would all be at one end of every range, where they
    tell a scheduler nothing about the others (each may be better than all before it), nor a reader who stops early.
    """
    values = [axis.grid() for axis in space.values()]
    points = [dict(zip(space, each, strict=True)) for each in itertools.product(*values)]
    random.Random(seed).shuffle(points)
    return points


def _seed(name: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{name}/{number}".encode()).digest()[:4])
