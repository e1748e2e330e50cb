"""The jobs of a study: those of each cell, the baselines, and the queue that chooses the next job."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from loopscale.records.model import OVER, Record, Role
from loopscale.runner.decide.job import Job
from loopscale.runner.decide.rungs import Rungs
from loopscale.runner.decide.search import Exhausted, Sampler
from loopscale.runner.messages import Baseline
from loopscale.studies.cells import Cell
from loopscale.studies.space import Axis, Choice
from loopscale.studies.spec import Study
from loopscale.training.cost import training_flops
from loopscale.training.trial import Trial

MAX_ATTEMPTS = 16
"""Number of known points in a row from the sampler after which the cell's space counts as exhausted."""


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
        replicates = [job for job in self.jobs.values() if job.role == "replicate"]
        self._replicated = {_replicate_id(job.point, job.seed) for job in replicates}
        for position, job in enumerate(self.jobs.values()):
            job.position = position
            self._update_best(job)
            if job.key in self._unfinished:
                self.sampler.again(job.key, job.point, job.memory)

    @property
    def planned(self) -> int:
        """Planned number of trials of the cell."""
        return self.sampler.size + self.study.replicates

    def new_job(self) -> Job | None:
        """A trial without a record: a new point or a replicate of the best point. None if the cell has to wait."""
        wants_points = bool(self.space) and self._asked < self.sampler.size and not self.exhausted
        if wants_points and (job := self._ask_point()):
            return job
        if self.space and (self._unfinished or not self.best):
            return None  # the best point may still change, or there is none
        point = self.best.point if self.best else {}
        for seed in range(1, self.study.replicates + 1):
            if (replicate := _replicate_id(point, seed)) in self._replicated:
                continue
            self._replicated.add(replicate)
            job = self._make_job(point, seed, "replicate", seed)
            if job.key not in self.jobs:
                return self._add(job)
        return None

    def state_changed(self, job: Job) -> None:
        if job.role == "tuning":
            (self._unfinished.discard if job.state == "over" else self._unfinished.add)(job.key)

    def kept_keys(self) -> set[str]:
        """Trials whose weights are kept for good: the replicates and the best of the search."""
        best = {self.best.key} if self.best else set[str]()
        return best | {job.key for job in self.jobs.values() if job.role == "replicate"}

    def pass_rungs(self, job: Job, step: int, error: float) -> tuple[dict[int, float], bool]:
        """Add the error at all rungs that `step` reaches. Returns these rungs, and whether the trial survives."""
        if job.role != "tuning":
            return {}, True
        reached = [r for r in self.rungs.ladder(job.number, job.steps) if r <= step and r not in job.rungs]
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


class Baselines:
    """Classical algorithms beside the nets: one job for each solver on each distinct task of the study."""

    def __init__(self, study: Study, records: Iterable[Record]) -> None:
        recorded = {record.key: record for record in records}
        self.jobs: dict[str, Job] = {}
        for cell in study.cells():
            task = study.tasks()[cell.key]
            for solver in study.baselines_for(cell):
                work = Baseline(task=task, solver=solver)
                if work.key not in self.jobs:
                    job = Job(work, "", solver.kind, "baseline", len(self.jobs), {}, order_kind="baseline")
                    if work.key in recorded:
                        job.restore(recorded[work.key])
                    job.position = len(self.jobs)
                    self.jobs[work.key] = job


Entry = tuple[int, int, Job]
"""Number of the job's cell (-1 for baselines), position of the job in the cell, and the job."""


class JobQueue:
    """Chooses the next job without a look at all jobs, because a study may have 10,000 trials and more.

    The queue consists of three heaps in the order of the study's jobs. Entries are only removed at the top, where
    entries that no longer hold are skipped. `outdated` says whether a job that is over must be evaluated again. A job
    that is not outdated never becomes outdated.
    """

    def __init__(
        self, baselines: Iterable[Job], cells: Sequence[CellRun], outdated: Callable[[Job], bool]
    ) -> None:
        self.cells, self._outdated = cells, outdated
        self._cell_numbers = {cell_run.cell.key: number for number, cell_run in enumerate(cells)}
        self._waiting_heap: list[Entry] = []
        self._outdated_heap: list[Entry] = []
        self._cell_heap = [(len(cell_run.jobs), number) for number, cell_run in enumerate(cells)]
        """Cells that may have a new job, ordered by the number of jobs."""
        heapq.heapify(self._cell_heap)
        self._in_cell_heap = set(range(len(cells)))
        for job in [*baselines, *(job for cell_run in cells for job in cell_run.jobs.values())]:
            self.state_changed(job)

    def state_changed(self, job: Job) -> None:
        """Must be called after each change of the job's state."""
        number = self._cell_numbers.get(job.cell, -1)
        if job.state == "waiting":
            heapq.heappush(self._waiting_heap, (number, job.position, job))
        elif job.state == "over" and self._outdated(job):
            heapq.heappush(self._outdated_heap, (number, job.position, job))
        if number < 0:
            return
        cell_run = self.cells[number]
        cell_run.state_changed(job)
        if job.state == "over" and number not in self._in_cell_heap:
            self._in_cell_heap.add(number)
            heapq.heappush(self._cell_heap, (len(cell_run.jobs), number))

    def next(self) -> Job | None:
        """The first waiting job, else a new job of the cell with the fewest jobs, else the first outdated job.

        The caller changes the job's state and calls `state_changed`.
        """
        return (
            _first(self._waiting_heap, lambda job: job.state == "waiting")
            or self._new_job()
            or _first(self._outdated_heap, self._outdated)
        )

    def _new_job(self) -> Job | None:
        """A new job. A cell without a new job leaves the heap until one of its trials ends."""
        while self._cell_heap:
            number = self._cell_heap[0][1]
            if job := self.cells[number].new_job():
                self.state_changed(job)
                heapq.heapreplace(self._cell_heap, (len(self.cells[number].jobs), number))
                return job
            heapq.heappop(self._cell_heap)
            self._in_cell_heap.discard(number)
        return None


def _first(heap: list[Entry], valid: Callable[[Job], bool]) -> Job | None:
    """The first valid job, which stays in the heap. Invalid entries before the job are removed."""
    while heap:
        if valid(heap[0][2]):
            return heap[0][2]
        heapq.heappop(heap)
    return None
