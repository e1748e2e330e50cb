"""The run of one cell: its search, its rungs, and its replicates.

The search is an Optuna study in memory, rebuilt from records. It is asked and told, and never run.
"""

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import TrialState

from loopscale.records.model import OVER, Record, Role
from loopscale.runner.decide.job import Job
from loopscale.studies.answering_runs import answering_runs
from loopscale.studies.cells import Cell
from loopscale.studies.schedulers.base import RungErrors, Scheduler
from loopscale.studies.searches.base import Search, distribution, trial_state
from loopscale.studies.space import Axis, Choice
from loopscale.studies.spec import Study
from loopscale.training.cost import training_flops
from loopscale.training.trial import Trial

MAX_ATTEMPTS = 16
"""Number of known points in a row from the sampler after which the cell's space counts as exhausted."""


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


class Rungs:
    """The errors of one cell's trials at their rungs, rebuilt from records. The scheduler says which trials go on."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.errors = defaultdict[int, defaultdict[int, RungErrors]](lambda: defaultdict(RungErrors))
        """Bracket -> rung -> errors of its trials."""

    def add(self, number: int, steps: int, rung: int, error: float) -> None:
        self.errors[self.scheduler.bracket(number, steps)][rung].add(number, error)

    def survives(self, number: int, steps: int, rung: int) -> bool:
        """True if a trial whose error at `rung` was just added goes on."""
        return self.scheduler.survives(number, rung, self.errors[self.scheduler.bracket(number, steps)])


class CellRun:
    """The run of one cell: its search, its rungs, and its replicates.

    Records that do not fit the study as it is now are ignored.
    """

    def __init__(self, study: Study, cell: Cell, records: Iterable[Record]) -> None:
        self.study, self.cell = study, cell
        self.space = study.space(cell)
        self.rungs = Rungs(study.scheduler)
        self.jobs: dict[str, Job] = {}
        self.best: Job | None = None
        """The finished tuning trial with the lowest error. Of equal errors the first counts."""
        self.exhausted = False
        restored = [record for record in records if self._restore(record)]
        told = [record for record in restored if record.role == "tuning" and record.outcome in OVER]
        self.sampler = Sampler(self.space, study.search, study.points(cell), cell.key, told)
        tuning = [job for job in self.jobs.values() if job.role == "tuning"]
        self._asked = len(tuning)
        self._numbers = {job.number for job in tuning}
        self._next_number = self._unused_number(0)
        self._unfinished = {job.key for job in tuning if job.state != "over"}
        self._open = {job.key for job in self.jobs.values() if job.state != "over"}
        replicates = [job for job in self.jobs.values() if job.role == "replicate"]
        self._replicated = {_replicate_id(job.point, job.seed) for job in replicates}
        for position, job in enumerate(self.jobs.values()):
            job.position = position
            self._update_best(job)
            if job.key in self._unfinished:
                self.sampler.again(job.key, job.point, job.sampler_state)

    @property
    def planned(self) -> int:
        """Planned number of trials of the cell."""
        return self.sampler.size + self.study.replicates

    @property
    def is_over(self) -> bool:
        """True if every trial of the cell is over, and no trial is missing."""
        return not self._open and not self._wants_points and not self._missing_seeds()

    @property
    def answers(self) -> tuple[Job, ...]:
        """The trials that answer for the cell, as in the reports."""
        finished = [
            job for job in self.jobs.values() if job.outcome == "finished" and math.isfinite(job.error)
        ]
        finished.sort(key=lambda job: (job.number, job.seed or 0))
        replicates, tuned = (
            [job for job in finished if job.role == role] for role in ("replicate", "tuning")
        )
        return answering_runs(
            replicates,
            tuned,
            lambda job: repr(sorted(job.point.items())),
            lambda job: job.reported_error,
        )

    @property
    def _wants_points(self) -> bool:
        return bool(self.space) and self._asked < self.sampler.size and not self.exhausted

    def _missing_seeds(self) -> list[int]:
        """The seeds of the best point without a trial. Without a best point nothing is replicated."""
        if self.space and not self.best:
            return []
        point = self.best.point if self.best else {}
        seeds = range(1, self.study.replicates + 1)
        return [seed for seed in seeds if _replicate_id(point, seed) not in self._replicated]

    def new_job(self) -> Job | None:
        """A trial without a record: a new point or a replicate of the best point. None if the cell has to wait."""
        if self._wants_points and (job := self._ask_point()):
            return job
        if self.space and self._unfinished:
            return None  # the best point may still change
        point = self.best.point if self.best else {}
        for seed in self._missing_seeds():
            self._replicated.add(_replicate_id(point, seed))
            job = self._make_job(point, seed, "replicate", seed)
            if job.key not in self.jobs:
                return self._add(job)
        return None

    def state_changed(self, job: Job) -> None:
        for keys in (self._open, self._unfinished) if job.role == "tuning" else (self._open,):
            (keys.discard if job.state == "over" else keys.add)(job.key)

    def kept_keys(self) -> set[str]:
        """Trials whose weights are kept for good: the replicates and the best of the search."""
        best = {self.best.key} if self.best else set[str]()
        return best | {job.key for job in self.jobs.values() if job.role == "replicate"}

    def pass_rungs(self, job: Job, step: int, error: float) -> tuple[dict[int, float], bool]:
        """Add the error at all rungs that `step` reaches. Returns these rungs, and whether the trial survives."""
        if job.role != "tuning":
            return {}, True
        reached = [
            r for r in self.study.scheduler.ladder(job.number, job.steps) if r <= step and r not in job.rungs
        ]
        survives = True
        for rung in reached:
            job.rungs[rung] = error
            self.rungs.add(job.number, job.steps, rung, error)
            survives = survives and self.rungs.survives(job.number, job.steps, rung)
        return dict.fromkeys(reached, error), survives

    def tell(self, job: Job) -> None:
        """Tell the sampler the outcome of a tuning trial."""
        if job.role == "tuning":
            self.sampler.tell(job.key, job.outcome, job.error, job.rungs, job.flops)
            self._update_best(job)

    def _ask_point(self) -> Job | None:
        for attempt in range(MAX_ATTEMPTS):
            try:
                asked, point = self.sampler.ask(self._next_number, attempt)
            except Exhausted:
                break
            job = self._make_job(point, 0, "tuning", self._next_number)
            if job.key not in self.jobs:
                job.sampler_state = self.sampler.memory(asked)
                self.sampler.asked[job.key] = asked
                self._asked += 1
                self._numbers.add(job.number)
                self._next_number = self._unused_number(job.number)
                return self._add(job)
            self.sampler.drop(asked)
        self.exhausted = True
        return None

    def _unused_number(self, number: int) -> int:
        """The first number from `number` on that no trial has.

        There may be gaps: a driver died before the records had a trial, but had later trials. The sampler returns the
        same point for the same number, so the trial is the same and resumes from its checkpoint.
        """
        while number in self._numbers:
            number += 1
        return number

    def _add(self, job: Job) -> Job:
        assert isinstance(job.work, Trial)
        job.flops = training_flops(job.work)
        job.position = len(self.jobs)
        self.jobs[job.key] = job
        return job

    def _update_best(self, job: Job) -> None:
        better = self.best is None or (job.error, job.number) < (self.best.error, self.best.number)
        if job.role == "tuning" and job.outcome == "finished" and better:
            self.best = job

    def _make_job(self, point: dict[str, Any], seed: int, role: Role, number: int) -> Job:
        trial = self.study.at(self.cell, point, seed)
        return Job(trial, self.cell.key, self.cell.label, role, number, point)

    def _restore(self, record: Record) -> bool:
        """Restore the record's job if the record belongs to the cell as it is now. Returns whether it does."""
        if record.seed is None or record.role not in ("tuning", "replicate"):
            return False
        if not _contains(self.space, record.point):
            return False
        job = self._make_job(record.point, record.seed, record.role, record.number)
        if job.key != record.key:
            return False
        job.restore(record)
        assert isinstance(job.work, Trial)
        job.flops = record.metrics.get("flops") or training_flops(job.work)
        self.jobs[job.key] = job
        if job.role == "tuning":
            for rung, error in job.rungs.items():
                self.rungs.add(job.number, job.steps, rung, error)
        return True


def _replicate_id(point: Mapping[str, Any], seed: int | None) -> tuple[str, int | None]:
    """Hashable identity of a replicate. The text of a point distinguishes True from 1, as a study does."""
    return repr(sorted(point.items())), seed


def _contains(space: Mapping[str, Axis], point: Mapping[str, Any]) -> bool:
    """Whether the point lies in the space. Ranges may have been narrowed since the point was recorded."""
    return set(point) == set(space) and all(
        value in space[path].ends
        if isinstance(space[path], Choice)
        else space[path].ends[0] <= value <= space[path].ends[-1]
        for path, value in point.items()
    )
