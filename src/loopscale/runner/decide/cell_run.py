"""One cell at work, and the baselines: which trial of theirs nobody has begun yet."""

from collections.abc import Iterable, Mapping
from typing import Any

from loopscale.records.model.note import OVER, Record
from loopscale.runner.baseline import Baseline
from loopscale.runner.decide.job import Job
from loopscale.runner.decide.rungs import Rungs
from loopscale.runner.decide.search import Exhausted, Sampler
from loopscale.studies.cells import Cell
from loopscale.studies.space import Axis, Choice
from loopscale.studies.spec import Study
from loopscale.training.cost import training_flops
from loopscale.training.trial import Trial

ATTEMPTS = 16
"""How often a point that the cell has had already is asked for again before the cell counts as exhausted."""


class CellRun:
    """One cell at work: its points, its rungs, its replicates."""

    def __init__(self, study: Study, cell: Cell, records: Iterable[Record]) -> None:
        self.study, self.cell = study, cell
        self.space = study.space(cell)
        self.rungs = Rungs(study.scheduler)
        self.jobs: dict[str, Job] = {}
        self.best: Job | None = None
        """The best point so far. Ties go to the one that came first."""
        self.exhausted = False
        found = [record for record in records if self._adopt(record)]
        done = [record for record in found if record.role == "tuning" and record.outcome in OVER]
        self.sampler = Sampler(self.space, study.search, study.points(cell), cell.key, done)
        tuning = [job for job in self.jobs.values() if job.role == "tuning"]
        self._asked = len(tuning)
        self._numbers = {job.number for job in tuning}
        self._number = self._unused(0)
        self._under_way = {job.key for job in tuning if job.state != "over"}
        replicates = [job for job in self.jobs.values() if job.role == "replicate"]
        self._replicated = {_replicate(job.point, job.seed) for job in replicates}
        for place, job in enumerate(self.jobs.values()):
            job.place = place
            self._compare(job)
            if job.key in self._under_way:
                self.sampler.again(job.key, job.point, job.memory)

    @property
    def replicates(self) -> list[Job]:
        """The replicates of the best point; those of a point that has been overtaken stay recorded and are no more."""
        point = self.best.point if self.best else {}
        return [job for job in self.jobs.values() if job.role == "replicate" and job.point == point]

    @property
    def planned(self) -> int:
        """How many trials the cell is to have in the end."""
        return self.sampler.size + self.study.replicates

    @property
    def searching(self) -> bool:
        """Whether the cell's best point is still open."""
        if not self.space:
            return False
        return self._more or bool(self._under_way)

    @property
    def _more(self) -> bool:
        return bool(self.space) and self._asked < self.sampler.size and not self.exhausted

    def fresh(self) -> Job | None:
        """A trial that nobody has started yet, if the cell has one now."""
        if self._more and (job := self._explore()):
            return job
        if self.searching or (self.space and not self.best):
            return None
        point = self.best.point if self.best else {}
        for seed in range(1, self.study.replicates + 1):
            if (known := _replicate(point, seed)) in self._replicated:
                continue
            self._replicated.add(known)
            job = self._job(point, seed, "replicate", seed)
            if job.key not in self.jobs:
                return self._begun(job)
        return None

    def turned(self, job: Job) -> None:
        """Take notice of the job's state."""
        if job.role == "tuning":
            (self._under_way.discard if job.state == "over" else self._under_way.add)(job.key)

    def keepers(self) -> set[str]:
        """The trials whose weights are kept for good: the replicates, and the best of the search."""
        best = {self.best.key} if self.best else set()
        return best | {job.key for job in self.jobs.values() if job.role == "replicate"}

    def climb(self, job: Job, step: int, error: float) -> tuple[dict[int, float], bool]:
        """The rungs that this step reaches, and whether the trial survives them all."""
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
        if job.role == "tuning":
            self.sampler.tell(job.key, job.outcome, job.error, job.rungs, job.flops)
            self._compare(job)

    def _explore(self) -> Job | None:
        for attempt in range(ATTEMPTS):
            try:
                asked, point = self.sampler.ask(self._number, attempt)
            except Exhausted:
                break
            job = self._job(point, 0, "tuning", self._number)
            if job.key not in self.jobs:
                job.memory = self.sampler.memory(asked)
                self.sampler.asked[job.key] = asked
                self._asked += 1
                self._numbers.add(job.number)
                self._number = self._unused(job.number)
                return self._begun(job)
            self.sampler.drop(asked)
        self.exhausted = True
        return None

    def _unused(self, number: int) -> int:
        """The first number from this one on that no trial has.

        There are gaps where a trial was trained that the records have not heard of when its driver died, and had
        of later ones: asked for by its number it is the same trial, and goes on from its checkpoint.
        """
        while number in self._numbers:
            number += 1
        return number

    def _begun(self, job: Job) -> Job:
        assert isinstance(job.work, Trial)
        job.flops = training_flops(job.work)
        job.place = len(self.jobs)
        self.jobs[job.key] = job
        return job

    def _compare(self, job: Job) -> None:
        better = self.best is None or (job.error, job.number) < (self.best.error, self.best.number)
        if job.role == "tuning" and job.outcome == "finished" and better:
            self.best = job

    def _job(self, point: dict[str, Any], seed: int, role: str, number: int) -> Job:
        trial = self.study.at(self.cell, point, seed)
        return Job(trial, self.cell.key, self.cell.label, role, number, point)  # pyright: ignore[reportArgumentType]

    def _adopt(self, record: Record) -> bool:
        """Whether the record is of this cell as the study now has it; if so, take it over."""
        if record.seed is None or not _within(self.space, record.point):
            return False
        job = self._job(record.point, record.seed, record.role, record.number)
        if job.key != record.key:
            return False
        job.adopt(record)
        assert isinstance(job.work, Trial)
        job.flops = record.metrics.get("flops") or training_flops(job.work)
        self.jobs[job.key] = job
        if job.role == "tuning":
            for rung, error in job.rungs.items():
                self.rungs.add(job.number, job.steps, rung, error)
        return True


def _replicate(point: Mapping[str, Any], seed: int | None) -> tuple[str, int | None]:
    """A replicate as something to look up. The text of a point tells True from 1, as a study does."""
    return repr(sorted(point.items())), seed


def _within(space: Mapping[str, Axis], point: Mapping[str, Any]) -> bool:
    """Whether a point could have been asked of the space: ranges may have been narrowed since it was recorded."""
    return set(point) == set(space) and all(
        value in space[path].ends
        if isinstance(space[path], Choice)
        else space[path].ends[0] <= value <= space[path].ends[-1]
        for path, value in point.items()
    )


class Baselines:
    """The classical algorithms beside the nets: one job for every solver on every distinct task of the study."""

    def __init__(self, study: Study, records: Iterable[Record]) -> None:
        found = {record.key: record for record in records}
        self.jobs: dict[str, Job] = {}
        for cell in study.cells():
            task = study.tasks()[cell.key]
            for solver in study.baselines_for(cell):
                work = Baseline(task=task, solver=solver)
                if work.key not in self.jobs:
                    job = Job(work, "", solver.kind, "baseline", len(self.jobs), {}, order="baseline")
                    if work.key in found:
                        job.adopt(found[work.key])
                    job.place = len(self.jobs)
                    self.jobs[work.key] = job
