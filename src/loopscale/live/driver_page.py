"""The live page of a running study: a callback that starts the page's process and tells what the driver does."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from typing_extensions import override

from loopscale.core.visible import tell, visible
from loopscale.live.recorded_study import does, rounded
from loopscale.live.server import bind, url_of
from loopscale.records.stores.base import Store
from loopscale.runner.callbacks import Callback
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job, Report
from loopscale.runner.progress import StudyProgress

LEAST_PAUSE = 1.0
"""Seconds between two messages to the page."""
CPU_SHARE = 0.005
"""The largest share of one processor that the driver uses for these messages."""
PIPE_SECONDS, LAST_SECONDS = 10.0, 60.0
"""At the end: longest wait until the page's process has read the last message, and until the process has ended."""


class LivePage(Callback):
    """A page on 127.0.0.1 that shows a study while the study runs: cells, curves, points, workers, hours and failures.

    The page is a process of its own, so the driver's decisions never wait for a browser. `close`, or the end of the
    context, ends the page.

        with loopscale.LivePage("records") as page:
            print(page.url)
            loopscale.run(study, "records", callbacks=[loopscale.progress_display(), page])

    Parameters
    ----------
    store, storage
        The records of the run, as for `run`.
    port
        The port of the page. None takes a free port.
    notice
        Receives a warning if the page's process ends too early. By default the warning goes to standard error.

    Raises
    ------
    UsageError
        The port is not free.
    """

    def __init__(
        self,
        store: Store | str | Path | None = None,
        storage: str | Path | None = None,
        port: int | None = None,
        notice: Callable[[str], None] = tell,
    ) -> None:
        listening = bind(port)
        self.url = url_of(listening)
        """The address of the page."""
        self._notice, self._conductor = notice, None
        self._facts: dict[str, Any] = {}
        self._reported: dict[str, int] = {}
        """The last attempt that has reported, by key."""
        self._news, self._over = threading.Event(), threading.Event()
        descriptor = str(listening.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "loopscale.live.process", descriptor],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[listening.fileno()],
            start_new_session=True,  # Ctrl-C is for the driver, which ends the page
        )
        listening.close()
        if isinstance(store, Store):
            store, storage = _place(store)
        self._first = {"store": store and str(store), "storage": storage and str(storage)}
        # A pipe may be full, so the driver never writes into the pipe itself.
        self._thread = threading.Thread(target=self._repeat, name="live page", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self, report: Path | None = None) -> None:
        """Show the end, with the place of the final report, and end the page. A second call does nothing."""
        if self._over.is_set():
            return
        self._facts |= {"report": report and visible(str(report))}
        self._over.set()
        self._news.set()
        self._thread.join(PIPE_SECONDS)
        try:
            self._process.wait(0 if self._thread.is_alive() else LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stderr
        self._process.stderr.close()

    @override
    def on_stage(self, stage: str) -> None:
        self._tell(stage=stage)

    @override
    def on_start(self, conductor: Conductor) -> None:
        self._conductor, study = conductor, conductor.study
        self._tell(study=study.name, file=str(study.path.absolute()) if study.path else None)

    @override
    def on_report(self, job: Job, report: Report) -> None:
        self._reported[job.key] = _attempt(job)

    @override
    def on_end(self) -> None:
        self._tell(ended="the run has ended")

    def _tell(self, **facts: Any) -> None:
        self._facts |= facts
        self._news.set()

    def _repeat(self) -> None:
        """Send the state about every second, until the end or until the page's process is gone."""
        pipe, pause = self._process.stdin, LEAST_PAUSE
        assert pipe
        try:
            with pipe:
                pipe.write(json.dumps(self._first) + "\n")
                while True:
                    over, used = self._over.is_set(), time.thread_time()
                    pipe.write(json.dumps(self._state() | self._facts) + "\n")
                    pipe.flush()
                    if over:
                        return
                    pause = max(LEAST_PAUSE, (time.thread_time() - used) / CPU_SHARE)
                    self._news.wait(pause)
                    self._news.clear()
        except OSError:
            if not self._over.is_set():
                self._notice_end()

    def _state(self) -> dict[str, Any]:
        """What the driver knows and no record holds. Only reads, and reads copies."""
        if (conductor := self._conductor) is None:
            return {}
        progress, writer = StudyProgress.of(conductor), conductor.writer
        workers = [self._worker(job) for job in list(conductor.running_jobs.values())]
        away = ""
        if since := writer.away_since:
            minutes = (time.time() - since) / 60
            away = f"the store has been away for {minutes:.1f} min; {writer.backlog} notes of the driver wait"
        if conductor.holds_back:
            held = "trials start one at a time until the store has taken the notes"
            away = f"{away}; {held}" if away else held
        return {
            "work": progress.work,
            "planned": progress.planned,
            "over": progress.over,
            "stopping": conductor.stopping,
            "away": away,
            "workers": workers,
        }

    def _worker(self, job: Job) -> dict[str, Any]:
        attempt = _attempt(job)
        starts = self._reported.get(job.key) != attempt
        return {
            "id": job.key,
            "cell": visible(job.label),
            "name": "baseline" if job.role == "baseline" else f"{job.role} {job.number}",
            "does": "starts" if starts else does(job.role, job.step, job.steps),
            "step": job.step,
            "steps": job.steps,
            "error": rounded(job.error),
            "attempt": attempt,
            "host": "" if starts else visible(job.host),  # an attempt that starts may be on another host
        }

    def _notice_end(self) -> None:
        code, errors = self._process.wait(), self._process.stderr
        reason = (errors.read() if errors else "").strip().rpartition("\n")[2]
        reason = f"({reason[:300]})" if reason else f"(exit code {code})"
        self._notice(
            f"the live page has ended early {reason}; the study goes on, and `loopscale watch` shows it"
        )


def _attempt(job: Job) -> int:
    """The number of the attempt, which counts up with each death of a worker."""
    return job.retries + job.lost_hosts + 1


def _place(store: Store) -> tuple[str, str]:
    """The address and the storage of an open store, for another process."""
    return (store.uri if store.shared else store.name), str(store.storage)
