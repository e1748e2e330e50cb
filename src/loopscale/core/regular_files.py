"""Read files of a store, of which a damaged disk or another program may have made anything."""

import errno
import stat
from pathlib import Path


def read_regular(file: Path) -> bytes:
    """The content of a regular file, also behind a link.

    A pipe waits for a writer for ever, and a device may have no end.

    Raises
    ------
    OSError
        If the file is absent or unreadable, or is a folder, a pipe or a device.
    """
    if not stat.S_ISREG(file.stat().st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder, a pipe or a device", str(file))
    return file.read_bytes()
