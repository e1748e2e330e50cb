"""Keeps the board up to date: reads the records from time to time, and takes what the study's driver says.

The records are the one source of results. The driver adds facts that no record holds: the event that the run waits
for, and the work of each worker between two validations.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from loopscale.core.visible import visible
from loopscale.live.board import Board
from loopscale.live.recorded_study import RecordedStudy
from loopscale.records.model import NoRecords
from loopscale.records.stores.base import Store
from loopscale.records.writing.driver_lease import recorded_driver
from loopscale.runner.lease import lock_holder

CPU_SHARE = 0.02
"""The largest share of one processor that reading and serving may use, after the start."""
LEAST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two looks at the records."""
WAITING = 4.0
"""A look at a slow store is followed by a pause of this many times the look."""
LAST_LOOK = 2.0
"""At the end: longest wait for a look that is under way."""
MIN_WORK = 0.02
"""Share of the work that must be done before the time that is left is estimated."""


class Pace:
    """Estimates the time left from the work since the first progress, so that the start of workers does not count."""

    def __init__(self) -> None:
        self._initial: float | None = None
        self._first: tuple[float, float] | None = None

    def seconds_left(self, work: float) -> float | None:
        now = time.monotonic()
        if self._initial is None:
            self._initial = work
        if self._first is None and work > self._initial:
            self._first = (now, work)
        if self._first is None or work >= 1 or work - self._first[1] < MIN_WORK:
            return None
        return (now - self._first[0]) / (work - self._first[1]) * (1 - work)


class Watcher:
    """Reads the records of a study in a thread, and puts the state onto a board.

    Parameters
    ----------
    open_store
        Opens the store. The store may be away at first.
    driven
        True if the page belongs to a driver. Messages of the driver come through `hear`.
    """

    def __init__(
        self, board: Board, open_store: Callable[[], Store], study: str = "", driven: bool = False
    ) -> None:
        self.board, self.study, self.driven = board, study, driven
        self._open, self._recorded = open_store, None
        self._driver: dict[str, Any] = {}
        self._records: dict[str, Any] = {}
        self._recorded_workers: list[dict[str, Any]] = []
        self._problem: tuple[float, str] | None = None
        """Time of the first failure of the present outage, and the reason."""
        self._pace, self._lock = Pace(), threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="records", daemon=True)

    def start(self) -> None:
        self._publish()
        self._thread.start()

    def hear(self, message: Mapping[str, Any]) -> None:
        """Take what the driver says. Later messages replace the entries of earlier messages."""
        with self._lock:
            self._driver |= message
            self.study = self._driver.get("study", self.study)
            self._publish()

    def hear_end(self) -> None:
        """The driver says nothing more. A driver that did not say how the run has ended was killed."""
        if not self._driver.get("ended"):
            self.hear({"ended": "the driver has ended without a word; another run goes on from the records"})

    def finish(self) -> None:
        """Look at the records for the last time, and close the board."""
        self._over.set()
        self._thread.join(LAST_LOOK)
        if not self._thread.is_alive():  # otherwise the store is away
            self.look()
        self.board.close()

    @property
    def file(self) -> str | None:
        """The study's file, if the driver has said so."""
        return self._driver.get("file")

    def look(self) -> None:
        """Read the records once. A store that is away becomes a sentence of the page."""
        if not self.study:
            return
        try:
            self._recorded = self._recorded or RecordedStudy(self._open(), self.study)
            parts, state = self._recorded.parts(), {}
            if not self.driven:
                state = self._foreign_driver(self._recorded.store)
        except NoRecords:
            problem = None if self.driven else f"no records of {self.study} yet"
            parts, state = None, {}
        except Exception as fault:  # drivers of databases and transports raise exceptions of any kind
            problem = f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}"
            parts, state = None, {}
        else:
            problem = None
        with self._lock:
            since = self._problem[0] if self._problem else time.time()
            self._problem = (since, problem) if problem else None
            self._driver |= state
            if parts is not None:
                self._records = parts.pop("records")
                self._recorded_workers = parts.pop("recorded workers")
                self.board.update(parts)
            self._publish()

    def _repeat(self) -> None:
        used = time.process_time()
        while not self._over.is_set():
            began = time.monotonic()
            self.look()
            took = time.monotonic() - began
            # The use of the whole process since the last look counts, so the server's use counts too.
            before, used = used, time.process_time()
            pause = max(LEAST_PAUSE, WAITING * took, (used - before) / CPU_SHARE - took)
            self._over.wait(min(pause, LONGEST_PAUSE))

    def _foreign_driver(self, store: Store) -> dict[str, Any]:
        """Who runs the study now, as far as the lock or the records tell."""
        if store.shared:
            return {"driver": recorded_driver(store, self.study) or ""}
        with suppress(OSError):
            return {"driver": lock_holder(store.storage, self.study) or ""}
        return {"driver": ""}

    def _publish(self) -> None:
        """Put the header and the workers onto the board."""
        with self._lock:
            driver, records = self._driver, self._records
            progress = {name: driver[name] for name in ("work", "planned", "over") if name in driver}
            header = records | progress
            left = self._pace.seconds_left(header["work"]) if "work" in header and self._runs() else None
            header |= {
                "study": visible(self.study),
                "running": self._runs(),
                "state": self._state(),
                # Two digits, so that the header changes only when a reader would notice.
                "seconds left": None if left is None else float(f"{left:.2g}"),
                "report": driver.get("report"),
                "stage": driver.get("stage", ""),
                "away": driver.get("away", ""),
                "problem": list(self._problem) if self._problem else None,
            }
            workers = driver.get("workers", self._recorded_workers)
            if not self._runs():
                workers = []
            self.board.update({"header": header, "workers": workers})

    def _runs(self) -> bool:
        return not self._driver.get("ended") and (self.driven or bool(self._driver.get("driver")))

    def _state(self) -> str:
        """The state of the study in words."""
        driver, recorded = self._driver, self._records.get("state", "")
        if ended := driver.get("ended"):
            return recorded or str(ended)
        if self._runs():
            if driver.get("stopping"):
                return "stops"
            return "runs" + (f", by {visible(driver['driver'])}" if driver.get("driver") else "")
        if not self._records:
            return "not known yet"
        return recorded or "cut short: the records say that it runs, and no driver is known here"
