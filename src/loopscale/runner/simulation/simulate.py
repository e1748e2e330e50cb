"""A study in simulated time: the real conductor, searcher and rungs, and workers that replay learning curves.

A heap of events stands for the cluster. The conductor knows neither Ray nor time, so nothing of it is faked; what is
left out are reports that reach no rung, on which nothing is ever decided. Evaluation and baselines take no time.
"""

import heapq
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job
from loopscale.runner.messages import Report
from loopscale.runner.simulation.ledger import Ledger
from loopscale.runner.simulation.replay import Curves
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial

MOST_LOST = 50
"""Notes that the queue of a driver that dies may take with it."""


@dataclass(frozen=True)
class Setting:
    """The cluster: `slots` trials at a time, seconds to start one, and deaths of a worker per hour."""

    slots: int
    start_up: float = 10.0
    faults: float = 0.0
    kills: int = 0
    """How often the driver dies, at random moments, and is rebuilt from what was recorded."""
    seed: int = 0


@dataclass
class Attempt:
    """A job with a worker, which goes on from step `start`."""

    job: Job
    began: float
    start: int
    speaks: Iterator[int]
    """The steps at which it has something to say that may change anything."""
    dies: float = math.inf


@dataclass
class Simulation:
    """One study on one cluster; `run` once."""

    study: Study
    curves: Curves
    setting: Setting
    ledger: Ledger = field(default_factory=Ledger)
    busy: list[tuple[float, float]] = field(default_factory=list)
    """When each slot that was used was taken, and let go."""
    now: float = 0.0
    lost: int = 0
    killed: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.setting.seed)
        self._saved: dict[str, int] = defaultdict(int)
        self._events: list[tuple[float, int, Literal["says", "dies"], int, Attempt]] = []
        self._counter = itertools.count()
        self._active: dict[str, Attempt] = {}
        self.conductor = Conductor(self.study, [], self.ledger)

    def run(self, events: int = 0) -> Conductor:
        """To the end; `events` is how many there were without kills, over which the kills are spread."""
        kills = sorted(
            (self._random.randint(1, max(events, 1)) for _ in range(self.setting.kills)), reverse=True
        )
        self.events = 0
        self._fill()
        while self._active:
            self.events += 1
            if kills and self.events >= kills[-1]:
                kills.pop()
                self._die()
                continue
            self.now, _, what, step, attempt = heapq.heappop(self._events)
            if what == "dies":
                self._lose(attempt)
            else:
                self._hear(attempt, step)
            self._fill()
        return self.conductor

    def _fill(self) -> None:
        while len(self._active) < self.setting.slots and isinstance(job := self.conductor.next(), Job):
            self._begin(job)

    def _begin(self, job: Job) -> None:
        start = self._saved[job.key]
        attempt = Attempt(job, self.now, start, self._steps(job, start))
        self._active[job.key] = attempt
        if job.order != "train":
            self._push(self.now, "says", 0, attempt)
            return
        if self.setting.faults:
            attempt.dies = self.now + self._random.expovariate(self.setting.faults / 3600)
        # A worker says first what its checkpoint holds: a driver may have died before it wrote that down.
        said = [step for step in self._steps(job, 0) if step <= start]
        if said and not self._report(attempt, said):
            return
        self._next(attempt)

    def _steps(self, job: Job, after: int) -> Iterator[int]:
        """The first report at or beyond each rung, and the last."""
        if not job.steps:
            return iter(())
        assert isinstance(job.work, Trial)
        every = job.work.training.eval_every
        rungs = self.conductor.benches[job.cell].rungs.ladder(job.number, job.steps)
        said = {min(math.ceil(rung / every) * every, job.steps) for rung in rungs if job.role == "tuning"}
        return iter(sorted(step for step in said | {job.steps} if step > after))

    def _next(self, attempt: Attempt) -> None:
        course = self.curves.course(attempt.job)
        step = next(attempt.speaks, attempt.job.steps)
        if course.outcome != "finished":
            step = min(step, math.ceil(course.last * attempt.job.steps))
        at = attempt.began + self.setting.start_up + max(0, step - attempt.start) * course.seconds
        if at > attempt.dies:
            self._push(attempt.dies, "dies", 0, attempt)
        else:
            self._push(at, "says", step, attempt)

    def _push(self, at: float, what: Literal["says", "dies"], step: int, attempt: Attempt) -> None:
        heapq.heappush(self._events, (max(at, self.now), next(self._counter), what, step, attempt))

    def _hear(self, attempt: Attempt, step: int) -> None:
        job = attempt.job
        if job.order != "train":
            self._leave(attempt)
            self.conductor.report(job.key, Report(outcome="finished"))
            return
        course = self.curves.course(job)
        self._saved[job.key] = max(step, self._saved[job.key])
        if course.outcome != "finished" and step >= math.ceil(course.last * job.steps):
            self._leave(attempt)
            self.conductor.report(job.key, Report(outcome=course.outcome, detail="as in the records"))
        elif self._report(attempt, [step]):
            self._next(attempt)

    def _report(self, attempt: Attempt, steps: list[int]) -> bool:
        """Say errors; whether the job goes on. At its last step it has finished."""
        job, course = attempt.job, self.curves.course(attempt.job)
        said = tuple((step, {"error": course.error(step / job.steps)}) for step in steps)
        outcome = "finished" if steps[-1] >= job.steps else ""
        goes_on = self.conductor.report(job.key, Report(said, outcome))
        if not goes_on:
            self._leave(attempt)
        return goes_on

    def _lose(self, attempt: Attempt) -> None:
        """What was trained since the last checkpoint is trained again."""
        self._keep(attempt)
        self._leave(attempt)
        self.lost += 1
        self.conductor.lost(attempt.job.key, "its worker died, as simulated")

    def _keep(self, attempt: Attempt) -> None:
        job, seconds = attempt.job, self.now - attempt.began - self.setting.start_up
        if job.order != "train" or seconds <= 0 or not isinstance(job.work, Trial):
            return
        every = job.work.training.checkpoint_every or job.work.training.eval_every
        trained = attempt.start + int(seconds / max(self.curves.course(job).seconds, 1e-300))
        self._saved[job.key] = max(self._saved[job.key], min(trained // every * every, job.steps))

    def _leave(self, attempt: Attempt) -> None:
        self._active.pop(attempt.job.key, None)
        self.busy.append((attempt.began, self.now))

    def _die(self) -> None:
        """The driver dies, and Ray with it; the next one knows what was written down, and no more."""
        self.killed += 1
        for attempt in list(self._active.values()):
            self._keep(attempt)
            self._leave(attempt)
        self._events.clear()
        self.ledger.lose(self._random.randint(0, MOST_LOST))
        self.conductor = Conductor(self.study, self.ledger.records(), self.ledger)
        self._fill()
