"""Open files of a store. A damaged disk or another program may have put anything in their place.

A pipe waits for a writer or a reader for ever, and a device may have no end.
"""

import errno
import os
import stat
from pathlib import Path
from typing import IO, Any

IRREGULAR = "it is a folder, a pipe or a device"


def open_regular(file: Path, mode: str, errors: str | None = None) -> IO[Any]:
    """Open a regular file as `open` does, also behind a link.

    Raises
    ------
    IsADirectoryError
        If the file is a folder, a pipe, a socket or a device. `strerror` is the reason for a person.
    OSError
        If the file is absent or forbidden.
    """

    def opener(path: str, flags: int) -> int:
        # Without O_NONBLOCK, the opening of a pipe waits for its other end.
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
        raise IsADirectoryError(errno.EISDIR, IRREGULAR, path)

    try:
        return open(file, mode, errors=errors, opener=opener)
    except OSError as problem:
        # ENXIO: no program reads the pipe, or the path is a socket.
        if problem.errno in (errno.EISDIR, errno.ENXIO):
            raise IsADirectoryError(errno.EISDIR, IRREGULAR, str(file)) from problem
        raise


def read_regular(file: Path) -> bytes:
    """The content of a regular file, also behind a link.

    Raises OSError as `open_regular` does, and for a file that is larger than the memory, as a damaged size can be.
    """
    with open_regular(file, "rb") as stream:
        try:
            return stream.read()
        except MemoryError:
            raise OSError(errno.ENOMEM, "it is larger than the memory", str(file)) from None


def is_misplaced(file: Path) -> bool:
    """True if something that is no regular file has the name of a file. A link counts as its target."""
    return os.path.lexists(file) and not os.path.isfile(file)
