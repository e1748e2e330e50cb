"""A study in simulated time, with the real conductor, search and rungs, and workers that replay learning curves.

A heap of events stands for the cluster. The conductor knows neither Ray nor the time, so no part of it is replaced.
Reports that reach no rung are left out, because they change no decision. Evaluation and baselines take no time.
"""

import heapq
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from loopscale.records.decisions import Decision, recorded_decisions
from loopscale.records.model import CURVE, STUDY, Note, Record, Run
from loopscale.records.predictions import RecordedPrediction, recorded_predictions
from loopscale.records.study_records import as_records
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job, Report
from loopscale.runner.decide.services import DriverServices
from loopscale.runner.simulation.curves import LearningCurves
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial

MAX_LOST_NOTES = 50
"""Largest number of queued notes that are lost with a driver."""


@dataclass
class MemoryRecords:
    """Records in memory: a receiver of notes, and the records that a new driver would read."""

    notes: list[Note] = field(default_factory=list)
    backlog: int = 0
    away_since: float | None = None
    delivered: int = 0
    """The number of notes that no death of a driver can lose."""

    def write(self, note: Note) -> None:
        self.notes.append(note)

    def flush(self, timeout: float) -> bool:
        self.delivered = len(self.notes)
        return True

    def lose_last(self, count: int) -> None:
        """Forget the last notes, as a driver that dies with a full queue does."""
        del self.notes[max(self.delivered, len(self.notes) - count) :]

    def predictions(self) -> dict[str, RecordedPrediction]:
        """The recorded predictions, by tag."""
        return recorded_predictions(self._study_tags())

    def decisions(self) -> tuple[Decision, ...]:
        """The recorded decisions of `until: decided`."""
        return recorded_decisions(self._study_tags())

    def curve(self, key: str) -> bytes | None:
        """The recorded curve of a trial."""
        curves = [
            content
            for note in self.notes
            if note.key == key
            for path, content in note.artifacts
            if path == CURVE and isinstance(content, bytes)
        ]
        return curves[-1] if curves else None

    def resumed(self, study: Study) -> Conductor:
        """A driver that knows the records only."""
        services = DriverServices(read_curve=self.curve)
        return Conductor(study, self.records(), self, None, self._study_tags(), services)

    def _study_tags(self) -> dict[str, str]:
        return {name: text for note in self.notes if note.key == STUDY for name, text in note.tags.items()}

    def records(self) -> list[Record]:
        runs: dict[str, Run] = {}
        for note in self.notes:
            run = runs.setdefault(note.key, Run(note.key, "RUNNING", 0, 0, {"trial": note.key}))
            run.metrics |= note.metrics
            run.tags |= note.tags
            run.status = note.status or run.status
        return list(as_records(runs.values()))


@dataclass(frozen=True)
class SimulatedCluster:
    """A simulated cluster and its faults."""

    slots: int
    """Number of trials at a time."""
    start_up: float = 10.0
    """Seconds until a trial trains."""
    faults: float = 0.0
    """Deaths of a worker per hour."""
    kills: int = 0
    """Number of deaths of the driver, at random moments. Each new driver is rebuilt from the records."""
    seed: int = 0


class FinalErrors(Protocol):
    """The evaluations of simulated trials and algorithms."""

    def report(self, job: Job, report: Report) -> Report:
        """Add the evaluation of a finished job to its report."""
        ...


@dataclass
class Attempt:
    """A job on a simulated worker, from step `start` on."""

    job: Job
    began: float
    start: int
    report_steps: Iterator[int]
    """Steps of the reports that may change a decision."""
    dies: float = math.inf
    """Time of the worker's death."""


@dataclass
class Simulation:
    """A study on a simulated cluster. Call `run` once."""

    study: Study
    curves: LearningCurves
    cluster: SimulatedCluster
    records: MemoryRecords = field(default_factory=MemoryRecords)
    errors: "FinalErrors | None" = None
    """Evaluates finished trials; None for no evaluation."""
    busy: list[tuple[float, float]] = field(default_factory=list)
    """Start and end of each use of a slot, in seconds."""
    now: float = 0.0
    """Seconds since the start."""
    events: int = 0
    workers_lost: int = 0
    drivers_killed: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.cluster.seed)
        self._saved_steps: dict[str, int] = defaultdict(int)
        self._events: list[tuple[float, int, Literal["report", "death"], int, Attempt]] = []
        self._counter = itertools.count()
        self._active: dict[str, Attempt] = {}
        self.conductor = Conductor(self.study, [], self.records)

    def run(self, expected_events: int = 0) -> Conductor:
        """Run the study to its end. The kills are spread over the number of events of the study without kills."""
        kills = sorted(
            (self._random.randint(1, max(expected_events, 1)) for _ in range(self.cluster.kills)),
            reverse=True,
        )
        self._fill_slots()
        while self._active:
            self.events += 1
            if kills and self.events >= kills[-1]:
                kills.pop()
                self._kill_driver()
                continue
            self.now, _, kind, step, attempt = heapq.heappop(self._events)
            if kind == "death":
                self._lose_worker(attempt)
            else:
                self._take_report(attempt, step)
            self._fill_slots()
        return self.conductor

    def _fill_slots(self) -> None:
        while len(self._active) < self.cluster.slots and isinstance(job := self.conductor.start_next(), Job):
            self._start(job)

    def _start(self, job: Job) -> None:
        start = self._saved_steps[job.key]
        attempt = Attempt(job, self.now, start, self._report_steps(job, start))
        self._active[job.key] = attempt
        if job.order_kind != "train":
            self._push(self.now, "report", 0, attempt)
            return
        if self.cluster.faults:
            attempt.dies = self.now + self._random.expovariate(self.cluster.faults / 3600)
        # A worker first repeats the history of its checkpoint, because the last driver may not have recorded it.
        history = [step for step in self._report_steps(job, 0) if step <= start]
        if history and not self._report(attempt, history):
            return
        self._schedule_next(attempt)

    def _report_steps(self, job: Job, after: int) -> Iterator[int]:
        """Steps of the first report at or beyond each rung, and of the last report."""
        if not job.steps:
            return iter(())
        assert isinstance(job.work, Trial)
        interval = job.work.training.eval_every
        steps = {job.steps}
        if job.role == "tuning":
            rungs = self.study.scheduler.ladder(job.number, job.steps)
            steps |= {min(math.ceil(rung / interval) * interval, job.steps) for rung in rungs}
        return iter(sorted(step for step in steps if step > after))

    def _schedule_next(self, attempt: Attempt) -> None:
        curve = self.curves.curve(attempt.job)
        step = next(attempt.report_steps, attempt.job.steps)
        if curve.outcome != "finished":
            step = min(step, math.ceil(curve.end * attempt.job.steps))
        at = attempt.began + self.cluster.start_up + max(0, step - attempt.start) * curve.seconds
        if at > attempt.dies:
            self._push(attempt.dies, "death", 0, attempt)
        else:
            self._push(at, "report", step, attempt)

    def _push(self, at: float, kind: Literal["report", "death"], step: int, attempt: Attempt) -> None:
        heapq.heappush(self._events, (max(at, self.now), next(self._counter), kind, step, attempt))

    def _take_report(self, attempt: Attempt, step: int) -> None:
        job = attempt.job
        if job.order_kind != "train":
            self._leave(attempt)
            self.conductor.report(job.key, self._evaluated(job))
            return
        curve = self.curves.curve(job)
        self._saved_steps[job.key] = max(step, self._saved_steps[job.key])
        if curve.outcome != "finished" and step >= math.ceil(curve.end * job.steps):
            self._leave(attempt)
            self.conductor.report(job.key, Report(outcome=curve.outcome, detail="as in the records"))
        elif self._report(attempt, [step]):
            self._schedule_next(attempt)

    def _report(self, attempt: Attempt, steps: list[int]) -> bool:
        """Report the errors at the steps. Returns whether the job goes on. At its last step it has finished."""
        job, curve = attempt.job, self.curves.curve(attempt.job)
        progress = tuple((step, {"error": curve.error(step / job.steps)}) for step in steps)
        outcome = "finished" if steps[-1] >= job.steps else ""
        report = replace(self._evaluated(job), progress=progress) if outcome else Report(progress)
        goes_on = self.conductor.report(job.key, report)
        if not goes_on:
            self._leave(attempt)
        return goes_on

    def _evaluated(self, job: Job) -> Report:
        """The last report of a finished job."""
        report = Report(outcome="finished")
        return self.errors.report(job, report) if self.errors else report

    def _lose_worker(self, attempt: Attempt) -> None:
        """Let the worker die. The next worker repeats the steps since the last checkpoint."""
        self._save_checkpoint(attempt)
        self._leave(attempt)
        self.workers_lost += 1
        self.conductor.report_lost(attempt.job.key, "its worker died, as simulated")

    def _save_checkpoint(self, attempt: Attempt) -> None:
        job, seconds = attempt.job, self.now - attempt.began - self.cluster.start_up
        if job.order_kind != "train" or seconds <= 0 or not isinstance(job.work, Trial):
            return
        interval = job.work.training.checkpoint_every or job.work.training.eval_every
        trained = attempt.start + int(seconds / max(self.curves.curve(job).seconds, 1e-300))
        last_save = min(trained // interval * interval, job.steps)
        self._saved_steps[job.key] = max(self._saved_steps[job.key], last_save)

    def _leave(self, attempt: Attempt) -> None:
        self._active.pop(attempt.job.key, None)
        self.busy.append((attempt.began, self.now))

    def _kill_driver(self) -> None:
        """Let the driver and all workers die. The next driver only knows the records."""
        self.drivers_killed += 1
        for attempt in list(self._active.values()):
            self._save_checkpoint(attempt)
            self._leave(attempt)
        self._events.clear()
        self.records.lose_last(self._random.randint(0, MAX_LOST_NOTES))
        self.conductor = self.records.resumed(self.study)
        self._fill_slots()
