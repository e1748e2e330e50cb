"""The run of one cell: the points of its search, its rungs, and its replicates."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from loopscale.notation.space import MOST_LISTED, held_point
from loopscale.records.model import STOPPED_BY, Record, Role
from loopscale.records.study_records import answering_runs, geometric_mean
from loopscale.runner.decide.job import Job
from loopscale.runner.decide.sampler import MAX_ATTEMPTS, Exhausted, Sampler, TriedPoint
from loopscale.studies.cells import Cell
from loopscale.studies.schedulers.base import RungErrors, Scheduler
from loopscale.studies.spec import Study
from loopscale.training.cost import training_flops
from loopscale.training.trial import Trial


def point_id(point: Mapping[str, Any]) -> str:
    """Identity of a point. The text distinguishes True from 1, as a study does."""
    return repr(sorted(point.items()))


@dataclass(slots=True)
class TunedPoint:
    """A point and its trials. The seeds train one after the other.

    A trial that is pruned or diverges therefore ends its point, and saves the later seeds.
    """

    number: int
    point: dict[str, Any]
    seeds: Sequence[int]
    jobs: dict[int, Job] = field(default_factory=dict[int, Job])
    """The trials so far, by seed."""

    @property
    def id(self) -> str:
        return point_id(self.point)

    @property
    def first(self) -> Job:
        """The trial with the first seed that has a trial."""
        return next(self.jobs[seed] for seed in self.seeds if seed in self.jobs)

    @property
    def next_seed(self) -> int | None:
        """The seed to train next. None if a trial has not ended or ends the point, or if every seed has a trial."""
        for seed in self.seeds:
            if seed not in self.jobs:
                return seed
            if self.jobs[seed].state != "over" or self.jobs[seed].outcome != "finished":
                return None
        return None

    @property
    def outcome(self) -> str:
        """The outcome of the trial that ended the point; empty while the point is under way."""
        for seed in self.seeds:
            job = self.jobs.get(seed)
            if job is None or job.state != "over":
                return ""
            if job.outcome != "finished":
                return job.outcome
        return "finished"

    @property
    def unstarted(self) -> int:
        """Number of seeds that are never trained, because the point has ended before them."""
        return len(self.seeds) - len(self.jobs) if self.outcome else 0

    @property
    def error(self) -> float:
        """The value of the point: the geometric mean of the errors, so the mean of the log errors."""
        return geometric_mean([self.jobs[seed].error for seed in self.seeds if seed in self.jobs])

    def place(self, seed: int | None) -> int:
        """The number of seeds that train before this seed."""
        return self.seeds.index(seed) if seed is not None else 0

    def rung_error(self, place: int, rung: int) -> float:
        """The geometric mean of the errors at a rung, over the seeds up to the one at `place`."""
        jobs = [self.jobs[seed] for seed in self.seeds[: place + 1] if seed in self.jobs]
        return geometric_mean([job.rungs[rung] for job in jobs if rung in job.rungs])

    @property
    def rungs(self) -> list[tuple[int, int, float]]:
        """Place of the seed, rung and error at every rung that the point has passed."""
        return [
            (self.place(seed), rung, self.rung_error(self.place(seed), rung))
            for seed, job in self.jobs.items()
            for rung in job.rungs
        ]

    @property
    def progress(self) -> dict[int, float]:
        """The error at every rung by the point's steps so far: later seeds come after the steps of earlier seeds."""
        return {place * self.first.steps + rung: error for place, rung, error in self.rungs}


class Rungs:
    """The errors of one cell's points at their rungs, rebuilt from records. The scheduler says which trials go on.

    A point is compared with points of as many seeds. `place` is the number of seeds that the point has finished.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.errors = defaultdict[tuple[int, int], defaultdict[int, RungErrors]](
            lambda: defaultdict(RungErrors)
        )
        """(place, bracket) -> rung -> errors of its points."""

    def add(self, number: int, steps: int, rung: int, error: float, place: int = 0) -> None:
        self.errors[place, self.scheduler.bracket(number, steps)][rung].add(number, error)

    def survives(self, number: int, steps: int, rung: int, place: int = 0) -> bool:
        """True if a point whose error at `rung` was just added goes on."""
        errors = self.errors[place, self.scheduler.bracket(number, steps)]
        return self.scheduler.survives(number, rung, errors)


class CellRun:
    """The run of one cell: its search, its rungs, and its replicates.

    Records that do not fit the study as it is now are ignored.
    """

    def __init__(
        self, study: Study, cell: Cell, records: Iterable[Record], stopped: Collection[str] = ()
    ) -> None:
        """Restore the cell. `stopped` are the keys of the trials that somebody has stopped."""
        self.study, self.cell, self._stopped = study, cell, stopped
        self._make_work = partial(study.at, cell)
        self.replicates = study.replicates
        """The ordered replicates of the best point. `until.StudyLooks` may order more."""
        self.steps_factor = 1
        """The steps of the ordered replicates over the steps of the study. Only replicates of this factor answer."""
        self.in_reserve = False
        """True if no look has ordered the cell yet, see `until.values`. The cell then has no new trial."""
        self.space = study.space(cell)
        self._seeds = study.search.tuning_seeds
        self.rungs = Rungs(study.scheduler)
        self.jobs: dict[str, Job] = {}
        self.points: dict[str, TunedPoint] = {}
        """The tuned points by identity, in the order of their numbers."""
        self._best: TunedPoint | None = None
        self.exhausted = False
        self.outside: set[str] = set()
        """Keys of the earlier trials whose point lies outside the ranges. Their records stay, and do not count."""
        self.impossible: dict[str, str] = {}
        """Points that the search has proposed and that are no valid trial, and why."""
        for record in records:
            self._restore(record)
        points = list(self.points.values())
        told = [self._tried(point) for point in points if point.outcome]
        self.sampler = Sampler(
            self.space,
            study.search,
            study.points(cell),
            cell.key,
            told,
            study.known_points(cell),
            self._may_train,
        )
        self._numbers = {point.number for point in points}
        self._next_number = self._unused_number(0)
        self._unfinished = {point.id for point in points if not point.outcome}
        self._due = {point.id for point in points if point.next_seed is not None}
        """Points whose next seed can be trained."""
        self._open = {job.key for job in self.jobs.values() if job.state != "over"}
        replicates = [job for job in self.jobs.values() if job.role == "replicate"]
        self._replicated = {_replicate_id(job.point, job.seed, job.steps_factor) for job in replicates}
        for position, job in enumerate(self.jobs.values()):
            job.position = position
        for point in points:
            self._update_best(point)
            for place, rung, error in point.rungs:
                self.rungs.add(point.number, point.first.steps, rung, error, place)
            if not point.outcome:
                self.sampler.again(point.id, point.point, point.first.sampler_state)

    @property
    def best(self) -> Job | None:
        """The first trial of the point with the lowest error. Of equal errors the first counts."""
        return self._best.first if self._best else None

    @property
    def tuning_trials(self) -> int:
        """Planned number of tuning trials, without the seeds that ended points leave out."""
        if self.good_enough:
            return sum(len(self._seeds) - point.unstarted for point in self.points.values())
        if len(self._seeds) == 1:
            return self.sampler.size
        return self.sampler.size * len(self._seeds) - sum(point.unstarted for point in self.points.values())

    @property
    def planned(self) -> int:
        """Planned number of trials of the cell. A cell in reserve has the trials of earlier runs only."""
        if self.in_reserve:
            return len(self.jobs)
        return self.tuning_trials + self._shorter_replicates + self.replicates

    @property
    def _shorter_replicates(self) -> int:
        """Number of the replicates with fewer steps than the ordered ones."""
        if self.steps_factor == 1:
            return 0
        jobs = self.jobs.values()
        return sum(job.role == "replicate" and job.steps_factor < self.steps_factor for job in jobs)

    @cached_property
    def unpruned_flops(self) -> float:
        """FLOPs of a whole trial of the cell."""
        return training_flops(self.study.layout.trials[self.cell.key])

    @property
    def is_over(self) -> bool:
        """True if every trial of the cell is over, and no trial is missing."""
        if self.in_reserve:
            return not self._open
        return not (self._open or self._due or self._wants_points or self._missing_seeds())

    @property
    def answers(self) -> tuple[Job, ...]:
        """The trials that answer for the cell, as in the reports."""
        finished = [
            job for job in self.jobs.values() if job.outcome == "finished" and math.isfinite(job.error)
        ]
        finished.sort(key=lambda job: (job.number, job.seed or 0))
        replicates = [
            job for job in finished if job.role == "replicate" and job.steps_factor == self.steps_factor
        ]
        tuned = [job for job in finished if job.role == "tuning" and job.steps_factor == self.steps_factor]
        return answering_runs(
            replicates,
            tuned,
            lambda job: point_id(job.point),
            lambda job: job.reported_error,
        )

    @property
    def replicate_jobs(self) -> list[Job]:
        """The replicates of the best point with the ordered steps."""
        point = self.best.point if self.best else {}
        replicates = (job for job in self.jobs.values() if job.role == "replicate" and job.point == point)
        return [job for job in replicates if job.steps_factor == self.steps_factor]

    @property
    def good_enough(self) -> bool:
        """True if `stop.error_below` ends the search of the cell before its last point."""
        threshold = self.study.stop.error_below
        reached = threshold is not None and self._best is not None and self._best.error < threshold
        return reached and len(self.points) < self.sampler.size

    @property
    def _wants_points(self) -> bool:
        wants = bool(self.space) and len(self.points) < self.sampler.size and not self.exhausted
        return wants and not self.good_enough

    def _missing_seeds(self) -> list[int]:
        """The seeds of the best point without a trial. Without a best point nothing is replicated."""
        if self.space and not self.best:
            return []
        point = self.best.point if self.best else {}
        seeds = range(1, self.replicates + 1)
        factor = self.steps_factor
        return [seed for seed in seeds if _replicate_id(point, seed, factor) not in self._replicated]

    def order(self, replicates: int, steps_factor: int = 1) -> None:
        """Order replicates of the best point. Longer trainings start with the study's number of replicates.

        A cell leaves the reserve, so its search comes first.
        """
        self.in_reserve = False
        if steps_factor > self.steps_factor:
            self.steps_factor, self.replicates = steps_factor, self.study.replicates
        if steps_factor == self.steps_factor:
            self.replicates = max(self.replicates, replicates)

    def new_job(self) -> Job | None:
        """A trial without a record. None if the cell has to wait.

        The trial is the next seed of a point, a new point, or a replicate of the best point.
        """
        if self.in_reserve:
            return None
        if self._due:
            return self._train_next_seed(min(map(self.points.__getitem__, self._due), key=_by_number))
        if self._wants_points and (job := self._ask_point()):
            return job
        if self.space and self._unfinished:
            return None  # the best point may still change
        point = self.best.point if self.best else {}
        for seed in self._missing_seeds():
            self._replicated.add(_replicate_id(point, seed, self.steps_factor))
            job = self._make_job(point, seed, "replicate", seed, self.steps_factor)
            if job.key not in self.jobs:
                return self._add(job)
        return None

    def state_changed(self, job: Job) -> None:
        (self._open.discard if job.state == "over" else self._open.add)(job.key)
        if job.role == "tuning":
            point = self.points[point_id(job.point)]
            (self._unfinished.discard if point.outcome else self._unfinished.add)(point.id)
            (self._due.discard if point.next_seed is None else self._due.add)(point.id)

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
        point = self.points[point_id(job.point)]
        place, survives = point.place(job.seed), True
        for rung in reached:
            job.rungs[rung] = error
            self.rungs.add(job.number, job.steps, rung, point.rung_error(place, rung), place)
            survives = survives and self.rungs.survives(job.number, job.steps, rung, place)
        return dict.fromkeys(reached, error), survives

    def tell(self, job: Job) -> None:
        """Tell the sampler the outcome of a point that the trial has ended."""
        if job.role == "tuning" and (point := self.points[point_id(job.point)]).outcome:
            self.sampler.tell(point.id, self._tried(point))
            self._update_best(point)

    def _may_train(self, point: Mapping[str, Any]) -> bool:
        """True if the point satisfies the study's condition and is a valid trial. The search rejects other points."""
        if not self.study.feasible(self.cell, point):
            return False
        if reason := self.study.impossible(self.cell, point):
            self.impossible[", ".join(f"{path}={value}" for path, value in point.items())] = reason
        return not reason

    def _ask_point(self) -> Job | None:
        for attempt in range(MAX_ATTEMPTS + MOST_LISTED):  # every proposal leaves one point fewer
            try:
                asked, point = self.sampler.ask(self._next_number, attempt)
            except Exhausted:
                break
            job = self._make_job(point, self._seeds[0], "tuning", self._next_number)
            if job.key not in self.jobs:
                job.sampler_state = self.sampler.memory(asked)
                self.sampler.asked[self._add_to_point(job).id] = asked
                self._numbers.add(job.number)
                self._next_number = self._unused_number(job.number)
                return self._add(job)
            self.sampler.drop(asked)
        self.exhausted = True
        return None

    def _train_next_seed(self, point: TunedPoint) -> Job:
        assert point.next_seed is not None
        self._due.discard(point.id)
        job = self._make_job(point.point, point.next_seed, "tuning", point.number)
        if point.jobs:
            job.sampler_state = point.first.sampler_state
        self._add_to_point(job)
        return self._add(job)

    def _add_to_point(self, job: Job) -> TunedPoint:
        assert job.seed is not None
        point = TunedPoint(job.number, job.point, self._seeds)
        point = self.points.setdefault(point.id, point)
        point.jobs[job.seed] = job
        return point

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

    def _update_best(self, point: TunedPoint) -> None:
        best = self._best
        better = best is None or (point.error, point.number) < (best.error, best.number)
        if point.outcome == "finished" and better:
            self._best = point

    def _tried(self, point: TunedPoint) -> TriedPoint:
        """The point in the sampler's terms."""
        first = point.first
        return TriedPoint(
            point.point, point.outcome, point.error, point.progress, first.flops, first.sampler_state
        )

    def _make_job(
        self, point: dict[str, Any], seed: int, role: Role, number: int, steps_factor: int = 1
    ) -> Job:
        cell, make = self.cell, self._make_work
        work = make(point, seed, steps_factor)
        return Job(work, cell.key, cell.label, role, number, point, steps_factor, make_work=make)

    def _still_stopped(self, record: Record) -> bool:
        """False if the user has withdrawn the stop of the trial, or has raised its hours."""
        if record.tags.get(STOPPED_BY) == "user":
            return record.key in self._stopped
        return self.study.stop.exceeds_hours(record.metrics)

    def _restore(self, record: Record) -> None:
        """Restore the record's job if the record belongs to the cell as it is now."""
        if record.seed is None or record.role not in ("tuning", "replicate"):
            return
        if record.role == "tuning" and record.seed not in self._seeds:
            return  # the study has lowered the number of seeds
        point = held_point(self.space, record.point)
        if point is None or not self.study.feasible(self.cell, point):
            self.outside.add(record.key)
            return
        try:
            job = self._make_job(point, record.seed, record.role, record.number, record.steps_factor)
        except ValueError:  # an earlier range or version had this point
            self.outside.add(record.key)
            return
        if job.key != record.key:
            return
        job.restore(record, self.study.resources)
        if job.outcome == "stopped" and not self._still_stopped(record):
            job.outcome, job.state, job.stopped_by = "", "waiting", ""
        assert isinstance(job.work, Trial)
        job.flops = record.metrics.get("flops") or training_flops(job.work)
        if job.state == "over":
            job.forget_work()
        self.jobs[job.key] = job
        if job.role == "tuning":
            self._add_to_point(job)


def _replicate_id(
    point: Mapping[str, Any], seed: int | None, steps_factor: int
) -> tuple[str, int | None, int]:
    """Hashable identity of a replicate."""
    return point_id(point), seed, steps_factor


def _by_number(point: TunedPoint) -> int:
    return point.number
