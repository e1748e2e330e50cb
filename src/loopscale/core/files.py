"""Files and folders of a store: private, whole after a power cut, regular, and with names of a bounded length.

A rename alone is not enough: after a power cut the new name may belong to an empty file. The content must be on the
disk before the rename, and the list of files in the folder after the rename.

A damaged disk or another program may have put anything in the place of a file. A pipe waits for a writer or a reader
for ever, and a device may have no end.
"""

import errno
import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

PRIVATE = 0o700
IRREGULAR = "it is a folder, a pipe or a device"
LONGEST_FILE_NAME = 255
"""Bytes in the name of a file on the usual file systems."""
LONGEST_STUDY_NAME = 200
"""Characters of the name of a study that a person gives to records. Escaped, the name is a folder of an export."""
DIGITS = 16
"""Hexadecimal digits of the hash."""


def make_private(folder: Path) -> None:
    """Make a folder that only this user can open, with the missing folders above it.

    A folder that exists keeps its permissions, because a group may share the folder on purpose. The folders above have
    the permissions of the process's umask. They hold no records.
    """
    folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)


def replace_whole(part: Path, file: Path) -> None:
    """Give a complete file its name. Readers see the old or the new content, also after a power cut."""
    _flush(part)
    os.replace(part, file)
    _flush(file.parent)


def write_whole(file: Path, content: bytes, part: Path | None = None) -> None:
    """Replace the content of a file as a whole. `part` is the partial file, by default beside the file."""
    part = part or file.with_name(f".{file.name}.part")
    part.write_bytes(content)
    replace_whole(part, file)


def _flush(path: Path) -> None:
    """Wait until a file's content, or a folder's list of files, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


def bounded_name(name: str, suffix: str = "", longest: int = LONGEST_FILE_NAME) -> str:
    """The name with the suffix, in at most `longest` bytes of UTF-8. A name that fits stays as it is.

    A longer name keeps its beginning and ends with a hash of the whole name, so that different names stay different.
    """
    whole, room = name.encode(), longest - len(suffix.encode())
    if len(whole) > room:
        beginning = whole[: room - DIGITS - 1].decode(errors="ignore")
        name = f"{beginning}~{sha256(whole).hexdigest()[:DIGITS]}"
    return name + suffix


def bounded_path(name: str, suffix: str = "") -> str:
    """The path that a name with slashes stands for, with the suffix. Each part is bounded as in `bounded_name`."""
    *folders, file = name.split("/")
    return "/".join([*map(bounded_name, folders), bounded_name(file, suffix)])
