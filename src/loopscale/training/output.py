"""What a trial prints: kept beside its checkpoint, so that the text can be read after the trial's host is gone.

Ray keeps the output of a worker in files of the worker's host. The output of one trial is hard to find there, and is
lost with the host. So a worker sends the text of its trial to the store of checkpoints every few seconds. A trial that
prints nothing has no file.
"""

import fcntl
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from loopscale.training.storage import CheckpointStore, StorageUnavailable

OUTPUT_SUFFIX = ".log"
MOST_BYTES = 256 * 1024
"""The last bytes of a trial's output are kept."""
SEND_SECONDS = 5.0
"""Time between two looks for new text. The text of this time is lost if the process or its host dies."""
RETRY_SECONDS = 2.0
"""Time for retries of a store that is away."""
END_SECONDS = 1.0
"""Time that the end of a trial waits for the last text. Tune gives up a worker that needs 2 s to end a trial."""
NOT_KEPT = b"== the text before is not kept ==\n"
CUT = b" == the rest of this line is not kept ==\n"
UNSENT = -1
"""The size of the text that was sent, before any was sent."""
STANDARD = (1, 2)
"""The file descriptors of standard output and standard error."""


class TrialOutput:
    """The output of one attempt to train a trial, in a local file.

    `send` puts the last MOST_BYTES of all attempts into the store.
    """

    def __init__(self, store: CheckpointStore, key: str, file: int) -> None:
        self.store, self.name, self.file = store, key + OUTPUT_SUFFIX, file
        self._earlier: bytes | None = None
        self._sent = UNSENT

    def send(self) -> None:
        """Bring the store up to date. Raises StorageUnavailable."""
        size = os.fstat(self.file).st_size
        if size == self._sent or (size == 0 and self._earlier is None):
            return
        if self._earlier is None:
            self._earlier = _stored(self.store, self.name) + _heading()
        begin = max(0, size - MOST_BYTES)
        text = os.pread(self.file, size - begin, begin)
        kept = _last(NOT_KEPT + text if begin else self._earlier + text)
        if size > 8 * MOST_BYTES:  # a trial that prints all the time must not fill the disk
            # The cut comes before the store, which can be slow: text that comes meanwhile stays in the file.
            os.ftruncate(self.file, 0)
            self._earlier, size = _ended(kept), 0
            self._sent = UNSENT
        self.store.put(self.name, kept)
        self._sent = size


def _heading() -> bytes:
    at = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return f"== process {os.getpid()} on {socket.gethostname()}, {at} ==\n".encode()


def _last(text: bytes) -> bytes:
    """The last MOST_BYTES, from the begin of a line if a line begins there."""
    if len(text) <= MOST_BYTES:
        return text
    kept = text[-MOST_BYTES:]
    _, newline, lines = kept.partition(b"\n")
    return NOT_KEPT + (lines if newline else kept)


def _ended(text: bytes) -> bytes:
    """The text with its last line ended: the rest of a line that was just printed is lost when the file is cut."""
    return text if text.endswith(b"\n") else text + CUT


def _stored(store: CheckpointStore, name: str) -> bytes:
    try:
        return store.get(name)
    except FileNotFoundError:
        return b""


def read_output(store: CheckpointStore, key: str) -> str:
    """What all attempts to train a trial have printed; empty if they printed nothing. Raises StorageUnavailable."""
    return _stored(store, key + OUTPUT_SUFFIX).decode(errors="replace")


@contextmanager
def kept_output(store: CheckpointStore, key: str, pause: float = SEND_SECONDS) -> Iterator[None]:
    """Keep what this process writes to standard output and standard error inside the context.

    The output of libraries outside Python counts. A store that is away never ends the trial, and the text waits. If the
    store is still away at the end of the context, the last text is lost.
    """
    over = threading.Event()

    def send_until_over(file: BinaryIO) -> None:
        output = TrialOutput(store, key, file.fileno())
        with file:
            while not over.wait(pause):
                _flush()
                with suppress(StorageUnavailable):
                    output.send()
            with suppress(StorageUnavailable):
                output.send()

    # The file has no name, so that nothing is left of it after a crash. `send` may cut the file.
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - the thread closes the file
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    thread = threading.Thread(target=send_until_over, args=[file], name="output of the trial", daemon=True)
    try:
        with _redirected(file.fileno()):
            thread.start()
            yield
    finally:
        over.set()
        thread.join(END_SECONDS)


@contextmanager
def _redirected(target: int) -> Iterator[None]:
    """Let standard output and standard error of this process go to a file."""
    _flush()
    saved = [os.dup(each) for each in STANDARD]
    try:
        for each in STANDARD:
            os.dup2(target, each)
        yield
    finally:
        _flush()
        for each, original in zip(STANDARD, saved, strict=True):
            os.dup2(original, each)
            os.close(original)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
