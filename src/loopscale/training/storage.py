"""Where checkpoints lie: files by name, in a folder or a bucket, each replaced whole or not at all.

What a shelf cannot do is the machine's fault or the network's, never the trial's, and has an exception of its own.
Nothing here imports torch: verbs that only read records open a shelf without looking into it.
"""

import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

SCHEMES = ("s3", "gs", "abfs", "abfss")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between tries while a shelf cannot be used; doubled each time."""

Result = TypeVar("Result")


class StorageUnavailable(OSError):
    """Files cannot be kept or had here and now. The text: `<what is wrong>; <what would be right>`."""


class StorageDenied(StorageUnavailable):
    """Whoever asks may not. Asking again would change nothing."""


class StorageMissing(StorageUnavailable):
    """There is no such folder or bucket. Asking again would change nothing."""


class BadAddress(ValueError):
    """Nothing can lie at an address like this. Text as in StorageUnavailable."""


class CheckpointStore(ABC):
    """Files by name. All methods but `describe` raise StorageUnavailable, after `patience` seconds of trying again."""

    patience: float

    @staticmethod
    def open(where: str | Path, patience: float | None = None) -> "CheckpointStore":
        """The shelf at a folder or URL; nothing is reached for yet. Raises BadAddress.

        `patience` is in seconds; by default what the kind has: little for a disk, minutes for a server.
        """
        text = str(where)
        if text.startswith("file:"):
            text = unquote(urlsplit(text).path)
        if "://" not in text:
            from loopscale.training.folder import Folder

            return Folder(Path(text), Folder.patience if patience is None else patience)
        from loopscale.training.bucket import Bucket

        return Bucket(text, Bucket.patience if patience is None else patience)

    @property
    @abstractmethod
    def url(self) -> str:
        """What `open` takes on another machine."""

    @abstractmethod
    def describe(self, name: str) -> str:
        """Where a file lies, for a person."""

    @abstractmethod
    def make(self) -> None:
        """Make the place if that is ours to do. For drivers: a worker that finds no folder has it not mounted."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """The whole file, the old or the new one if it is being replaced. Raises FileNotFoundError."""

    @abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Replace the file: whoever reads sees the old one or the new one, also after a power cut."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove the file, if it is there."""

    @abstractmethod
    def names(self) -> list[str]:
        """All files, sorted; none where the place is missing."""

    @abstractmethod
    def sweep(self) -> int:
        """Delete what writers that died have left; how many there were. Safe beside writers at work."""

    def check(self) -> None:
        """Write a file and delete it."""
        probe = f".probe-{socket.gethostname()}-{os.getpid()}"
        self.put(probe, b"")
        self.delete(probe)

    def _patiently(self, act: Callable[[], Result]) -> Result:
        until, pause = time.monotonic() + self.patience, FIRST_PAUSE
        while True:
            try:
                return act()
            except (StorageDenied, StorageMissing):
                raise
            except StorageUnavailable:
                if time.monotonic() + pause > until:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
