"""Folders of this machine: found, made and locked."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loopscale.records.model.errors import StoreError

STORE_REMEDY = "give another folder with --store or LOOPSCALE_STORE"


def absolute_folder(text: str | Path) -> Path:
    """The folder's absolute path. Raises StoreError for `~name` if there is no user `name`."""
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as problem:
        raise StoreError(f"there is no folder {text} ({problem})", "write its path without ~") from problem


def storage_folder(text: str | Path, create: bool) -> Path:
    """The folder for checkpoints, locks and the mirror. With `create`, StoreError unless it can be written."""
    folder = absolute_folder(text)
    remedy = "give another folder with --storage"
    if create:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise unwritable(folder, problem, remedy) from problem
        if not os.access(folder, os.W_OK):
            raise StoreError(f"cannot write to {folder}", remedy)
    return folder


@contextmanager
def file_lock(folder: Path, name: str = "open.lock") -> Iterator[None]:
    """Lock a file of `folder` against other processes of this machine. Waits for the other processes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / name).open("a")
    except OSError as problem:
        raise unwritable(folder, problem) from problem
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def unwritable(folder: Path, problem: OSError | ValueError, remedy: str = STORE_REMEDY) -> StoreError:
    reason = getattr(problem, "strerror", None) or str(problem)
    return StoreError(f"cannot write to {folder} ({reason})", remedy)
