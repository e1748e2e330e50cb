"""A store of checkpoints: files by name, in a folder or a bucket. A write replaces a whole file or nothing.

The errors of a store come from the machine or the network, never from the trial. They have their own exceptions.
This module does not import torch, because commands that only read records open a store without using the store.
"""

import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from loopscale.errors import StorageError

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two attempts while a store is unavailable. The pause doubles after every attempt."""

Result = TypeVar("Result")


class StorageUnavailable(StorageError):
    """Files cannot be read or written at the moment. The text is `<the fault>; <the remedy>`."""


class StorageDenied(StorageUnavailable):
    """The user has no permission, or a folder has the name of the file. Another attempt would fail in the same way."""


class StorageMissing(StorageUnavailable):
    """The folder or bucket does not exist. Another attempt would fail in the same way."""


class BadAddress(ValueError):
    """The address is no valid place for files. The text is as in StorageUnavailable."""


class CheckpointStore(ABC):
    """Files by name.

    All methods except `describe` retry for `patience` seconds and then raise StorageUnavailable.
    """

    patience: float

    @property
    @abstractmethod
    def url(self) -> str:
        """The address that opens this store on another machine."""

    @abstractmethod
    def describe(self, name: str) -> str:
        """The location of a file, as text for users."""

    @abstractmethod
    def make(self) -> None:
        """Create the folder. Only drivers call this: on a worker, a missing folder means that it is not mounted."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """The whole file. During a write, the old or the new content. Raises FileNotFoundError."""

    @abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Replace the file. Readers see the old or the new content, also after a power failure."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove the file if it exists."""

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all files, sorted. Empty if the place does not exist."""

    @abstractmethod
    def sweep(self) -> int:
        """Delete the partial files of dead writers and return their number. Safe while other writers work."""

    def check(self) -> None:
        """Write a file and delete it."""
        probe = f".probe-{socket.gethostname()}-{os.getpid()}"
        self.put(probe, b"")
        self.delete(probe)

    def _retry(self, action: Callable[[], Result]) -> Result:
        until, pause = time.monotonic() + self.patience, FIRST_PAUSE
        while True:
            try:
                return action()
            except (StorageDenied, StorageMissing):
                raise
            except StorageUnavailable:
                if time.monotonic() + pause > until:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
