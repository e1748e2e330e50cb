"""A shelf in a folder: part file, fsync, rename."""

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typing_extensions import override

from loopscale.training.storage import CheckpointStore, StorageDenied, StorageMissing, StorageUnavailable

LONGEST_WRITE = 3600.0
"""Seconds after which a part file of another machine, whose processes we cannot see, has no writer."""


class Folder(CheckpointStore):
    """A folder of this machine, or one that several machines have mounted."""

    patience = 15.0

    def __init__(self, path: Path, patience: float = patience) -> None:
        self.path, self.patience = path.expanduser().absolute(), patience

    @property
    @override
    def url(self) -> str:
        return str(self.path)

    @override
    def describe(self, name: str) -> str:
        return str(self.path / name)

    @override
    def make(self) -> None:
        with self._said():
            self.path.mkdir(parents=True, exist_ok=True)

    @override
    def get(self, name: str) -> bytes:
        def read() -> bytes:
            with self._said():
                return (self.path / name).read_bytes()

        return self._patiently(read)

    @override
    def put(self, name: str, content: bytes) -> None:
        def replace() -> None:
            part = self.path / f"{name}.{socket.gethostname()}.{os.getpid()}.part"
            with self._said(name):
                try:
                    with part.open("wb") as file:
                        file.write(content)
                        file.flush()
                        os.fsync(file.fileno())
                    os.replace(part, self.path / name)
                finally:
                    part.unlink(missing_ok=True)
                _flush(self.path)

        self._patiently(replace)

    @override
    def delete(self, name: str) -> None:
        with self._said():
            (self.path / name).unlink(missing_ok=True)

    @override
    def names(self) -> list[str]:
        if not self.path.exists():
            return []
        with self._said():
            found = [path for path in self.path.iterdir() if path.is_file()]
        return sorted(path.name for path in found if path.suffix != ".part" and path.name[0] != ".")

    @override
    def sweep(self) -> int:
        dead = [part for part in self.path.glob("*.part") if _is_dead(part)]
        for part in dead:
            part.unlink(missing_ok=True)
        return len(dead)

    @contextmanager
    def _said(self, name: str = "") -> Iterator[None]:
        """Say what the operating system says as what it means for the folder."""
        try:
            yield
        except OSError as problem:
            if isinstance(problem, FileNotFoundError) and not name and self.path.is_dir():
                raise  # of a file that is not there
            place = self.path / name
            if problem.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST):
                raise StorageMissing(
                    f"there is no folder {self.path} on {socket.gethostname()}; mount it there, "
                    "or give a folder that all machines have, or a bucket, with --storage"
                ) from problem
            kind = (
                StorageDenied
                if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
                else StorageUnavailable
            )
            raise kind(
                f"{socket.gethostname()} cannot use {place} ({problem.strerror or problem}); make room or mend it, "
                "or give another folder with --storage"
            ) from problem


def _flush(folder: Path) -> None:
    """Wait until the folder's list of names is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_dead(part: Path) -> bool:
    name, _, process = part.name.removesuffix(".part").rpartition(".")
    try:
        if name.endswith(f".{socket.gethostname()}") and process.isdecimal():
            os.kill(int(process), 0)
        return time.time() - part.stat().st_mtime > LONGEST_WRITE
    except (ProcessLookupError, OverflowError):
        return True
    except (PermissionError, FileNotFoundError):
        return False
