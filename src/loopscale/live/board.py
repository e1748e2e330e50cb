"""The state of the page in named parts. A browser gets the parts that have changed since its last message.

A browser that was slow or away gets every part once, in its newest form. So no message waits in a queue, and a slow
browser costs nothing.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

QUIET_SECONDS = 15.0
"""Time without a change after which a browser gets a comment. A connection that is gone is then noticed."""


class Board:
    """The parts of the page as JSON, each with the version of its last change. Any thread may change the parts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: dict[str, tuple[int, str]] = {}
        self._readers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._version = 0
        self.closed = False
        """True after the last change."""

    def update(self, parts: Mapping[str, Any]) -> bool:
        """Set these parts. None removes a part. Returns whether a part has changed."""
        texts = {
            name: json.dumps(value, allow_nan=False, separators=(",", ":")) for name, value in parts.items()
        }
        with self._lock:
            known = {name: text for name, (_, text) in self._parts.items()}
            changed = {name: text for name, text in texts.items() if known.get(name, "null") != text}
            if not changed:
                return False
            self._version += 1
            self._parts |= {name: (self._version, text) for name, text in changed.items()}
        self._wake()
        return True

    def close(self) -> None:
        """End every stream after the newest state."""
        self.closed = True
        self._wake()

    def since(self, version: int) -> tuple[int, str]:
        """The newest version, and the parts that have changed since `version` as one JSON object in one line."""
        with self._lock:
            changed = {name: text for name, (changed_in, text) in self._parts.items() if changed_in > version}
            version = self._version
        entries = ",".join(f"{json.dumps(name)}:{text}" for name, text in changed.items())
        return version, f"{{{entries}}}"

    async def events(self) -> AsyncIterator[str]:
        """Server-sent events: `state` with all parts, messages with changed parts, and `end` after the last change."""
        with self._reader() as changed:
            version, parts = self.since(0)
            yield f"event: state\nid: {version}\ndata: {parts}\n\n"
            while not self.closed:
                try:
                    await asyncio.wait_for(changed.wait(), QUIET_SECONDS)
                except TimeoutError:
                    yield ": no change\n\n"
                    continue
                changed.clear()
                newest, parts = self.since(version)
                if newest > version:  # else a change woke this reader after it had sent the change
                    yield f"id: {newest}\ndata: {parts}\n\n"
                version = newest
            newest, parts = self.since(version)
            yield f"event: end\nid: {newest}\ndata: {parts}\n\n"

    @contextmanager
    def _reader(self) -> Iterator[asyncio.Event]:
        changed = asyncio.Event()
        with self._lock:
            self._readers[changed] = asyncio.get_running_loop()
        try:
            yield changed
        finally:
            with self._lock:
                del self._readers[changed]

    def _wake(self) -> None:
        with self._lock:
            readers = list(self._readers.items())
        for changed, loop in readers:
            with suppress(RuntimeError):  # the loop of the server has ended
                loop.call_soon_threadsafe(changed.set)
