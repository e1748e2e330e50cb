"""Write a file that a person names, such as the target of --out, without harm to anything but a regular file.

A regular file is replaced whole or not at all, also behind a link. A pipe or a character device is written to. A disk,
a socket or a folder is refused.
"""

import codecs
import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PAGE_STARTS = (b"<!doctype html", b"<html")
"""The first bytes of an HTML page, in small letters."""


def check_page(file: Path) -> None:
    """Raises OSError for a regular file that is neither empty nor an HTML page. A page would destroy the file."""
    if not os.path.isfile(file):
        return
    with file.open("rb") as stream:
        start = stream.read(1000)
    if start and not start.removeprefix(codecs.BOM_UTF8).lstrip().lower().startswith(PAGE_STARTS):
        raise FileExistsError(errno.EEXIST, "it exists and is no HTML page", str(file))


def check_target(file: Path) -> None:
    """Raises OSError for a folder, and for a file in a folder that does not exist. Neither can be written."""
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(file))
    if not file.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))


def write_output(file: Path, content: bytes) -> None:
    """Write the content. Raises OSError, whose `strerror` is the reason for a person."""
    with open_output(file) as stream:
        stream.write(content)


@contextmanager
def open_output(file: Path) -> Generator[BinaryIO, None, None]:
    """A stream whose content becomes the file's content when the context ends without an error. Raises OSError."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        status = None
    if status and not stat.S_ISREG(status.st_mode):
        with os.fdopen(_open_special(file, status.st_mode), "wb") as stream:
            yield stream
        return
    if status and not os.access(file, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read only", str(file))
    target = Path(os.path.realpath(file))  # a link stays, and its target is replaced
    handle, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(part, stat.S_IMODE(status.st_mode) if status else file_mode(0o666))
        os.replace(part, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


def _open_special(file: Path, mode: int) -> int:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(file))
    if stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "it is a disk", str(file))
    if stat.S_ISSOCK(mode):
        raise OSError(errno.EINVAL, "it is a socket", str(file))
    try:
        # Without O_NONBLOCK, the opening of a pipe waits for a reader for ever.
        handle = os.open(file, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as problem:
        if problem.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "no program reads the pipe", str(file)) from problem
        raise
    os.set_blocking(handle, True)
    return handle


def file_mode(wanted: int) -> int:
    """The permissions of a new file or folder, less what this process keeps from others."""
    mask = os.umask(0o077)
    os.umask(mask)
    return wanted & ~mask
