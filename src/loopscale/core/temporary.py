"""Temporary folders whose name tells the process that owns the folder. A later process removes folders of dead owners.

A process that is killed leaves its folders behind. The owner of a folder is provably dead if the machine has started
anew since, or if no process has the owner's number and start time. Processes of another machine and of another
namespace are invisible, so their folders stay. So do the folders of other users.

The path of a socket is short, so the folder of a private Ray has a short name, which cannot tell its owner. A temporary
folder of the driver marks the folder of Ray.
"""

import atexit
import os
import re
import shutil
import socket
import tempfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

FOLDER_NAME = re.compile(
    r"loopscale-(?P<purpose>[a-z]+)-(?P<process>\d+)\.(?P<start>\d+)\.(?P<boot>[0-9a-f]+)\.(?P<space>\w+)\.(?P<host>\w+)-\w+"
)
FOLDER_PREFIX = "loopscale-"
MARK, MARKED = "ray", "folder"
"""The purpose of a temporary folder that marks another folder, and its file with the path of that folder."""


@dataclass(frozen=True)
class Owner:
    """A process, told apart from every other process of all machines and times."""

    process: int
    start: int
    """The start of the process, in ticks since the start of the machine."""
    boot: str
    """The start of the machine."""
    space: str
    """The namespace of the process's number: a container has a namespace of its own."""
    host: str

    @classmethod
    def of_folder(cls, name: str) -> Self | None:
        """The owner that the name of a temporary folder tells; None for a name of another form."""
        if not (match := FOLDER_NAME.fullmatch(name)):
            return None
        process, start = int(match["process"]), int(match["start"])
        return cls(process, start, match["boot"], match["space"], match["host"])

    @property
    def is_dead(self) -> bool:
        """True if the process has provably ended."""
        here = this_process()
        if here is None or self.host != here.host:
            return False
        if self.boot != here.boot:
            return True
        return self.space == here.space and _start_of(self.process) != self.start

    def __str__(self) -> str:
        return f"{self.process}.{self.start}.{self.boot}.{self.space}.{self.host}"


def this_process() -> Owner | None:
    """This process; None where the operating system does not tell enough."""
    machine, start = _machine(), _start_of(os.getpid())
    return Owner(os.getpid(), start, *machine) if machine and start is not None else None


@cache
def _machine() -> tuple[str, str, str] | None:
    """The start of this machine, the namespace of this process, and the host."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:12]
        space = re.sub(r"\W", "", os.readlink("/proc/self/ns/pid").removeprefix("pid:"))
    except OSError:
        return None
    return boot, space, f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _start_of(process: int) -> int | None:
    """The start of a process in ticks; None if there is no process of this number."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])  # the name of the program may hold spaces and brackets


def make_folder(purpose: str, place: Path | None = None) -> Path:
    """A new temporary folder that stays until somebody removes the folder.

    Parameters
    ----------
    purpose
        One word in small letters.
    place
        The folder above. Without a place, the folder for temporary files; names in another place begin with a point.
    """
    owner = this_process()
    name = f"loopscale-{purpose}-{owner}-" if owner else "loopscale-"
    return Path(tempfile.mkdtemp(prefix=f".{name}" if place else name, dir=place))


def lasting_folder(purpose: str) -> Path:
    """A temporary folder until the end of this process."""
    folder = make_folder(purpose)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def temporary_folder(purpose: str = "files") -> Generator[Path]:
    """A temporary folder until the end of the context."""
    folder = make_folder(purpose)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def leftovers(place: Path | None = None) -> dict[Path, Owner]:
    """The temporary folders of this user whose owners are dead. Without a place, in the folder for temporary files."""
    found: dict[Path, Owner] = {}
    with suppress(OSError):
        for entry in os.scandir(place or tempfile.gettempdir()):
            owner = Owner.of_folder(entry.name.removeprefix(".") if place else entry.name)
            with suppress(OSError):
                own = (
                    entry.is_dir(follow_symlinks=False)
                    and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
                )
                if owner and own and owner.is_dead:
                    found[Path(entry.path)] = owner
    return found


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
