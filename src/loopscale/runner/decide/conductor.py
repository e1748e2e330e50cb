"""The state of a running study, rebuilt from its records: which job is next, and whether a trial goes on.

The conductor knows neither Ray nor the time. Ray uses it through two small adapters (`on_ray/tune.py`), and tests use
it directly. Tests therefore check its guarantees in seconds: no job is lost, doubled or left running, and a crash
changes no decision.
"""

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from loopscale.records.model import CURVE, EVALUATED, FLOOR, OVER, RUNG, STATUS, Note, Record, flatten
from loopscale.records.tables import encode_curve
from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.held_out import HeldOutCells
from loopscale.runner.decide.job import Baseline, Fault, Idle, Job, Report
from loopscale.runner.decide.limits import BudgetSpent, Meter, Share
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial

MAX_RETRIES = 3
"""Number of further workers for a trial whose worker died."""

MAX_LOST_HOSTS = 50
"""Number of further workers in one run for a trial whose host died, because the trial is not at fault."""

PREDICTION_SECONDS = 600.0
"""Longest wait until the store has a prediction. No predicted trial starts before."""

MAX_SILENT_DEATHS = 4
"""Number of worker deaths before the first report after which the study stops: no worker can start here."""


class Interrupted(BaseException):
    """A person or a batch system stops the study. Not an `Exception`, which Tune would catch to clean up slowly."""


class NoWorkers(RuntimeError):
    """Every worker died before its first report."""


class Unrecorded(RuntimeError):
    """The store did not take all notes. The next run repeats the missing notes from the checkpoints."""


class NoteSink(Protocol):
    """Receiver of notes: a `Writer`, or a list in tests."""

    @property
    def backlog(self) -> int: ...

    @property
    def away_since(self) -> float | None: ...

    def write(self, note: Note) -> None: ...

    def flush(self, timeout: float) -> bool: ...


class Conductor:
    """Answers `next`, `report` and `report_lost`, and writes a note of each decision."""

    def __init__(
        self,
        study: Study,
        records: Iterable[Record],
        writer: NoteSink,
        meter: Meter | None = None,
        predictions: Iterable[str] = (),
    ) -> None:
        """Restore the study from the `records` of its earlier runs.

        Parameters
        ----------
        meter
            Limits the study to its budget.
        predictions
            The tags of the recorded predictions of held-out cells.
        """
        self.study, self.writer, self.meter = study, writer, meter
        self.stopping = False
        """Whether somebody has asked the study to stop."""
        self.share = Share()
        """The study's share of a cluster. The owner of the connection to the cluster updates the share."""
        self.has_startable = True
        """Whether the last call of `next` found a job that could start."""
        self.checkpoint_step: Callable[[str], int] | None = None
        """Returns the step of a trial's checkpoint, 0 without a checkpoint. The owner of the checkpoints sets it."""
        self.commit_tags: dict[str, str] = {}
        """Tags of the git commit, for each trial that starts."""
        self.reasons: dict[str, str] = {}
        """Why a worker was lost or an evaluation failed, by the key of the job."""
        self._running: set[str] = set()
        self._reporting: set[str] = set()
        """Running jobs whose worker has reported."""
        self._any_report, self._silent_deaths = False, 0
        self._evaluation = study.evaluate.key
        records = list(records)
        by_cell = defaultdict[str, list[Record]](list)
        for record in sorted(records, key=lambda r: (r.role, r.number)):
            by_cell[record.cell].append(record)
        self.cell_runs = {cell.key: CellRun(study, cell, by_cell[cell.key]) for cell in study.cells()}
        self.baselines = _baseline_jobs(study, records)
        self._jobs_by_key = {job.key: job for job in self.jobs()}
        self._held_out = HeldOutCells(study, self.cell_runs, predictions, self._outdated)
        self._queue = JobQueue(
            self.baselines.values(), list(self.cell_runs.values()), self._outdated, self._held_out.waiting
        )
        for record in records:
            # The driver may have died between the outcome of a trial and the end of the run.
            if record.outcome in OVER and record.status == "RUNNING":
                self.writer.write(Note(record.key, status=STATUS.get(record.outcome, "FAILED")))

    def jobs(self) -> Iterator[Job]:
        yield from self.baselines.values()
        for cell_run in self.cell_runs.values():
            yield from cell_run.jobs.values()

    def counts(self) -> Counter[str]:
        """Number of jobs by outcome, or by state before the outcome."""
        return Counter(job.outcome or job.state for job in self.jobs())

    @property
    def running_count(self) -> int:
        """Number of jobs that run or wait for a worker."""
        return len(self._running)

    @property
    def share_used(self) -> bool:
        """Whether as many jobs run as the study's share allows."""
        return len(self._running) >= self.share.trials

    def kept_keys(self) -> set[str]:
        """Trials whose weights are kept for good."""
        return set[str]().union(*(cell_run.kept_keys() for cell_run in self.cell_runs.values()))

    def next(self) -> Job | Idle:
        """The job to start now, in this order of preference.

        1. A job that was cut short.
        2. A new job of the cell with the fewest jobs.
        3. A finished job whose curve is of another evaluation than the study's.

        A held-out cell has no new job before its prediction is recorded.

        Raises NoWorkers if all workers died before their first report. Raises BudgetSpent if the budget does not
        suffice for a job and no job runs.
        """
        if not self._any_report and self._silent_deaths >= MAX_SILENT_DEATHS:
            raise NoWorkers(next(reversed(self.reasons.values()), "no reason was given"))
        if self._running and self.share_used:
            return Idle.WAIT
        affordable = not self.meter or self.meter.affords_another(self.running_count)
        if self._running and not affordable:
            self.has_startable = False
            return Idle.WAIT
        self._predict_held_out()
        job = self._queue.next()
        if not job and self._predict_held_out():  # the last cell may just have tried its last point
            job = self._queue.next()
        self.has_startable = bool(job)
        if not job and not self._running and self._reopen_overwritten():
            return self.next()
        if not job:
            return Idle.WAIT if self._running else Idle.DONE
        if not affordable:
            raise self.budget_spent()
        self._jobs_by_key[job.key] = job
        job.recorded = True
        if job.state == "waiting":
            params, tags = flatten(job.work.settings), self._start_tags(job)
            self.writer.write(Note(job.key, params=params, tags=tags, status="RUNNING"))
        else:
            job.order_kind = "baseline" if job.role == "baseline" else "evaluate"
        job.state = "running"
        self._queue.state_changed(job)
        self._running.add(job.key)
        return job

    def _predict_held_out(self) -> bool:
        """Record the predictions that can be made now, and let their cells start. Returns whether any cell may start.

        Raises Unrecorded if the store does not take the predictions.
        """
        waiting = self._held_out.waiting
        if not waiting:
            return False
        predictions = self._held_out.predict()
        for prediction in predictions:
            self.writer.write(prediction.note())
        if predictions and not self.writer.flush(PREDICTION_SECONDS):
            raise Unrecorded(
                "the store has not taken the prediction of held-out trials, which therefore wait"
            )
        free = waiting - self._held_out.waiting
        for key in free:
            self._queue.free(key)
        return bool(free)

    def budget_spent(self) -> BudgetSpent:
        """Error of a study that stops at its budget, with the use, the trials that remain, and the remedy."""
        assert self.meter
        left, limits = self.meter.spending.left, self.meter.limits
        tightest = min(left, key=lambda name: left[name] / limits[name])
        planned = sum(cell_run.planned for cell_run in self.cell_runs.values()) + len(self.baselines)
        over = sum(job.state == "over" for job in self.jobs())
        return BudgetSpent(
            f"the budget is spent, except for a reserve for starting and stopping: {self.meter.spending} used; "
            f"{max(0, planned - over):,} of {planned:,} trials remain; raise it with --set budget.{tightest}=..."
        )

    def _reopen_overwritten(self) -> bool:
        """Reopen finished trials whose checkpoint is older than their record. Returns whether there are any.

        A host without connection sends its saved checkpoint when it is back, and so replaces a later checkpoint of
        another worker. This only happens to trials that have lost a worker.
        """
        suspects = (
            job
            for job in self.jobs()
            if job.outcome == "finished" and job.steps and not job.weights and (job.retries or job.lost_hosts)
        )
        older = [
            job for job in suspects if self.checkpoint_step and 0 < self.checkpoint_step(job.key) < job.steps
        ]
        for job in older:
            job.state, job.order_kind = "waiting", "train"
            self._queue.state_changed(job)
        return bool(older)

    def report(self, key: str, report: Report) -> bool:
        """Take a worker's report on the job `key`. Returns whether the worker goes on with the job."""
        self._any_report = True
        job = self._jobs_by_key[key]
        if job.state != "running":
            return False
        for step, metrics in report.progress:
            if step > job.step and not self._add_progress(job, step, metrics):
                return False
        if report.outcome:
            self._end(job, report)
            return False
        self._reporting.add(key)
        return not (report.saved and self._yield_slot(job))

    def report_lost(self, key: str, reason: str = "", fault: Fault = "worker") -> None:
        """Take the death of a worker without an outcome. The job waits for another worker, up to a limit."""
        job = self._jobs_by_key[key]
        if job.state != "running":
            return
        self._leave(key)
        if fault == "host":
            job.host_deaths += 1
            job.lost_hosts += 1
        else:
            job.worker_deaths += 1
            job.retries += 1
        self._silent_deaths += 1
        self.reasons[key] = reason
        counts = {"retries": str(job.retries), "lost_hosts": str(job.lost_hosts)}
        self.writer.write(Note(job.key, tags=counts | ({"lost_reason": reason[-1000:]} if reason else {})))
        if job.worker_deaths <= MAX_RETRIES and job.host_deaths <= MAX_LOST_HOSTS:
            job.state = "over" if job.outcome else "waiting"
            self._queue.state_changed(job)
        else:
            deaths = job.worker_deaths + job.host_deaths
            outcome = "out_of_memory" if fault == "memory" else "lost"
            self._end(
                job, Report(outcome=outcome, detail=f"its worker died {deaths} times; {reason}".strip("; "))
            )

    def interrupt(self) -> None:
        """Record that all unfinished jobs are interrupted. The next run resumes them."""
        for job in self.jobs():
            if job.recorded and job.state != "over" and not job.outcome:
                self.writer.write(Note(job.key, tags={"outcome": "interrupted"}, status="KILLED"))

    def _yield_slot(self, job: Job) -> bool:
        """Whether the job gives its slot to another study.

        If more trials run than this study's share allows, the least advanced trials give up their slots. These trials
        are neither lost nor retried. They wait, and later resume from the checkpoint that was just saved.
        """
        excess = len(self._running) - self.share.trials
        if not self.share.contested or excess <= 0 or job.order_kind != "train" or job.step >= job.steps:
            return False
        least_advanced = sorted(
            (self._jobs_by_key[key] for key in self._reporting),
            key=lambda other: (other.step / max(other.steps, 1), -other.number, other.key),
        )
        if job not in least_advanced[:excess]:
            return False
        job.state = "waiting"
        self._queue.state_changed(job)
        self._leave(job.key)
        return True

    def _leave(self, key: str) -> None:
        self._running.discard(key)
        self._reporting.discard(key)

    def _add_progress(self, job: Job, step: int, metrics: dict[str, float]) -> bool:
        rungs, survives = self.cell_runs[job.cell].pass_rungs(job, step, metrics["error"])
        job.step, job.error = step, metrics["error"]
        pruned = not survives and step < job.steps
        reached = {f"{RUNG}{rung}": error for rung, error in rungs.items()}
        # The verdict is in the same batch as its rung. Otherwise a resumed driver, which knows more errors, would
        # decide again.
        tags = {"outcome": "pruned"} if pruned else {}
        self.writer.write(Note(job.key, step, metrics | reached | {"step": step}, tags=tags))
        if pruned:
            self._end(job, Report(outcome="pruned"))
        return not pruned

    def _end(self, job: Job, report: Report) -> None:
        had_ended, job.state = bool(job.outcome), "over"
        self._leave(job.key)
        if had_ended and report.curve is None:
            # The evaluation of a finished trial failed, and the trial is still finished. One attempt per run.
            job.evaluation = self._evaluation
            self.reasons[job.key] = report.detail
            self._queue.state_changed(job)
            return
        job.outcome = report.outcome
        if report.curve is not None:
            self.reasons.pop(job.key, None)  # of an earlier loss of the worker
        tags = {"outcome": report.outcome} | ({"detail": report.detail[:4000]} if report.detail else {})
        artifacts: tuple[tuple[str, bytes | Path], ...] = ()
        if report.curve is not None:
            job.evaluation = tags["evaluation"] = self._evaluation
            curve = report.curve
            tags |= self._evaluated_task_tag(job, had_ended)
            regret = (curve.regret.regret, curve.regret.sem) if curve.regret else None
            content = encode_curve(curve.error, curve.sem, curve.raw, curve.median, curve.seen, regret)
            artifacts = ((CURVE, content),)
            if report.floor:
                tags[FLOOR] = report.floor
        elif report.outcome == "finished":
            job.evaluation = self._evaluation
        if report.host:
            tags["host"] = report.host
        if report.hardware:
            tags["hardware"] = report.hardware
        if report.execution:
            tags["execution"] = report.execution
        if not had_ended and job.role != "baseline":
            self.cell_runs[job.cell].tell(job)
        self._queue.state_changed(job)
        status = STATUS.get(report.outcome, "FAILED")
        metrics = {} if had_ended or job.role == "baseline" else {"flops": job.flops}
        metrics |= report.metrics or {}
        job.take_measures(metrics)
        self.writer.write(Note(job.key, job.step, metrics, tags=tags, status=status, artifacts=artifacts))

    def _evaluated_task_tag(self, job: Job, had_ended: bool) -> dict[str, str]:
        """The task of the curve, if it differs from the trained task or may replace another task's tag."""
        if not isinstance(job.work, Trial) or not (self.study.evaluate.task or had_ended):
            return {}
        evaluated = self.study.evaluate.posed(job.work.task)
        same = evaluated == job.work.task
        return {EVALUATED: "" if same else json.dumps(evaluated.model_dump(mode="json"))}

    def _outdated(self, job: Job) -> bool:
        """Whether the study reports the job's curve and the curve is of another evaluation than the study's."""
        return (
            job.state == "over"
            and job.outcome == "finished"
            and job.evaluation != self._evaluation
            and (job.role != "tuning" or job is self.cell_runs[job.cell].best)
        )

    def _start_tags(self, job: Job) -> dict[str, str]:
        tags: dict[str, str] = {"cell": job.cell, "label": job.label, "role": job.role}
        tags |= {"number": str(job.number), "point": json.dumps(job.point), "outcome": "running"}
        tags |= self.commit_tags
        if job.seed is not None:
            tags["seed"] = str(job.seed)
        if job.sampler_state:
            tags["sampler"] = json.dumps(job.sampler_state)
        return tags


def _baseline_jobs(study: Study, records: Iterable[Record]) -> dict[str, Job]:
    """Classical algorithms beside the nets, by key: one job for each solver on each distinct task of the study."""
    recorded = {record.key: record for record in records if record.role == "baseline"}
    jobs: dict[str, Job] = {}
    for cell in study.cells():
        task = study.tasks()[cell.key]
        for solver in study.baselines_for(cell):
            work = Baseline(task=task, solver=solver)
            if work.key in jobs:
                continue
            number = len(jobs)
            job = Job(work, "", solver.kind, "baseline", number, {}, position=number, order_kind="baseline")
            if work.key in recorded:
                job.restore(recorded[work.key])
            jobs[work.key] = job
    return jobs


Entry = tuple[int, int, Job]
"""Number of the job's cell (-1 for baselines), position of the job in the cell, and the job."""


class JobQueue:
    """Chooses the next job without a look at all jobs, because a study may have 10,000 trials and more.

    The queue consists of three heaps in the order of the study's jobs. Entries are only removed at the top, where
    entries that no longer hold are skipped. `outdated` says whether a job that is over must be evaluated again. A job
    that is not outdated never becomes outdated. Cells that are `held_back` have no new job before `free`.
    """

    def __init__(
        self,
        baselines: Iterable[Job],
        cells: Sequence[CellRun],
        outdated: Callable[[Job], bool],
        held_back: Collection[str] = (),
    ) -> None:
        self.cells, self._outdated = cells, outdated
        self._cell_numbers = {cell_run.cell.key: number for number, cell_run in enumerate(cells)}
        self._waiting_heap: list[Entry] = []
        self._outdated_heap: list[Entry] = []
        self._in_cell_heap = {number for key, number in self._cell_numbers.items() if key not in held_back}
        self._cell_heap = [(len(cells[number].jobs), number) for number in sorted(self._in_cell_heap)]
        """Cells that may have a new job, ordered by the number of jobs."""
        heapq.heapify(self._cell_heap)
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
        if job.state == "over":
            self.free(job.cell)

    def free(self, cell: str) -> None:
        """Let a cell have new jobs again."""
        if (number := self._cell_numbers[cell]) not in self._in_cell_heap:
            self._in_cell_heap.add(number)
            heapq.heappush(self._cell_heap, (len(self.cells[number].jobs), number))

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
