"""The state of a running study, rebuilt from its records: which job is next, and whether a trial goes on.

The conductor knows neither Ray nor the time. Ray uses it through two small adapters (`on_ray/tune.py`), and tests use
it directly. Tests therefore check its guarantees in seconds: no job is lost, doubled or left running, and a crash
changes no decision.
"""

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from loopscale.errors import RunError
from loopscale.evaluate import Curve
from loopscale.records.model import (
    CURVE,
    EVALUATED,
    EXAMPLES_TAG,
    FLOOR,
    OVER,
    RESOURCES,
    RUNG,
    STATUS,
    STEPS_FACTOR,
    STOPPED_BY,
    Note,
    Record,
    flatten,
)
from loopscale.records.study_records import stopped_trials
from loopscale.records.tables import MALFORMED, Grid, decode_curve, encode_curve
from loopscale.runner.decide.budget import BudgetSpent, Meter
from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.error_rules import action_on, is_at_fault
from loopscale.runner.decide.job import Baseline, CauseOfDeath, Idle, Job, Report, memory_text
from loopscale.runner.decide.services import DriverServices
from loopscale.studies.schema import ErrorAction
from loopscale.studies.spec import Study
from loopscale.tasks.base import Example
from loopscale.training.trial import Trial

if TYPE_CHECKING:  # two parts that few studies have, see `_make_looks` and `_make_held_out`
    from loopscale.runner.decide.held_out import HeldOutCells
    from loopscale.runner.decide.until import StudyLooks

MAX_RETRIES = 3
"""Number of further workers for a trial whose worker died."""

MAX_LOST_HOSTS = 50
"""Number of further workers in one run for a trial whose host died, because the trial is not at fault."""

RECORD_SECONDS = 600.0
"""Longest wait until the store has a prediction, or the decisions of a look. No trial that follows starts before."""

MOST_WAITING_NOTES = 100_000
"""Notes that wait for the store before trials start one at a time. A note has a few KiB of memory."""

MAX_SILENT_DEATHS = 4
"""Number of worker deaths before the first report after which the study stops: no worker can start here."""


FAILURES = ("failed", "lost", "out_of_memory")
"""Outcomes that count for `stop.failures`."""

MOST_LETTERS = 400
"""Letters of one text of an example."""

BY_USER = "stopped by the user"


class Interrupted(BaseException):
    """A person or a batch system stops the study. Not an `Exception`, which Tune would catch to clean up slowly."""


class TooManyFailures(BaseException):
    """More trials have failed than `stop.failures` allows. Not an `Exception`, which Tune would catch."""


class NoWorkers(RunError):
    """Every worker died before its first report, or no host has what the trials need."""


class Unrecorded(RunError):
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
    """Answers `next`, starts jobs, takes reports and deaths, and writes a note of each decision."""

    def __init__(
        self,
        study: Study,
        records: Iterable[Record],
        writer: NoteSink,
        meter: Meter | None = None,
        tags: Mapping[str, str] = {},
        services: DriverServices | None = None,
    ) -> None:
        """Restore the study from the `records` of its earlier runs.

        Parameters
        ----------
        meter
            Limits the study to its budget.
        tags
            The tags of the study's parent run: predictions of held-out cells, and decisions of `until: decided`.
        services
            The driver's side of the study. By default a driver without records, on one machine.
        """
        self.study, self.writer, self.meter = study, writer, meter
        self.services = services or DriverServices()
        self.stopping = False
        """Whether somebody has asked the study to stop."""
        self.has_startable = True
        """Whether `next` found a job that could start when it was last asked."""
        self._host_ends = defaultdict[str, list[bool]](list)
        """The ends of trials on each host in this run: True for a finished trial, False for a failure."""
        self.excluded_hosts: dict[str, str] = {}
        """Hosts that get no more trials in this run, and the reason of each."""
        self.reasons: dict[str, str] = {}
        """Why a worker was lost or an evaluation failed, by the key of the job."""
        self._running: set[str] = set()
        self._reporting: set[str] = set()
        """Running jobs whose worker has reported."""
        self.has_reports, self._silent_deaths = False, 0
        """Whether any worker has reported in this run, and the number of deaths before."""
        self._last_host_unfit = ""
        """Why no trial can run on the only host that is left. Empty while there is a host."""
        self._evaluation = study.evaluate.key
        self._lost_curves: set[str] = set()
        """Keys of the finished jobs whose recorded curve is damaged."""
        records = list(records)
        by_cell = defaultdict[str, list[Record]](list)
        for record in sorted(records, key=lambda r: (r.role, r.number)):
            by_cell[record.cell].append(record)
        self.stopped = stopped_trials(tags)
        """Keys of the trials that somebody has stopped. The owner of the records updates them while the study runs."""
        self._failures = self._tolerated_failures = 0
        """Trials that have failed in this run, and those of them that `stop.failures` is known to allow."""
        self.cell_runs = {
            cell.key: CellRun(study, cell, by_cell[cell.key], self.stopped) for cell in study.cells()
        }
        self.baselines = _baseline_jobs(study, records)
        self._jobs_by_key = {job.key: job for job in self.jobs()}
        self.looks = self._make_looks(tags)
        """Judges the claims of a study with `until: decided`, and orders replicates."""
        self._curves: dict[str, dict[str, Grid] | None] = {}
        """Curves that the looks have read, by key."""
        self._held_out = self._make_held_out(tags)
        """Predicts held-out cells. None if no law holds out cells."""
        held_back = self._held_out.waiting if self._held_out else ()
        self._queue = JobQueue(
            self.baselines.values(), list(self.cell_runs.values()), self._outdated, held_back
        )
        for record in records:
            # The driver may have died between the outcome of a trial and the end of the run.
            if record.outcome in OVER and record.status == "RUNNING":
                self.writer.write(Note(record.key, status=STATUS.get(record.outcome, "FAILED")))

    def evaluate_again(self, key: str) -> None:
        """Evaluate a finished job once more, because its recorded curve is damaged."""
        self._lost_curves.add(key)
        self._queue.state_changed(self._jobs_by_key[key])

    def train_again(self, key: str) -> None:
        """Train and evaluate a finished trial once more: its curve is damaged, and its weights are gone.

        The trial stays finished in the records, so a driver that dies now leaves the same damage to the next driver.
        """
        job = self._jobs_by_key[key]
        self._lost_curves.add(key)
        job.state, job.order_kind, job.weights = "waiting", "train", ""
        self._queue.state_changed(job)

    def _make_looks(self, tags: Mapping[str, str]) -> "StudyLooks | None":
        if not self.study.until:
            return None
        from loopscale.runner.decide.until import StudyLooks  # few studies have looks

        return StudyLooks(self.study, self.cell_runs, self.baselines, tags, self._curve)

    def _make_held_out(self, tags: Mapping[str, str]) -> "HeldOutCells | None":
        if not self.study.holds_out:
            return None
        from loopscale.runner.decide.held_out import HeldOutCells  # few studies hold out cells

        return HeldOutCells(self.study, self.cell_runs, tags, self._outdated)

    def jobs(self) -> Iterator[Job]:
        yield from self.baselines.values()
        for cell_run in self.cell_runs.values():
            yield from cell_run.jobs.values()

    def counts(self) -> Counter[str]:
        """Number of trials by outcome, or by state before the outcome. Baselines are no trials."""
        jobs = (job for cell_run in self.cell_runs.values() for job in cell_run.jobs.values())
        return Counter(job.outcome or job.state for job in jobs)

    @property
    def running_count(self) -> int:
        """Number of jobs that run or wait for a worker."""
        return len(self._running)

    @property
    def running_jobs(self) -> dict[str, Job]:
        """The jobs that run or wait for a worker, by key. Another thread may ask."""
        return {key: self._jobs_by_key[key] for key in list(self._running)}

    @property
    def share_used(self) -> bool:
        """Whether as many jobs run as the study's share allows."""
        return len(self._running) >= self.services.share.trials

    @property
    def holds_back(self) -> bool:
        """True if no trial starts beside another, because the store takes notes too slowly, or is away."""
        return self.writer.backlog >= MOST_WAITING_NOTES

    def kept_keys(self) -> set[str]:
        """Trials whose weights are kept for good."""
        return set[str]().union(*(cell_run.kept_keys() for cell_run in self.cell_runs.values()))

    def next(self) -> Job | Idle:
        """The job to start now, in this order of preference. Writes nothing: to ask again has the same answer.

        1. A job that was cut short.
        2. A new job of the cell with the fewest jobs.
        3. A finished job whose curve is of another evaluation than the study's.

        A held-out cell has no new job before its prediction is recorded.

        Raises NoWorkers if all workers died before their first report, or if no host has what the trials need. Raises
        BudgetSpent if the budget does not suffice for a job and no job runs. Raises TooManyFailures by the rule
        `stop.failures`.
        """
        if self._must_wait():
            return Idle.WAIT
        job = self._queue.next()
        self.has_startable = bool(job)
        if job is None:
            return Idle.WAIT if self._running else Idle.DONE
        if not self._affordable and not self._is_stopped(job):
            raise self.budget_spent()
        return job

    def start_next(self) -> Job | Idle:
        """Start the job that `next` answers, once everything is decided that can be decided now.

        Predictions of held-out cells are recorded first, so that these cells may propose jobs. A job that somebody has
        stopped ends. If all jobs have ended, a look may order more.

        Raises Unrecorded if the store does not take a decision, and the errors of `next`.
        """
        if self._must_wait():
            return Idle.WAIT
        while True:
            self._predict_held_out()
            answer = self.next()
            if isinstance(answer, Job):
                if self._end_stopped(answer):
                    continue
                self._start(answer)
                return answer
            if self._predict_held_out():  # the last cell may just have tried its last point
                continue
            if answer is Idle.WAIT or not self._order_more():
                return answer

    @property
    def _affordable(self) -> bool:
        return not self.meter or self.meter.affords_another(self.running_count)

    def _must_wait(self) -> bool:
        """Whether running jobs leave no slot, no budget or no memory for another.

        Raises NoWorkers and TooManyFailures.
        """
        self._check_failures()
        if not self.has_reports and self._silent_deaths >= MAX_SILENT_DEATHS:
            raise NoWorkers(next(reversed(self.reasons.values()), "no reason was given"))
        if self._last_host_unfit:
            raise NoWorkers(self._last_host_unfit)
        if self._running and (self.share_used or self.holds_back):
            return True
        if self._running and not self._affordable:
            self.has_startable = False
            return True
        return False

    def _order_more(self) -> bool:
        """Order further jobs of a study whose jobs have all ended. Returns whether any was ordered."""
        return self._reopen_overwritten() or self._look()

    def _start(self, job: Job) -> None:
        """Count the job as running, and write the start of a trial that has no records."""
        self._jobs_by_key[job.key] = job
        job.recorded = True
        if job.state == "waiting":
            if job.key not in self._lost_curves:
                self._write_start(job)
        else:
            job.order_kind = "baseline" if job.role == "baseline" else "evaluate"
        job.state = "running"
        self._queue.state_changed(job)
        self._running.add(job.key)

    def _write_start(self, job: Job) -> None:
        params, tags = flatten(job.work.settings), self._start_tags(job)
        self.writer.write(Note(job.key, params=params, tags=tags, status="RUNNING"))

    def _predict_held_out(self) -> bool:
        """Record the predictions that can be made now, and let their cells start. Returns whether any cell may start.

        Raises Unrecorded if the store does not take the predictions.
        """
        if not (self._held_out and (waiting := self._held_out.waiting)):
            return False
        predictions = self._held_out.predict()
        for prediction in predictions:
            self.writer.write(prediction.note())
        if predictions and not self.writer.flush(RECORD_SECONDS):
            raise Unrecorded(
                "the store has not taken the prediction of held-out trials, which therefore wait"
            )
        free = waiting - self._held_out.waiting
        for key in free:
            self._queue.free(key)
        return bool(free)

    def _look(self) -> bool:
        """Judge the study's claims and laws. Returns whether replicates were ordered.

        Raises Unrecorded if the store does not take the decisions.
        """
        if self.looks is None:
            return False
        judged = self.looks.judge()
        if judged.decisions:
            self.writer.write(judged.note())
            if not self.writer.flush(RECORD_SECONDS):
                raise Unrecorded("the store has not taken the decisions of a look; its replicates wait")
        for key in judged.cells:
            self._queue.free(key)
        return bool(judged.cells)

    def _curve(self, job: Job) -> dict[str, Grid] | None:
        """The curve of a job, from its report or from the records."""
        if job.key not in self._curves:
            content = self.services.read_curve(job.key)
            try:
                self._curves[job.key] = decode_curve(content) if content else None
            except MALFORMED:  # the owner of the records has it made again
                self._curves[job.key] = None
        return self._curves[job.key]

    def budget_spent(self) -> BudgetSpent:
        """Error of a study that stops at its budget, with the use, the trials that remain, and the remedy."""
        assert self.meter
        left, limits = self.meter.spending.left, self.meter.limits
        tightest = min(left, key=lambda name: left[name] / limits[name])
        planned = self._planned + len(self.baselines)
        over = sum(job.state == "over" for job in self.jobs())
        questions = f"{words}; " if self.looks and (words := self.looks.open_words) else ""
        first = "the budget is spent, except for a reserve for starting and stopping"
        if not any(hours for name, hours in self.meter.used.items() if name != "hours"):
            first = "the budget is too small to start a trial and to stop all workers"
        return BudgetSpent(
            f"{first}: {self.meter.spending} used; "
            f"{max(0, planned - over):,} of {planned:,} trials remain; {questions}"
            f"raise it with --set budget.{tightest}=..."
        )

    @property
    def _planned(self) -> int:
        """Planned trials, without baselines."""
        return sum(cell_run.planned for cell_run in self.cell_runs.values())

    def _check_failures(self) -> None:
        """Raise TooManyFailures by the rule `stop.failures`. Only a new failure makes it count the planned trials."""
        if self._failures == self._tolerated_failures:
            return
        if self._failures > self.study.stop.failure_share * self._planned:
            raise self._too_many_failures()
        self._tolerated_failures = self._failures

    def _too_many_failures(self) -> TooManyFailures:
        reason = next(reversed(self.reasons.values()), "")
        last = f"; the last one: {reason.strip().splitlines()[-1][:200]}" if reason.strip() else ""
        return TooManyFailures(
            f"stop.failures: {self._failures:,} of {self._planned:,} planned trials have failed in this "
            f"run, more than {self.study.stop.failure_share:.3g} of them{last}"
        )

    def outside(self) -> str:
        """One line on the earlier trials whose points lie outside the ranges of the study; empty if there are none."""
        left = sum(len(run.outside) for run in self.cell_runs.values())
        if not left:
            return ""
        counting = sum(job.recorded for run in self.cell_runs.values() for job in run.jobs.values())
        return (
            f"{left:,} of {left + counting:,} earlier trials lie outside the ranges or the condition of the study; "
            "their records stay, and the search does not count them"
        )

    def ended_early(self) -> list[str]:
        """What the rules of `stop` have ended, one line each."""
        rule, lines = self.study.stop, list[str]()
        cells = [run for run in self.cell_runs.values() if run.good_enough]
        if cells:
            tried = sum(len(run.points) for run in cells)
            points = sum(run.sampler.size for run in cells)
            labels = ", ".join(run.cell.label for run in cells[:3]) + ", ..." * (len(cells) > 3)
            lines.append(
                f"stop.error_below {rule.error_below:g} ended {len(cells):,} searches ({labels}) after "
                f"{tried:,} of {points:,} points"
            )
        stopped = {"trial_hours": list[str](), "user": list[str]()}
        for job in self.jobs():
            if job.outcome == "stopped":
                stopped[job.stopped_by].append(job.key)
        if keys := stopped["trial_hours"]:
            limit = f"{rule.trial_hours:g}" if rule.trial_hours else "of an earlier run"
            lines.append(f"stop.trial_hours {limit} ended {_trials(keys)} without a result")
        lines += self._impossible_points()
        for host, reason in self.excluded_hosts.items():
            lines.append(f"the host {host} got no more trials in this run: {reason}")
        if keys := stopped["user"]:
            again = f"`loopscale run {self.study.name} --again {keys[0]}` trains one again"
            lines.append(f"the user has stopped {_trials(keys)}; {again}")
        return lines

    def _impossible_points(self) -> list[str]:
        """One line on the proposed points that are no valid trial; none without such points."""
        found = [pair for run in self.cell_runs.values() for pair in run.impossible.items()]
        if not found:
            return []
        points = f"{len(found):,} proposed points are" if len(found) > 1 else "1 proposed point is"
        return [
            f"{points} impossible, and the search has tried others, the first: {found[0][0]} ({found[0][1]}); write "
            "step: n or choice: [...] for the range, or exclude such points by where"
        ]

    def _is_stopped(self, job: Job) -> bool:
        """Whether somebody has stopped a job that has no outcome yet."""
        return job.key in self.stopped and not job.outcome and job.order_kind == "train"

    def _end_stopped(self, job: Job) -> bool:
        """End a job that somebody has stopped. Returns whether the job has ended."""
        if not self._is_stopped(job):
            return False
        if not job.recorded:
            self._write_start(job)
        self._jobs_by_key[job.key] = job
        job.recorded, job.stopped_by = True, "user"
        self._end(job, Report(outcome="stopped", detail=BY_USER))
        return True

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
        older = [job for job in suspects if 0 < self.services.checkpoint_step(job.key) < job.steps]
        for job in older:
            job.state, job.order_kind = "waiting", "train"
            self._queue.state_changed(job)
        return bool(older)

    def report(self, key: str, report: Report) -> bool:
        """Take a worker's report on the job `key`. Returns whether the worker goes on with the job."""
        self.has_reports = True
        job = self._jobs_by_key[key]
        if job.state != "running":
            return False
        new = ((step, metrics) for step, metrics in report.progress if step > job.step)
        verdicts = (self._add_progress(job, step, metrics, report.host) for step, metrics in new)
        verdict = next(filter(None, verdicts), None)
        if self.services.observer:
            self.services.observer.reported(job, report)
        report = verdict or report
        if report.outcome == "finished" and report.host:
            self._host_ends[report.host].append(True)
        if report.host_unfit:
            self._leave_unfit_host(job, report)
            return False
        if report.outcome in FAILURES and not job.outcome and self._tries_again(job, report):
            return False
        if report.outcome:
            self._end(job, report)
            return False
        if self._end_stopped(job):
            return False
        self._reporting.add(key)
        return not (report.saved and self._yield_slot(job))

    def report_lost(self, key: str, reason: str = "", fault: CauseOfDeath = "worker", host: str = "") -> None:
        """Take the death of a worker without an outcome. The job waits for another worker, up to a limit.

        The rules of `on_error` come first: a job may fail at once, or its host may get no more trials.
        """
        job = self._jobs_by_key[key]
        if job.state != "running":
            return
        self._leave(key)
        action = action_on(reason, self.study.on_error)
        if action == "fail" and not job.outcome:
            self._end(job, Report(outcome="failed", detail=reason, host=host))
            return
        if self._blames_host(action, host, reason):
            fault = "host"
        job.count_death(with_host=fault == "host")
        self._silent_deaths += 1
        self.reasons[key] = reason
        why = {"lost_reason": reason[-1000:]} if reason else {}
        self.writer.write(Note(job.key, tags=job.death_tags | why))
        if job.worker_deaths <= MAX_RETRIES and job.host_deaths <= MAX_LOST_HOSTS:
            self._wait(job)
        else:
            deaths = job.worker_deaths + job.host_deaths
            outcome = "out_of_memory" if fault == "memory" else "lost"
            self._end(
                job, Report(outcome=outcome, detail=f"its worker died {deaths} times; {reason}".strip("; "))
            )

    def _leave_unfit_host(self, job: Job, report: Report) -> None:
        """Let a job wait for another host, and exclude its host. Without another host the study stops."""
        if not self._blames_host("exclude_host", report.host, report.detail):
            self._last_host_unfit = report.detail
        job.count_death(with_host=True)
        tags = {"lost_hosts": str(job.lost_hosts), "lost_reason": report.detail[-1000:]}
        self.writer.write(Note(job.key, tags=tags))
        self.reasons[job.key] = report.detail
        self._leave(job.key)
        self._wait(job)

    def _wait(self, job: Job) -> None:
        """Let a job whose worker is gone wait for another worker. An ended trial only misses its evaluation."""
        job.state = "over" if job.outcome and job.order_kind != "train" else "waiting"
        self._queue.state_changed(job)

    def _tries_again(self, job: Job, report: Report) -> bool:
        """Whether a rule of `on_error` lets a failed job go on with another worker. Such a job waits from now on."""
        action = action_on(report.detail, self.study.on_error)
        excluded = self._blames_host(action, report.host, report.detail)
        if action not in ("retry", "exclude_host"):
            return False
        job.count_death(with_host=excluded)
        self.writer.write(Note(job.key, tags=job.death_tags | {"lost_reason": report.detail[-1000:]}))
        self.reasons[job.key] = report.detail
        if job.worker_deaths > MAX_RETRIES or job.host_deaths > MAX_LOST_HOSTS:
            return False
        self._leave(job.key)
        job.state = "waiting"
        self._queue.state_changed(job)
        return True

    def _blames_host(self, action: ErrorAction | None, host: str, reason: str) -> bool:
        """Count a failure on a host. Returns whether the host gets no more trials.

        A rule excludes the host, or many failures in a row where another host has finished a trial. The last host of
        the cluster is never excluded.
        """
        if not host:
            return False
        self._host_ends[host].append(False)
        at_fault = is_at_fault(host, self._host_ends) or action == "exclude_host"
        if not at_fault or action == "fail":
            return False
        if host not in self.excluded_hosts:
            if set(self.services.live_hosts()) <= {host, *self.excluded_hosts}:
                return False
            lines = reason.strip().splitlines() or ["no reason was given"]
            self.excluded_hosts[host] = lines[-1][:200]
        return True

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
        excess = len(self._running) - self.services.share.trials
        if (
            not self.services.share.contested
            or excess <= 0
            or job.order_kind != "train"
            or job.step >= job.steps
        ):
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
        self._jobs_by_key[key].host = ""  # the next worker may be on another host

    def _add_progress(self, job: Job, step: int, metrics: dict[str, float], host: str) -> Report | None:
        """Record a validation on a host. Returns the end of the trial, or None for a trial that goes on."""
        rungs, survives = self.cell_runs[job.cell].pass_rungs(job, step, metrics["error"])
        job.step, job.error = step, metrics["error"]
        reached = {f"{RUNG}{rung}": error for rung, error in rungs.items()}
        verdict = self._verdict(job, step, survives, metrics)
        # The verdict is in the same batch as its rung. Otherwise a resumed driver, which knows more errors, would
        # decide again.
        tags = {"outcome": verdict.outcome} if verdict else {}
        tags |= {STOPPED_BY: job.stopped_by} if job.stopped_by else {}
        if host and host != job.host:
            tags["host"] = job.host = host
        self.writer.write(Note(job.key, step, metrics | reached | {"step": step}, tags=tags))
        return verdict

    def _verdict(self, job: Job, step: int, survives: bool, metrics: Mapping[str, float]) -> Report | None:
        """The end of a trial by the scheduler or by `stop.trial_hours`; None for a trial that goes on."""
        if step >= job.steps:
            return None
        if not survives:
            return Report(outcome="pruned")
        if not self.study.stop.exceeds_hours(metrics):
            return None
        job.stopped_by = "trial_hours"
        limit, hours = self.study.stop.trial_hours, metrics["seconds"] / 3600
        detail = f"stop.trial_hours {limit:g}: {hours:.3g} hours of training at step {step:,}"
        return Report(outcome="stopped", detail=detail)

    def _end(self, job: Job, report: Report) -> None:
        had_ended, job.state = bool(job.outcome), "over"
        self._leave(job.key)
        self._lost_curves.discard(job.key)
        if had_ended and report.curve is None:
            # The evaluation of a finished trial failed, and the trial is still finished. One attempt per run.
            job.evaluation = self._evaluation
            self.reasons[job.key] = report.detail
            self._queue.state_changed(job)
            self._tell_end(job, report)
            return
        job.outcome = report.outcome
        if report.curve is not None:
            self.reasons.pop(job.key, None)  # of an earlier loss of the worker
        if report.outcome in FAILURES and job.role != "baseline":
            self._failures += 1
            self.reasons[job.key] = report.detail or self.reasons.get(job.key, "")
        tags = {"outcome": report.outcome} | ({STOPPED_BY: job.stopped_by} if job.stopped_by else {})
        tags |= {"detail": report.detail[:4000]} if report.detail else {}
        if report.outcome == "out_of_memory":
            tags[RESOURCES] = memory_text(self.study.resources)
        artifacts: tuple[tuple[str, bytes | Path], ...] = ()
        if report.curve is not None:
            job.evaluation = tags["evaluation"] = self._evaluation
            curve = report.curve
            artifacts = ((CURVE, curve_content(curve, self.study)),)
            self._curves.pop(job.key, None)
            if self.looks:
                grids = {"error": curve.error} | ({"regret": curve.regret.regret} if curve.regret else {})
                self._curves[job.key] = grids
            tags |= self._evaluated_task_tag(job, had_ended)
            if report.examples:
                tags[EXAMPLES_TAG] = _examples_text(report.examples)
            if report.floor:
                tags[FLOOR] = job.floor = report.floor
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
        job.forget_work()
        self.writer.write(Note(job.key, job.step, metrics, tags=tags, status=status, artifacts=artifacts))
        self._tell_end(job, report)

    def _tell_end(self, job: Job, report: Report) -> None:
        if self.services.observer:
            self.services.observer.ended(job, report)

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
            and (
                job.key in self._lost_curves
                or (
                    job.evaluation != self._evaluation
                    and (job.role != "tuning" or job is self.cell_runs[job.cell].best)
                )
            )
        )

    def _start_tags(self, job: Job) -> dict[str, str]:
        tags: dict[str, str] = {"cell": job.cell, "label": job.label, "role": job.role}
        tags |= {"number": str(job.number), "point": json.dumps(job.point), "outcome": "running"}
        tags |= self.services.commit_tags
        if job.seed is not None:
            tags["seed"] = str(job.seed)
        if job.steps_factor > 1:
            tags[STEPS_FACTOR] = str(job.steps_factor)
        if job.sampler_state:
            tags["sampler"] = json.dumps(job.sampler_state)
        return tags


def _examples_text(examples: Sequence[Example]) -> str:
    """The examples as JSON. MLflow keeps 8,000 characters of a tag, so long texts are cut."""
    cut = [{name: value[:MOST_LETTERS] for name, value in asdict(each).items()} for each in examples]
    return json.dumps(cut, ensure_ascii=False)


def curve_content(curve: Curve, study: Study) -> bytes:
    """The file of a curve with the measures of the study."""
    regret = (curve.regret.regret, curve.regret.sem) if curve.regret else None
    further = {name: curve.measures[name] for name in study.evaluate.names}
    play = curve.play and (curve.play.loop, curve.play.sampled, curve.play.sem, curve.play.greedy)
    return encode_curve(curve.error, curve.sem, curve.raw, curve.median, curve.seen, regret, further, play)


def _trials(keys: Sequence[str]) -> str:
    """Number and first keys of trials in words."""
    listed = ", ".join(keys[:3]) + ", ..." * (len(keys) > 3)
    return f"{len(keys):,} trial{'s' * (len(keys) > 1)} ({listed})"


def _baseline_jobs(study: Study, records: Iterable[Record]) -> dict[str, Job]:
    """Classical algorithms beside the nets, by key: one job for each solver on each distinct task of the study."""
    recorded = {record.key: record for record in records if record.role == "baseline"}
    jobs: dict[str, Job] = {}
    for cell in study.cells():
        task = study.task(cell.key)
        for solver in study.baselines_for(cell):
            work = Baseline(task=task, solver=solver)
            if work.key in jobs:
                continue
            number = len(jobs)
            job = Job(work, "", solver.kind, "baseline", number, {}, position=number, order_kind="baseline")
            if work.key in recorded:
                job.restore(recorded[work.key], study.resources)
            jobs[work.key] = job
    return jobs


QueueEntry = tuple[int, int, Job]
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
        self._waiting_heap: list[QueueEntry] = []
        self._outdated_heap: list[QueueEntry] = []
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


def _first(heap: list[QueueEntry], valid: Callable[[Job], bool]) -> Job | None:
    """The first valid job, which stays in the heap. Invalid entries before the job are removed."""
    while heap:
        if valid(heap[0][2]):
            return heap[0][2]
        heapq.heappop(heap)
    return None
