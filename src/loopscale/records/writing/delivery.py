"""Deliver notes to the store in the background: a queue and a thread that know nothing of MLflow.

The notes of one run arrive in order, all waiting notes at once. Runs are created in the order of their first notes, so
that a driver that dies leaves no gaps. Notes that cannot be delivered wait in memory and are retried. Refused notes
are kept for a message at the end. If the store denies writing for a while, `flush` waits no longer and the driver is
told.
"""

import threading
import time
from collections.abc import Callable

from loopscale.records.model.note import Note

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between tries while the store is away. The pause doubles with each try."""
TOLERANCE = 20.0
"""Seconds of denial before the driver is told. A proxy that restarts denies for a moment."""


class Refused(Exception):
    """The store has understood the notes and rejects them. A retry would change nothing."""


class Denied(Exception):
    """The store does not let this user write any more. The notes are correct, and a retry alone does not help."""


class Fenced(Exception):
    """Another driver writes the records now. Waiting notes are dropped: the other driver reads the checkpoints."""


class Delivery:
    """Call `send` with the waiting notes of one run, again and again.

    `send` raises Refused for wrong notes, and Fenced to end the delivery. After any other exception it is called again.
    If `send` raises Denied for longer than `TOLERANCE`, `on_denied` is called once with the reason, from the thread of
    the delivery. The notes are kept and retried all the same.
    """

    def __init__(
        self,
        send: Callable[[list[Note]], None],
        on_denied: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.send, self.on_denied = send, on_denied
        self.fenced = False
        self.denied = ""  # why the store does not let this user write any more
        self.refused: list[tuple[Note, Exception]] = []  # bugs, to be reported at the end
        self.away_since: float | None = None  # seconds since 1970, while the store does not answer
        self._waiting: dict[str, list[Note]] = {}
        self._singly: set[str] = set()
        self._begun: set[str] = set()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._sending = 0
        self._thread = threading.Thread(target=self._work, name="records", daemon=True)
        self._thread.start()

    def write(self, note: Note) -> None:
        with self._changed:
            if self.fenced:
                return
            self._waiting.setdefault(note.key, []).append(note)
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait for all notes to be delivered, at most `timeout` seconds; True if they are."""
        with self._changed:
            self._changed.wait_for(lambda: self.denied or not self._pending, timeout)
            return not self._pending

    def close(self, timeout: float) -> bool:
        done = self.flush(timeout)
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(5)
        return done

    @property
    def _pending(self) -> bool:
        return bool(self._waiting or self._sending)

    @property
    def backlog(self) -> int:
        with self._changed:
            return self._sending + sum(map(len, self._waiting.values()))

    def _work(self) -> None:
        pause, denied_since = FIRST_PAUSE, None
        while notes := self._take():
            away = False
            try:
                self.send(notes)
                self._begun.add(notes[0].key)
                self.away_since, self.denied, denied_since = None, "", None
            except Refused as problem:
                self._refuse(notes, problem)
            except Fenced:
                self._fence()
                return
            except Exception as problem:  # the driver must survive every error of the store
                away = True
                self.away_since = self.away_since or time.time()
                self._put_back(notes)
                denied_since = (denied_since or time.monotonic()) if isinstance(problem, Denied) else None
                if denied_since and time.monotonic() - denied_since >= TOLERANCE:
                    self._deny(str(problem))
            with self._changed:
                self._sending = 0
                self._changed.notify_all()
            if away:
                self._stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE) if away else FIRST_PAUSE

    def _deny(self, reason: str) -> None:
        first, self.denied = not self.denied, reason
        if first:
            self.on_denied(reason)

    def _fence(self) -> None:
        with self._changed:
            self.fenced, self._sending = True, 0
            self._waiting.clear()
            self._changed.notify_all()

    def _refuse(self, notes: list[Note], problem: Refused) -> None:
        """From now on send the run's notes one by one, so that one wrong note does not take correct notes with it."""
        if len(notes) == 1:
            self.refused.append((notes[0], problem))
        else:
            self._singly.add(notes[0].key)
            self._put_back(notes)

    def _take(self) -> list[Note]:
        """All notes of the run that has waited longest; none after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stop.is_set())
            if self._stop.is_set():
                return []
            key = next(iter(self._waiting))
            notes = self._waiting.pop(key)
            if key in self._singly and notes[1:]:
                self._waiting = {key: notes[1:]} | self._waiting
                notes = notes[:1]
            self._sending = len(notes)
            return notes

    def _put_back(self, notes: list[Note]) -> None:
        """Put notes at the end of the queue, before newer notes of the same run.

        A run without a first delivered note stays before the other such runs: runs are created in order.
        """
        key = notes[0].key
        with self._changed:
            self._sending = 0
            returned = {key: notes + self._waiting.pop(key, [])}
            if key in self._begun:
                self._waiting |= returned
            else:
                begun = {other: waiting for other, waiting in self._waiting.items() if other in self._begun}
                self._waiting = begun | returned | self._waiting
