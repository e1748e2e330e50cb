"""The search of one cell: an Optuna study in memory, rebuilt from records. It is asked and told, and never run."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import TrialState

from loopscale.records.model import Record
from loopscale.studies.optuna_terms import distribution, trial_state
from loopscale.studies.searches.base import Search
from loopscale.studies.space import Axis


class Exhausted(Exception):
    """The cell has tried every point of its space."""


class Sampler:
    """Proposes the points of a cell. Optuna's sampler is made anew for each point, with a seed from the point's number.

    A proposal therefore depends on the results so far only. A driver that dies between a proposal and its record
    proposes the same point again.
    """

    def __init__(
        self, space: Mapping[str, Axis], search: Search, size: int, name: str, done: Iterable[Record]
    ) -> None:
        """Rebuild the search from the records of finished trials.

        Parameters
        ----------
        size
            Points that the search tries in all.
        name
            Names the search's random numbers.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.search, self.size, self.name = search, size, name
        self.space = {path: distribution(axis) for path, axis in space.items()}
        self.listed = search.listed_points(space, _seed(name, 0))
        self.several = len(search.objectives) > 1
        directions = [StudyDirection.MINIMIZE] * len(search.objectives)
        self.study = optuna.create_study(study_name=name, directions=directions)
        self.asked: dict[str, optuna.Trial] = {}
        done = list(done)
        self.study.add_trials([self._frozen(record) for record in done])
        search.restore(self.study, size)
        self._tried = {self._identity(record.point) for record in done}
        self._next = 0
        """All listed points before this one have been tried."""

    def ask(self, number: int, attempt: int = 0) -> tuple[optuna.Trial, dict[str, Any]]:
        """The point of trial `number`. Another `attempt` gives another point. Raises Exhausted at the end of a list.

        A list gives its first point that has not been tried, for every number. Values that were added to the study
        later may stand anywhere in the list.
        """
        if self.listed is not None:
            while self._next < len(self.listed) and self._identity(self.listed[self._next]) in self._tried:
                self._next += 1
            if self._next == len(self.listed):
                raise Exhausted
            return self._enqueued(self.listed[self._next])
        self.study.sampler = self.search.sampler(_seed(self.name, number + 10_000 * attempt), self.size)
        trial = self.study.ask(self.space)
        return trial, dict(trial.params)

    def again(self, key: str, point: dict[str, Any], memory: Mapping[str, Any]) -> None:
        """Tell the sampler of a point that is being trained, so that other points keep away from it."""
        self.asked[key] = self._enqueued(point, memory)[0]
        self.search.restore(self.study, self.size)

    def memory(self, trial: optuna.Trial) -> dict[str, Any]:
        """The attributes that the sampler stores with a trial, such as a generation. The trial's record keeps them."""
        if not self.search.stateful:
            return {}
        return dict(self.study.get_trials(deepcopy=False)[trial.number].system_attrs)

    def tell(self, key: str, outcome: str, error: float, rungs: Mapping[int, float], flops: float) -> None:
        trial = self.asked.pop(key)
        if not self.several:  # Optuna takes no intermediate values for several objectives
            for step, value in sorted(rungs.items()):
                trial.report(value, step)
        state, value = trial_state(outcome, error)
        self.study.tell(trial, self._values(value, flops), state=state)

    def drop(self, trial: optuna.Trial) -> None:
        self.study.tell(trial, state=TrialState.FAIL)

    def _identity(self, point: Mapping[str, Any]) -> tuple[tuple[type, Any], ...]:
        """A hashable form of a point, in which True differs from 1, as in a study.

        Numbers are rounded: the old values of a grid whose range has grown return with rounding errors.
        """
        values: list[Any] = [point[path] for path in self.space]
        rounded: list[Any] = [float(f"{v:.12g}") if isinstance(v, float) else v for v in values]
        return tuple((type(value), value) for value in rounded)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]: points hold values of any type

    def _enqueued(
        self, point: dict[str, Any], memory: Mapping[str, Any] = {}
    ) -> tuple[optuna.Trial, dict[str, Any]]:
        self._tried.add(self._identity(point))
        attributes = {"fixed_params": point, **memory}  # as `enqueue_trial` does, which takes no attributes
        waiting = optuna.trial.create_trial(state=TrialState.WAITING, system_attrs=attributes)
        self.study.add_trial(waiting)
        # Optuna calls the sampler although every value is fixed: use the cheapest one.
        self.study.sampler = optuna.samplers.RandomSampler(seed=0)
        return self.study.ask(self.space), dict(point)

    def _values(self, error: float | None, flops: float) -> list[float] | None:
        if error is None:
            return None
        measured = {"error": error, "flops": flops}
        return [measured[objective] for objective in self.search.objectives]

    def _frozen(self, record: Record) -> optuna.trial.FrozenTrial:
        state, value = trial_state(record.outcome, record.error)
        return optuna.trial.create_trial(
            state=state,
            values=self._values(value, record.metrics.get("flops", math.inf)),
            params=record.point,
            distributions=self.space,
            intermediate_values={} if self.several else dict(record.rungs),
            system_attrs=json.loads(record.tags.get("sampler", "{}")),
        )


def _seed(name: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{name}/{number}".encode()).digest()[:4])
