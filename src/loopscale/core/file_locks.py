"""Locks of files against other processes, also where the file system has no locks.

The operating system releases a lock when its holder dies. File systems such as Lustre, or NFS with `nolock`, may have
no locks. There the lock is a file beside the locked file, `NAME.held`: its atomic creation takes the lock, and its
holder changes the file every few seconds. A file that nobody changes belongs to a dead holder.
"""

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from loopscale.core.files import IRREGULAR, bounded_name, is_misplaced, open_regular, read_regular

LONGEST_LOCK = 210
"""Bytes in the name of a lock that is a file. The names of its partial files are longer by 38 bytes."""
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPROTONOSUPPORT}
"""Errors of a file system without locks."""
BEAT_SECONDS = 5.0
"""Time between two changes of the file by its holder."""
SILENCE_SECONDS = 20.0
"""Time without a change after which a holder on another host counts as dead."""
LOOK_SECONDS = 0.1
"""Time between two looks at a lock that another process holds."""


class LockHeld(Exception):
    """Another process holds the lock. The text is its name."""


class NoLocks(OSError):
    """The file system has no locks."""


def take(file: IO[Any], how: int) -> None:
    """Lock an open file as `fcntl.flock` does. Raises NoLocks, and BlockingIOError with LOCK_NB."""
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        raise
    except OSError as problem:
        if problem.errno in NO_LOCKS:
            raise NoLocks(problem.errno, "the file system has no locks", file.name) from problem
        raise


@contextmanager
def locked(file: IO[Any], path: Path, wait: bool = True) -> Generator[None, None, None]:
    """Hold the lock of the open file at `path`. Raises LockHeld if another process holds the lock, unless `wait`."""
    try:
        take(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise LockHeld(_holder(read_regular(path).decode(errors="replace"))) from None
    except NoLocks:
        with _beating(_held_file(path), wait):
            yield
        return
    yield


def holder_of(path: Path) -> str | None:
    """The name of the process that holds the lock of `path`. None if nobody holds the lock, or if nobody can tell.

    Nothing is written, and the file may be read only.
    """
    try:
        with open_regular(path, "r", errors="replace") as file:
            try:
                take(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _holder(file.read())
            except NoLocks:
                claim = _read(_held_file(path))
                return claim["who"] if claim and not _is_dead(claim) and _is_fresh(_held_file(path)) else None
    except OSError:
        return None
    return None


def holders_of_ranges(path: Path) -> list[str]:
    """The processes of this machine that hold a lock on the file, or on a part of the file, as databases do.

    Empty if the system does not tell: on another system than Linux, or for a process on another host or container.
    """
    try:
        status, table = path.stat(), Path("/proc/locks").read_text()
    except OSError:
        return []
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    rows = [
        words for line in table.splitlines() if "->" not in (words := line.split())
    ]  # `->`: a process that waits
    return [_program(number) for number in dict.fromkeys(row[4] for row in rows if row[5:6] == [file])]


def _program(number: str) -> str:
    """A process with the name of its program, such as `process 123 (sqlite3)`."""
    try:
        return f"process {number} ({Path(f'/proc/{number}/comm').read_text().strip()})"
    except OSError:
        return f"process {number}"


def _holder(text: str) -> str:
    """The name of the holder: the first line of a lock file. The other lines are the holder's own."""
    return text.strip().partition("\n")[0]


def process_name() -> str:
    """The name of this process in a lock."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def process_here(name: str) -> int | None:
    """The number of a process of this host, from its name in a lock; None for a process of another host."""
    process, _, host = name.removeprefix("process ").partition(" on ")
    return int(process) if host == socket.gethostname() and process.isdecimal() else None


def _held_file(path: Path) -> Path:
    return path.with_name(bounded_name(path.name, ".held", LONGEST_LOCK))


@contextmanager
def _beating(held: Path, wait: bool) -> Generator[None, None, None]:
    """Hold the lock that the existence of the file is. Raises LockHeld."""
    token, over = uuid.uuid4().hex, threading.Event()
    _create(held, token, wait)

    def beat() -> None:
        beats = 1
        while not over.wait(BEAT_SECONDS):
            beats += 1
            with suppress(OSError):
                if (_read(held) or {}).get("token") == token:
                    _replace(held, token, beats)

    thread = threading.Thread(target=beat, name="lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if (_read(held) or {}).get("token") == token:
            held.unlink(missing_ok=True)


def _create(held: Path, token: str, wait: bool) -> None:
    """Make the file, after the end or the death of its holder. Raises LockHeld, and OSError for a folder or a pipe."""
    seen, since = None, time.monotonic()
    while True:
        part = held.with_name(f".{held.name}.{token}")
        part.write_text(_claim(token, 1))
        try:
            os.link(part, held)  # fails if the file exists, also on NFS, and the file is complete at once
            return
        except FileExistsError:
            if is_misplaced(held):
                raise IsADirectoryError(errno.EISDIR, IRREGULAR, str(held)) from None
        finally:
            part.unlink(missing_ok=True)
        claim = _read(held)
        if claim != seen:
            if seen is not None and claim is not None and not wait and claim["token"] == seen["token"]:
                raise LockHeld(claim["who"])
            seen, since = claim, time.monotonic()
        if seen is not None and (_is_dead(seen) or time.monotonic() - since > SILENCE_SECONDS):
            _remove_dead(held, seen)
            continue
        if seen is not None and not wait and seen["who"].endswith(f" on {socket.gethostname()}"):
            raise LockHeld(seen["who"])  # its process lives
        time.sleep(LOOK_SECONDS)


def _remove_dead(held: Path, claim: dict[str, Any]) -> None:
    """Remove the file of a dead holder. One of several processes that want to do so succeeds."""
    aside = held.with_name(f".{held.name}.{claim['token']}.dead")
    with suppress(FileNotFoundError):
        os.rename(held, aside)
        if (_read(aside) or {}).get("token") != claim["token"]:  # a new holder was faster
            with suppress(FileExistsError):
                os.link(aside, held)
        aside.unlink(missing_ok=True)


def _claim(token: str, beats: int) -> str:
    return json.dumps({"who": process_name(), "token": token, "beats": beats})


def _replace(held: Path, token: str, beats: int) -> None:
    part = held.with_name(f".{held.name}.{token}")
    part.write_text(_claim(token, beats))
    os.replace(part, held)


def _read(held: Path) -> dict[str, Any] | None:
    """The claim in the file; None without a file. A damaged file is a claim that nobody renews."""
    try:
        text = read_regular(held).decode(errors="replace")
    except OSError:
        return None
    try:
        claim = json.loads(text)
        return claim if {"who", "token", "beats"} <= claim.keys() else {"who": "?", "token": text, "beats": 0}
    except (ValueError, AttributeError):
        return {"who": "?", "token": "damaged", "beats": 0}


def _is_dead(claim: dict[str, Any]) -> bool:
    """True if the holder was a process of this host that does not exist any more."""
    process = process_here(str(claim["who"]))
    if process is None:
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def _is_fresh(held: Path) -> bool:
    """True if the file was changed a short time ago. Clocks of hosts may differ, so the time is generous."""
    try:
        return abs(time.time() - held.stat().st_mtime) < 10 * SILENCE_SECONDS
    except OSError:
        return False
