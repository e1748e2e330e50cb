"""Folders that killed drivers leave behind: temporary folders, and the folders of their private Rays.

The path of a socket is short, so the folder of a private Ray has a short name, which cannot tell its owner. A temporary
folder of the driver marks the folder of Ray.
"""

import os
import shutil
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loopscale.core.temporary import leftovers, temporary_folder

FOLDER_PREFIX = "loopscale-"
MARK, MARKED = "ray", "folder"
"""The purpose of a temporary folder that marks another folder, and its file with the path of that folder."""


@contextmanager
def marked(folder: Path) -> Generator[None]:
    """Mark a folder as a folder of this process. Its name starts with FOLDER_PREFIX."""
    with temporary_folder(MARK) as mark:
        (mark / MARKED).write_text(str(folder.absolute()))
        yield


def abandoned() -> Iterator[Path]:
    """Every folder of this user that a dead driver has left, with the marks after the marked folders."""
    for folder in leftovers():
        other = _marked_by(folder)
        if other and is_used(other):
            continue
        if other:
            yield other
        yield folder


def remove(folders: Iterable[Path]) -> int:
    """Remove the folders, and return their number."""
    removed = 0
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        removed += not folder.exists()
    return removed


def _marked_by(mark: Path) -> Path | None:
    """The folder of this user that a temporary folder marks; None if there is none."""
    with suppress(OSError, ValueError):
        folder = Path((mark / MARKED).read_text())
        own = folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.geteuid()
        if own and folder.is_absolute() and folder.name.startswith(FOLDER_PREFIX):
            return folder
    return None


def is_used(folder: Path) -> bool:
    """True if a process names the folder in its command, works in the folder, or has a file of the folder open.

    Ray's own processes outlive a killed driver for some seconds. The processes of other users stay out of sight, and
    they do not use the folder of this user.
    """
    name = folder.name.encode()
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with suppress(OSError):
            if name in (process / "cmdline").read_bytes():
                return True
        with suppress(OSError):
            for link in [process / "cwd", *(process / "fd").iterdir()]:
                with suppress(OSError):
                    if name in os.readlink(link).encode():
                        return True
    return False
