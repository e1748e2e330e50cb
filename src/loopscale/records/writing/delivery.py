"""Carries notes to the store behind everybody's back: a queue and a thread that know nothing of MLflow.

Each run's notes arrive in order, all that has gathered at once, and runs come to be there in the order in which
they were first written of: else a driver that dies would leave gaps. What cannot be delivered waits in memory and is
tried again until it can; what is refused is kept, so that it can be said aloud at the end. Where we may not write for
a while, nobody waits for us any more: whoever drives hears of it.
"""

import threading
import time
from collections.abc import Callable

from loopscale.records.model.note import Note

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between tries while the store is away; doubled each time."""
TOLERANCE = 20.0
"""Seconds for which a store may deny us what it let us do before: a proxy that restarts does."""


class Refused(Exception):
    """The store has understood the notes and does not want them: asking again would change nothing."""


class Denied(Exception):
    """We may not write, or are not known any more: not the notes' fault, and nothing that waiting mends."""


class Fenced(Exception):
    """The records are another's to write now. What waits is thrown away: the other has it from the checkpoints."""


class Delivery:
    """Calls `send` with a run's notes; it raises Refused for wrong ones, Fenced to end, anything else to be asked
    again.

    Where it has raised Denied for longer than TOLERANCE, `denied` says so, `shut` is called with it, once, from a
    thread, and `flush` waits no longer; the notes are kept and tried all the same.
    """

    def __init__(
        self,
        send: Callable[[list[Note]], None],
        shut: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.send, self.shut = send, shut
        self.fenced = False
        self.denied = ""
        self.refused: list[tuple[Note, Exception]] = []
        self.away_since: float | None = None
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
            except Exception as problem:  # the driver must outlive whatever the store says
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
            self.shut(reason)

    def _fence(self) -> None:
        with self._changed:
            self.fenced, self._sending = True, 0
            self._waiting.clear()
            self._changed.notify_all()

    def _refuse(self, notes: list[Note], problem: Refused) -> None:
        """One bad note must not take the good ones with it: from now on its run's notes go one by one."""
        if len(notes) == 1:
            self.refused.append((notes[0], problem))
        else:
            self._singly.add(notes[0].key)
            self._put_back(notes)

    def _take(self) -> list[Note]:
        """All that waits for the run that has waited longest; nothing when closed."""
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
        """To the end of the queue of runs, but before what has come for the same run meanwhile.

        A run that is not there yet stays before those that are not there either.
        """
        key = notes[0].key
        with self._changed:
            self._sending = 0
            ours = {key: notes + self._waiting.pop(key, [])}
            if key in self._begun:
                self._waiting |= ours
            else:
                begun = {other: each for other, each in self._waiting.items() if other in self._begun}
                self._waiting = begun | ours | self._waiting
