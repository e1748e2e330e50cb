"""Stores of checkpoints in a folder or a bucket, by address.

In a folder, a write fills a partial file, calls fsync and renames the file.
"""

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from typing_extensions import override

from loopscale.core.files import make_private, read_regular, write_whole
from loopscale.training.bucket import Bucket
from loopscale.training.storage import CheckpointStore, StorageDenied, StorageMissing, StorageUnavailable

LONGEST_WRITE = 3600.0
"""Seconds until a partial file of another machine counts as abandoned. The processes of that machine are invisible."""


class Folder(CheckpointStore):
    """A folder of this machine, or a folder that several machines have mounted."""

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
        with self._explained():
            make_private(self.path)

    @override
    def get(self, name: str) -> bytes:
        def read() -> bytes:
            with self._explained():
                return read_regular(self.path / name)

        return self._retry(read)

    @override
    def put(self, name: str, content: bytes) -> None:
        def replace() -> None:
            part = self.path / f"{name}.{socket.gethostname()}.{os.getpid()}.part"
            with self._explained(name):
                try:
                    write_whole(self.path / name, content, part)
                finally:
                    part.unlink(missing_ok=True)

        self._retry(replace)

    @override
    def delete(self, name: str) -> None:
        with self._explained():
            (self.path / name).unlink(missing_ok=True)

    @override
    def names(self) -> list[str]:
        if not self.path.exists():
            return []
        with self._explained():
            files = [path for path in self.path.iterdir() if path.is_file()]
        return sorted(path.name for path in files if path.suffix != ".part" and path.name[0] != ".")

    @override
    def sweep(self) -> int:
        dead = [part for part in self.path.glob("*.part") if _is_dead(part)]
        for part in dead:
            part.unlink(missing_ok=True)
        return len(dead)

    @contextmanager
    def _explained(self, name: str = "") -> Iterator[None]:
        """Translate errors of the operating system into errors of storage."""
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not name and self.path.is_dir():
                raise  # the folder exists, the file does not
            place, host = self.path / name, socket.gethostname()
            irregular = error.errno == errno.EISDIR and error.filename
            if irregular or (os.path.lexists(self.path) and not os.path.isdir(self.path)):
                place = error.filename if irregular else self.path
                reason = error.strerror if irregular else "it is no folder"
                raise (StorageDenied if irregular else StorageMissing)(
                    f"{host} cannot use {place} ({reason}); rename the path, or let `loopscale doctor --repair` do so"
                ) from error
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST):
                raise StorageMissing(
                    f"there is no folder {self.path} on {host}; mount it there, "
                    "or give a folder that all machines have, or a bucket, with --storage"
                ) from error
            denied = error.errno in (
                errno.EACCES,
                errno.EPERM,
                errno.EROFS,
                errno.EISDIR,
                errno.ELOOP,
                errno.ENOMEM,
            )
            raise (StorageDenied if denied else StorageUnavailable)(
                f"{host} cannot use {place} ({error.strerror or error}); make room or repair it, "
                "or give another folder with --storage"
            ) from error


def _is_dead(part: Path) -> bool:
    """Whether the writer of a partial file has ended."""
    name, _, process = part.name.removesuffix(".part").rpartition(".")
    try:
        if name.endswith(f".{socket.gethostname()}") and process.isdecimal():
            os.kill(int(process), 0)
        return time.time() - part.stat().st_mtime > LONGEST_WRITE
    except (ProcessLookupError, OverflowError):
        return True
    except (PermissionError, FileNotFoundError):
        return False


def open_checkpoint_store(where: str | Path, patience: float | None = None) -> CheckpointStore:
    """The store at a folder or URL. Opening does not access the store. Raises BadAddress.

    `patience` is the time for retries in seconds. By default 15 s for a folder and 300 s for a bucket.
    """
    text = str(where)
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    if "://" in text:
        return Bucket(text, Bucket.patience if patience is None else patience)
    return Folder(Path(text), Folder.patience if patience is None else patience)
