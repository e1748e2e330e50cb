"""Progress of a running study for a person: cells, trials, best errors, and the time that is left."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.conductor import Conductor

MAX_ROWS = 16
"""Number of cells in the table. Of a larger study, cells with running trials come first."""
MIN_WORK = 0.02
"""Share of the work that must be done before the time that is left is estimated."""
LINE_SECONDS = 15
"""Without a terminal: time between two lines."""


@dataclass(frozen=True)
class StudyProgress:
    """Progress of a study: trials over and planned, and the share of its floating-point operations."""

    over: int
    planned: int
    work: float

    @classmethod
    def of(cls, conductor: Conductor) -> "StudyProgress":
        cell_runs, baselines = list(conductor.cell_runs.values()), list(conductor.baselines.values())
        jobs = [job for cell_run in cell_runs for job in list(cell_run.jobs.values())]
        over = sum(job.state == "over" for job in jobs + baselines)
        planned = len(baselines) + sum(max(cell_run.planned, len(cell_run.jobs)) for cell_run in cell_runs)
        done, left = 0.0, 0.0
        for cell_run in cell_runs:
            cell_jobs = list(cell_run.jobs.values())
            flops_done = [job.flops * job.step / job.steps for job in cell_jobs]
            unfinished = [
                (job, flops) for job, flops in zip(cell_jobs, flops_done, strict=True) if job.state != "over"
            ]
            done += sum(flops_done)
            left += sum(job.flops - flops for job, flops in unfinished)
            # A planned trial counts as the mean of the cell's trials: their cost so far, or their whole cost.
            cost = sum(flops_done) + sum(job.flops for job, _ in unfinished)
            left += max(cell_run.planned - len(cell_jobs), 0) * cost / max(len(cell_jobs), 1)
        return cls(over, planned, done / (done + left) if done + left else 0.0)


def _cell_row(cell_run: CellRun) -> tuple[str, ...]:
    jobs = list(cell_run.jobs.values())
    tuned = [job for job in jobs if job.role == "tuning" and job.state == "over"]
    pruned = sum(job.outcome == "pruned" for job in tuned)
    failed = sum(job.outcome not in ("", "finished", "pruned") for job in jobs)
    replicated = sum(job.role == "replicate" and job.outcome == "finished" for job in jobs)
    running = [job for job in jobs if job.state == "running"]
    errors = [job.error for job in jobs if job.outcome == "finished"]
    tuning = f"{len(tuned)}/{cell_run.sampler.size}" + (f" ({pruned} pruned)" if pruned else "")
    return (
        cell_run.cell.label or "the study",
        tuning if cell_run.space else "-",
        f"{replicated}/{cell_run.replicates}",
        f"{min(errors):.4g}" if errors else "",
        ", ".join(f"{job.role} {job.number}: {job.step}/{job.steps}" for job in running),
        str(failed) if failed else "",
    )


class ProgressDisplay:
    """The table and the line of progress. rich calls it from a thread, so it only reads, and reads copies."""

    def __init__(self, conductor: Conductor) -> None:
        self.conductor, self.started, self.initial = conductor, time.monotonic(), StudyProgress.of(conductor)
        self.first_progress: tuple[float, float] | None = None
        """Time and share of the work at the first progress."""

    def time_left(self, progress: StudyProgress) -> str:
        """Time left at the speed since the first progress, so that the start of the workers does not count."""
        if self.first_progress is None and progress.work > self.initial.work:
            self.first_progress = (time.monotonic(), progress.work)
        if self.first_progress is None or progress.work >= 1:
            return ""
        start, initial_work = self.first_progress
        if progress.work - initial_work < MIN_WORK:
            return ""
        seconds = (time.monotonic() - start) / (progress.work - initial_work) * (1 - progress.work)
        return f"about {_clock(seconds)} left"

    def line(self) -> str:
        progress = StudyProgress.of(self.conductor)
        meter, writer = self.conductor.meter, self.conductor.writer
        parts = [
            f"{progress.over} of {progress.planned} trials",
            f"{progress.work:.0%} of the work",
            _clock(time.monotonic() - self.started) + " so far",
            self.time_left(progress),
        ]
        if meter and meter.limits:
            parts.append(f"used {meter.spending}")
        if self.conductor.stopping:
            parts.append("stopping")
        if since := writer.away_since:
            away = _clock(time.time() - since)
            parts.append(f"the store has been away for {away}; {writer.backlog} notes wait")
        return ", ".join(part for part in parts if part)

    def __rich__(self) -> Group:
        table = Table(
            "cell", "tuned", "replicates", "best error", "at work", "failed", box=None, pad_edge=False
        )
        cell_runs = list(self.conductor.cell_runs.values())
        if len(cell_runs) > MAX_ROWS:
            cell_runs.sort(
                key=lambda cell: not any(job.state == "running" for job in list(cell.jobs.values()))
            )
        for cell_run in cell_runs[:MAX_ROWS]:
            table.add_row(*_cell_row(cell_run))
        if len(cell_runs) > MAX_ROWS:
            table.add_row(f"and {len(cell_runs) - MAX_ROWS} more cells")
        progress = StudyProgress.of(self.conductor)
        bar = Table.grid(padding=(0, 2))
        bar.add_row(ProgressBar(total=1.0, completed=progress.work, width=30), Text(self.line()))
        return Group(Text(self.conductor.study.question, style="bold"), bar, table)


@contextmanager
def show_progress(conductor: Conductor) -> Iterator[None]:
    """Show the study's progress on standard error: a live table on a terminal, else a line every 15 s."""
    display, console = ProgressDisplay(conductor), Console(stderr=True)
    if console.is_terminal:
        with Live(display, console=console, refresh_per_second=2):
            yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_print_lines, args=(display, stop), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def _print_lines(display: ProgressDisplay, stop: threading.Event) -> None:
    previous = ""
    while not stop.wait(LINE_SECONDS):
        line = display.line()
        if line != previous:
            print(line, file=sys.stderr, flush=True)
        previous = line


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
