"""A study at work, for a person to watch: cells, trials, best so far, time left."""

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

ROWS = 16
"""Cells shown at once; of a larger study, those at work first."""
ENOUGH = 0.02
"""The share of the work to see done before saying how long the rest takes."""
QUIET_SECONDS = 15
"""Without a terminal, at most one line in so many seconds."""


@dataclass(frozen=True)
class Standing:
    """How far a study is: trials over and planned, and the share of its floating-point work that is done."""

    over: int
    planned: int
    work: float

    @classmethod
    def of(cls, conductor: Conductor) -> "Standing":
        benches, baselines = list(conductor.benches.values()), list(conductor.baselines.jobs.values())
        jobs = [job for bench in benches for job in list(bench.jobs.values())]
        over = sum(job.state == "over" for job in jobs + baselines)
        planned = len(baselines) + sum(max(bench.planned, len(bench.jobs)) for bench in benches)
        done, left = 0.0, 0.0
        for bench in benches:
            mine = list(bench.jobs.values())
            spent = [job.flops * job.step / job.steps for job in mine]
            done += sum(spent)
            left += sum(
                job.flops - each for job, each in zip(mine, spent, strict=True) if job.state != "over"
            )
            # Of trials that nobody has begun, as much as those of the cell have cost or will cost on average.
            each = (sum(spent) + sum(job.flops for job in mine if job.state != "over")) / max(len(mine), 1)
            left += max(bench.planned - len(mine), 0) * each
        return cls(over, planned, done / (done + left) if done + left else 0.0)


def _row(bench: CellRun) -> tuple[str, ...]:
    jobs = list(bench.jobs.values())
    tuned = [job for job in jobs if job.role == "tuning" and job.state == "over"]
    pruned = sum(job.outcome == "pruned" for job in tuned)
    failed = sum(job.outcome not in ("", "finished", "pruned") for job in jobs)
    replicated = sum(job.role == "replicate" and job.outcome == "finished" for job in jobs)
    running = [job for job in jobs if job.state == "running"]
    finished = [job.error for job in jobs if job.outcome == "finished"]
    return (
        bench.cell.label or "the study",
        f"{len(tuned)}/{bench.sampler.size}" + (f" ({pruned} pruned)" if pruned else "")
        if bench.space
        else "-",
        f"{replicated}/{bench.study.replicates}",
        f"{min(finished):.4g}" if finished else "",
        ", ".join(f"{job.role} {job.number}: {job.step}/{job.steps}" for job in running),
        str(failed) if failed else "",
    )


class Display:
    """What is drawn; asked for by rich's own thread, so it only reads, and reads copies."""

    def __init__(self, conductor: Conductor) -> None:
        self.conductor, self.began, self.start = conductor, time.monotonic(), Standing.of(conductor)
        self.moving: tuple[float, float] | None = None

    def left(self, standing: Standing) -> str:
        """The time that is left at the speed since the first progress: what starting takes would mislead."""
        if self.moving is None and standing.work > self.start.work:
            self.moving = (time.monotonic(), standing.work)
        if self.moving is None or standing.work - self.moving[1] < ENOUGH or standing.work >= 1:
            return ""
        seconds = (time.monotonic() - self.moving[0]) / (standing.work - self.moving[1]) * (1 - standing.work)
        return f"about {_clock(seconds)} left"

    def line(self) -> str:
        standing = Standing.of(self.conductor)
        writer = self.conductor.writer
        away = writer.away_since
        words = [
            f"{standing.over} of {standing.planned} trials",
            f"{standing.work:.0%} of the work",
            _clock(time.monotonic() - self.began) + " so far",
            self.left(standing),
            f"used {meter.spending}" if (meter := self.conductor.meter) and meter.limits else "",
            "stopping" if self.conductor.stopping else "",
            f"the store has been away for {_clock(time.time() - away)}; {writer.backlog} notes wait"
            if away
            else "",
        ]
        return ", ".join(word for word in words if word)

    def __rich__(self) -> Group:
        standing = Standing.of(self.conductor)
        table = Table(
            "cell", "tuned", "replicates", "best error", "at work", "failed", box=None, pad_edge=False
        )
        benches = sorted(
            self.conductor.benches.values(),
            key=lambda bench: not any(job.state == "running" for job in list(bench.jobs.values())),
        )
        shown = benches if len(benches) > ROWS else list(self.conductor.benches.values())
        for bench in shown[:ROWS]:
            table.add_row(*_row(bench))
        if len(benches) > ROWS:
            table.add_row(f"and {len(benches) - ROWS} more cells")
        bar = Table.grid(padding=(0, 2))
        bar.add_row(ProgressBar(total=1.0, completed=standing.work, width=30), Text(self.line()))
        return Group(Text(self.conductor.study.question, style="bold"), bar, table)


@contextmanager
def watching(conductor: Conductor) -> Iterator[None]:
    """Show the study on standard error: a live table on a terminal, else a line now and then."""
    display, console = Display(conductor), Console(stderr=True)
    if console.is_terminal:
        with Live(display, console=console, refresh_per_second=2):
            yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_speak, args=(display, stop), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def _speak(display: Display, stop: threading.Event) -> None:
    said = ""
    while not stop.wait(QUIET_SECONDS):
        line = display.line()
        if line != said:
            print(line, file=sys.stderr, flush=True)
        said = line


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
