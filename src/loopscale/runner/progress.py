"""Progress of a running study for a person: cells, trials, validation errors, and the time that is left.

The displays are callbacks of the run: a live table on a terminal, a bar in a notebook, lines elsewhere.
"""

import math
import sys
import threading
import time
from dataclasses import dataclass
from html import escape
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from loopscale.runner.callbacks import Callback
from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job, Report

MAX_ROWS = 16
"""Number of cells in the table. Of a larger study, cells with running trials come first."""
MIN_WORK = 0.02
"""Share of the work that must be done before the time that is left is estimated."""
LINE_SECONDS = 15
"""Without a terminal: time between two lines."""
DRAW_SECONDS = 0.5
"""In a notebook: shortest time between two drawings."""
COUNTED_TRIALS = 2000
"""A display counts so many trials whenever it is drawn."""
COUNTING_SHARE = 0.02
"""Largest share of the time in which a display counts more trials. The driver waits meanwhile."""


@dataclass(frozen=True)
class StudyProgress:
    """Progress of a study: trials over and planned, baselines likewise, and the share of all training FLOPs."""

    over: int
    planned: int
    baselines_over: int
    baselines: int
    work: float

    @classmethod
    def of(cls, conductor: Conductor) -> "StudyProgress":
        cell_runs, baselines = list(conductor.cell_runs.values()), list(conductor.baselines.values())
        jobs = [job for cell_run in cell_runs for job in list(cell_run.jobs.values())]
        over, baselines_over = (sum(job.state == "over" for job in each) for each in (jobs, baselines))
        planned = sum(max(cell_run.planned, len(cell_run.jobs)) for cell_run in cell_runs)
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
            costs = sum(flops_done) + sum(job.flops for job, _ in unfinished)
            cost = costs / len(cell_jobs) if cell_jobs else cell_run.unpruned_flops
            left += max(cell_run.planned - len(cell_jobs), 0) * cost
        work = done / (done + left) if done + left else 0.0
        return cls(over, planned, baselines_over, len(baselines), work)


def _cell_row(cell_run: CellRun) -> tuple[str, ...]:
    jobs = list(cell_run.jobs.values())
    tuned = [job for job in jobs if job.role == "tuning" and job.state == "over"]
    pruned = sum(job.outcome == "pruned" for job in tuned)
    failed = sum(job.outcome not in ("", "finished", "pruned", "stopped") for job in jobs)
    replicated = sum(job.role == "replicate" and job.outcome == "finished" for job in jobs)
    running = [job for job in jobs if job.state == "running"]
    errors = [job.error for job in jobs if job.outcome == "finished"]
    tuning = f"{len(tuned)}/{cell_run.tuning_trials}" + (f" ({pruned} pruned)" if pruned else "")
    return (
        cell_run.cell.label or "the study",
        tuning if cell_run.space else "-",
        f"{replicated}/{cell_run.replicates}",
        f"{min(errors):.4g}" if errors else "",
        ", ".join(f"{job.role} {job.number}: {job.step}/{job.steps}" for job in running),
        str(failed) if failed else "",
    )


class ProgressDisplay(Callback):
    """The table and the line of progress. A thread may draw the display, which only reads, and reads copies."""

    def __init__(self) -> None:
        self.stage, self.started, self.conductor = "", time.monotonic(), None
        self.ended = False
        self.initial: StudyProgress | None = None
        self.first_progress: tuple[float, float] | None = None
        """Time and share of the work at the first progress."""
        self._counted, self._count_again = None, 0.0

    @override
    def on_stage(self, stage: str) -> None:
        self.stage = stage

    @override
    def on_start(self, conductor: Conductor) -> None:
        self.initial, self.conductor = StudyProgress.of(conductor), conductor

    @override
    def on_end(self) -> None:
        self.stage, self.ended = "", True
        self._count_again = 0.0

    def progress_of(self, conductor: Conductor) -> StudyProgress:
        """The progress of the study. That of a large study may be older, because counting takes time."""
        began = time.monotonic()
        if self._counted is None or self._counted.planned <= COUNTED_TRIALS or began >= self._count_again:
            self._counted = StudyProgress.of(conductor)
            ended = time.monotonic()
            self._count_again = ended + (ended - began) / COUNTING_SHARE
        return self._counted

    def time_left(self, progress: StudyProgress) -> str:
        """Time left at the speed since the first progress, so that the start of the workers does not count.

        The trials that a look may order are not planned yet. So with an open question this is the time to the look.
        """
        if self.first_progress is None and self.initial and progress.work > self.initial.work:
            self.first_progress = (time.monotonic(), progress.work)
        if self.first_progress is None or progress.work >= 1 or self.ended:
            return ""
        start, initial_work = self.first_progress
        if progress.work - initial_work < MIN_WORK:
            return ""
        seconds = (time.monotonic() - start) / (progress.work - initial_work) * (1 - progress.work)
        looks = self.conductor.looks if self.conductor else None
        return f"about {_clock(seconds)} {'left' if looks is None or looks.is_over else 'to the next look'}"

    def line(self) -> str:
        waiting = f"waits for {self.stage}" if self.stage else ""
        so_far = _clock(time.monotonic() - self.started) + " so far"
        if self.conductor is None:
            return ", ".join(part for part in (waiting, so_far) if part)
        progress = self.progress_of(self.conductor)
        meter, writer = self.conductor.meter, self.conductor.writer
        parts = [
            f"{progress.over} of {progress.planned} trials",
            f"{progress.baselines_over} of {progress.baselines} baselines" if progress.baselines else "",
            f"{math.floor(100 * progress.work)}% of the work",  # 100% stands for a study without any work left
            so_far,
            self.time_left(progress),
            waiting,
        ]
        if meter and meter.limits:
            parts.append(f"used {meter.spending}")
        if self.ended and progress.over < progress.planned:
            parts.append("ended early")
        elif self.conductor.stopping and not self.ended:
            parts.append("stopping")
        if since := writer.away_since:
            away = _clock(time.time() - since)
            parts.append(f"the store has been away for {away}; {writer.backlog} notes wait")
        if self.conductor.holds_back:
            parts.append("trials start one at a time until the store has taken the notes")
        return ", ".join(part for part in parts if part)

    def __rich__(self) -> Group:
        if self.conductor is None:
            return Group(Text(self.line()))
        table = Table(
            "cell",
            "tuned",
            "replicates",
            "best validation error",
            "at work",
            "failed",
            box=None,
            pad_edge=False,
        )
        cell_runs = list(self.conductor.cell_runs.values())
        if len(cell_runs) > MAX_ROWS:
            at_work = {job.cell for job in self.conductor.running_jobs.values()}
            cell_runs.sort(key=lambda run: run.cell.key not in at_work)
        for cell_run in cell_runs[:MAX_ROWS]:
            table.add_row(*_cell_row(cell_run))
        if len(cell_runs) > MAX_ROWS:
            table.add_row(f"and {len(cell_runs) - MAX_ROWS} more cells")
        progress = self.progress_of(self.conductor)
        bar = Table.grid(padding=(0, 2))
        bar.add_row(ProgressBar(total=1.0, completed=progress.work, width=30), Text(self.line()))
        return Group(Text(self.conductor.study.question, style="bold"), bar, table)


class TerminalProgress(ProgressDisplay):
    """A live table on a terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._live = Live(self, console=console, refresh_per_second=2)

    @override
    def on_stage(self, stage: str) -> None:
        super().on_stage(stage)
        self._live.start()

    @override
    def on_end(self) -> None:
        super().on_end()
        self._live.stop()


class LineProgress(ProgressDisplay):
    """A line on standard error every 15 s."""

    def __init__(self) -> None:
        super().__init__()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._print_lines, name="progress", daemon=True)

    @override
    def on_start(self, conductor: Conductor) -> None:
        super().on_start(conductor)
        self._thread.start()

    @override
    def on_end(self) -> None:
        super().on_end()
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _print_lines(self) -> None:
        previous = ""
        while not self._stop.wait(LINE_SECONDS):
            line = self.line()
            if line != previous:
                print(line, file=sys.stderr, flush=True)
            previous = line


class NotebookProgress(ProgressDisplay):
    """A bar and a line below a notebook's cell. The display needs no widgets."""

    def __init__(self) -> None:
        super().__init__()
        self._shown, self._due = None, 0.0

    @override
    def on_stage(self, stage: str) -> None:
        super().on_stage(stage)
        self._draw()

    @override
    def on_start(self, conductor: Conductor) -> None:
        super().on_start(conductor)
        self._draw()

    @override
    def on_report(self, job: Job, report: Report) -> None:
        if time.monotonic() >= self._due:
            self._draw()

    @override
    def on_trial_end(self, job: Job, report: Report) -> None:
        if time.monotonic() >= self._due:
            self._draw()

    @override
    def on_end(self) -> None:
        super().on_end()
        self._draw()

    def _draw(self) -> None:
        from IPython import display  # a notebook has IPython

        self._due = time.monotonic() + DRAW_SECONDS
        html: Any = display.HTML(self.html())
        if self._shown is None:
            self._shown = display.display(html, display_id=True)
        else:
            self._shown.update(html)

    def html(self) -> str:
        work = self.progress_of(self.conductor).work if self.conductor else 0.0
        return f'<progress max="1" value="{work:.4f}"></progress> {escape(self.line())}'


def progress_display() -> ProgressDisplay:
    """The display for the place where the program runs: a notebook, a terminal, or neither."""
    ipython = sys.modules.get("IPython")
    if ipython and (shell := ipython.get_ipython()) and hasattr(shell, "kernel"):
        return NotebookProgress()
    console = Console(stderr=True)
    return TerminalProgress(console) if console.is_terminal else LineProgress()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
