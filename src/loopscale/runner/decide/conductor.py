"""What to train next, and whether to go on: the whole state of a running study, rebuilt from its records.

It knows neither Ray nor time. Ray asks it through two small adapters (`tune.py`); a test asks it directly, so every
hard promise (nothing lost, doubled, left running; the same decisions after a crash) is tested in seconds.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from loopscale.records.model.curves import encode_curve
from loopscale.records.model.note import CURVE, EVALUATED, OVER, STATUS, Note, Record, flatten
from loopscale.runner.decide.budget import Meter, Spent
from loopscale.runner.decide.cell_run import Baselines, CellRun
from loopscale.runner.decide.job import Idle, Job
from loopscale.runner.decide.queue import Queue
from loopscale.runner.decide.shares import Room
from loopscale.runner.messages import Report
from loopscale.runner.on_ray.faults import Fault
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial

RETRIES = 3
"""How often a trial whose worker died is given to another one."""

LOST_HOSTS = 50
"""How often a trial is given to another worker in one run because its host was lost, which is not the trial's fault."""

SILENT = 4
"""So many workers lost before any has said a word: no worker can start here, and the study stops."""


class Interrupted(BaseException):
    """A person or a batch system asked us to stop. Not an `Exception`, which Tune would catch to clean up slowly."""


class NoWorkers(RuntimeError):
    """Every worker died before it said anything."""


class NoteSink(Protocol):
    """Whatever takes notes: a `Writer`, or a list in a test."""

    @property
    def backlog(self) -> int: ...

    @property
    def away_since(self) -> float | None: ...

    def write(self, note: Note) -> None: ...

    def flush(self, timeout: float) -> bool: ...


class Conductor:
    """Answers `next`, `report` and `lost`; writes a note of everything that it decides."""

    def __init__(
        self,
        study: Study,
        records: Iterable[Record],
        writer: NoteSink,
        retries: int = RETRIES,
        meter: Meter | None = None,
    ) -> None:
        self.study, self.writer, self.retries, self.meter = study, writer, retries, meter
        self.stopping = False
        self.room = Room()
        """How much may be at work at once; whoever shares a cluster sets it."""
        self.hungry = True
        """Whether there was something to start when last looked."""
        self.reached: Callable[[str], int] | None = None
        """The step of a trial's checkpoint by its key, 0 without one; whoever knows where they lie sets it."""
        self.origin: dict[str, str] = {}
        """Tags for every trial that begins: of which commit it is. Whoever knows sets it."""
        self._busy: set[str] = set()
        self._talking: set[str] = set()
        self.reasons: dict[str, str] = {}
        self._heard, self._silent = False, 0
        self._evaluation = study.evaluate.key
        records = list(records)
        by_cell: dict[str, list[Record]] = {}
        for record in records:
            by_cell.setdefault(record.cell, []).append(record)
        self.benches = {
            cell.key: CellRun(
                study, cell, sorted(by_cell.get(cell.key, []), key=lambda r: (r.role, r.number))
            )
            for cell in study.cells()
        }
        self.baselines = Baselines(study, [record for record in records if record.role == "baseline"])
        self._index = {job.key: job for job in self.jobs()}
        self._queue = Queue(self.baselines.jobs.values(), list(self.benches.values()), self._outdated)
        for record in records:
            self._repair(record)

    def jobs(self) -> Iterator[Job]:
        yield from self.baselines.jobs.values()
        for bench in self.benches.values():
            yield from bench.jobs.values()

    def counts(self) -> Counter[str]:
        return Counter(job.outcome or job.state for job in self.jobs())

    @property
    def busy(self) -> int:
        """How many jobs are with workers, or wait for one."""
        return len(self._busy)

    @property
    def full(self) -> bool:
        """Whether all the room there is has been taken."""
        return len(self._busy) >= self.room.trials

    @property
    def keepers(self) -> set[str]:
        return set().union(*(bench.keepers() for bench in self.benches.values()))

    def next(self) -> Job | Idle:
        """The job to start now: one that was cut short, else a fresh one of the cell that has begun the fewest.

        Last come those whose curve is of another evaluation than the study now asks for. Raises NoWorkers, Spent.
        """
        if not self._heard and self._silent >= SILENT:
            raise NoWorkers(next(reversed(self.reasons.values()), "no reason was given"))
        if self._busy and self.full:
            return Idle.WAIT
        affordable = not self.meter or self.meter.room(self.busy)
        if self._busy and not affordable:
            self.hungry = False
            return Idle.WAIT
        job = self._queue.next()
        self.hungry = bool(job)
        if not job and not self._busy and self._reopened():
            return self.next()
        if not job:
            return Idle.WAIT if self._busy else Idle.DONE
        if not affordable:
            raise Spent
        self._index[job.key] = job
        job.begun = True
        if job.state == "waiting":
            self._note(job, params=self._params(job), tags=self._tags(job), status="RUNNING")
        else:
            job.order = "baseline" if job.role == "baseline" else "evaluate"
        job.state = "running"
        self._queue.turned(job)
        self._busy.add(job.key)
        return job

    def _reopened(self) -> bool:
        """Whether a trial that has finished is to be trained on, for its checkpoint is older than its record.

        A host that was cut off sends what it has saved when it is back, and puts it in the place of what another has
        saved since. Only a trial that has lost a worker can have met with that.
        """
        suspects = (
            job
            for job in self.jobs()
            if job.outcome == "finished" and job.steps and not job.weights and (job.retries or job.lost_hosts)
        )
        older = [job for job in suspects if self.reached and 0 < self.reached(job.key) < job.steps]
        for job in older:
            job.state, job.order = "waiting", "train"
            self._queue.turned(job)
        return bool(older)

    def report(self, key: str, report: Report) -> bool:
        """Take what a worker says; whether it should go on."""
        self._heard = True
        job = self._index[key]
        if job.state != "running":
            return False
        for step, metrics in report.progress:
            if step > job.step and not self._progress(job, step, metrics):
                return False
        if report.outcome:
            self._end(job, report)
            return False
        self._talking.add(key)
        return not (report.saved and self._yields(job))

    def lost(self, key: str, reason: str = "", fault: Fault = "worker") -> None:
        """The worker died without a word. Its job waits for another, up to a limit; both kinds are counted."""
        job = self._index[key]
        if job.state != "running":
            return
        self._leave(key)
        if fault == "host":
            job.hosts += 1
            job.lost_hosts += 1
        else:
            job.lost += 1
            job.retries += 1
        self._silent += 1
        self.reasons[key] = reason
        counts = {"retries": str(job.retries), "lost_hosts": str(job.lost_hosts)}
        self._note(job, tags=counts | ({"lost_reason": reason[-1000:]} if reason else {}))
        if job.lost <= self.retries and job.hosts <= LOST_HOSTS:
            job.state = "over" if job.outcome else "waiting"
            self._queue.turned(job)
        else:
            self._end(
                job,
                Report(
                    outcome="out_of_memory" if fault == "memory" else "lost",
                    detail=f"its worker died {job.lost + job.hosts} times; {reason}".strip("; "),
                ),
            )

    def interrupt(self) -> None:
        """Say of everything under way that it was interrupted. The next run goes on from there."""
        for job in self.jobs():
            if job.begun and job.state != "over" and not job.outcome:
                self._note(job, tags={"outcome": "interrupted"}, status="KILLED")

    def _yields(self, job: Job) -> bool:
        """Whether the job makes place for another study: the least advanced do, as many as are too many.

        It is neither lost nor tried again, but waits, and goes on later from what has just been saved.
        """
        excess = len(self._busy) - self.room.trials
        if not self.room.wanted or excess <= 0 or job.order != "train" or job.step >= job.steps:
            return False
        others = [self._index[key] for key in self._talking]
        youngest = sorted(
            others, key=lambda other: (other.step / max(other.steps, 1), -other.number, other.key)
        )
        if job not in youngest[:excess]:
            return False
        job.state = "waiting"
        self._queue.turned(job)
        self._leave(job.key)
        return True

    def _leave(self, key: str) -> None:
        self._busy.discard(key)
        self._talking.discard(key)

    def _progress(self, job: Job, step: int, metrics: dict[str, float]) -> bool:
        rungs, survives = self.benches[job.cell].climb(job, step, metrics["error"])
        job.step, job.error = step, metrics["error"]
        pruned = not survives and step < job.steps
        reached = {f"rung/{rung}": error for rung, error in rungs.items()}
        # The verdict goes with its rung in one batch, else a resumed driver would decide again, knowing more.
        self._note(job, step, metrics | reached | {"step": step}, {"outcome": "pruned"} if pruned else {})
        if pruned:
            self._end(job, Report(outcome="pruned"))
        return not pruned

    def _end(self, job: Job, report: Report) -> None:
        again, job.state = bool(job.outcome), "over"
        self._leave(job.key)
        if again and report.curve is None:
            # An evaluation of a trial that had finished went wrong: the trial is still finished. Asked once a run.
            job.evaluation = self._evaluation
            self.reasons[job.key] = report.detail
            self._queue.turned(job)
            return
        job.outcome = report.outcome
        if report.curve is not None:
            self.reasons.pop(job.key, None)  # of a worker that was lost before
        tags = {"outcome": report.outcome} | ({"detail": report.detail[:4000]} if report.detail else {})
        artifacts: tuple[tuple[str, bytes], ...] = ()
        if report.curve is not None:
            job.evaluation = tags["evaluation"] = self._evaluation
            curve = report.curve
            tags |= self._evaluated(job, again)
            artifacts = ((CURVE, encode_curve(curve.error, curve.sem, curve.raw, curve.median, curve.seen)),)
        elif report.outcome == "finished":
            job.evaluation = self._evaluation
        if report.host:
            tags["host"] = report.host
        if report.hardware:
            tags["hardware"] = report.hardware
        if not again and job.role != "baseline":
            self.benches[job.cell].tell(job)
        self._queue.turned(job)
        status = STATUS.get(report.outcome, "FAILED")
        metrics = {} if again or job.role == "baseline" else {"flops": job.flops}
        self._note(job, job.step, metrics | (report.metrics or {}), tags, status=status, artifacts=artifacts)

    def _evaluated(self, job: Job, again: bool) -> dict[str, str]:
        """The task that the curve is of, where it is not the one trained on, or may have been another before."""
        if not isinstance(job.work, Trial) or not (self.study.evaluate.task or again):
            return {}
        posed = self.study.evaluate.posed(job.work.task)
        same = posed == job.work.task
        return {EVALUATED: "" if same else json.dumps(posed.model_dump(mode="json"))}

    def _outdated(self, job: Job) -> bool:
        """Whether what the study reports of the job comes from another evaluation than it asks for."""
        return (
            job.state == "over"
            and job.outcome == "finished"
            and job.evaluation != self._evaluation
            and (job.role != "tuning" or job is self.benches[job.cell].best)
        )

    def _repair(self, record: Record) -> None:
        """A driver died between the outcome and the end of the run."""
        if record.outcome in OVER and record.status == "RUNNING":
            self.writer.write(Note(record.key, status=STATUS.get(record.outcome, "FAILED")))

    def _note(
        self,
        job: Job,
        step: int = 0,
        metrics: dict[str, float] | None = None,
        tags: dict[str, str] | None = None,
        params: dict[str, Any] | None = None,
        status: str = "",
        artifacts: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        self.writer.write(Note(job.key, step, metrics or {}, params or {}, tags or {}, status, artifacts))

    def _params(self, job: Job) -> dict[str, Any]:
        return flatten(job.work.settings)

    def _tags(self, job: Job) -> dict[str, str]:
        tags = {
            "cell": job.cell, "label": job.label, "role": job.role, "number": str(job.number),
            "point": json.dumps(job.point), "outcome": "running",
        }  # fmt: skip
        tags |= self.origin
        if job.seed is not None:
            tags["seed"] = str(job.seed)
        if job.memory:
            tags["sampler"] = json.dumps(job.memory)
        return tags
