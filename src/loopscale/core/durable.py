"""Files that a power cut neither empties nor takes back.

A rename alone is not enough: after a power cut the new name may belong to an empty file. The content must be on the
disk before the rename, and the list of files in the folder after the rename.
"""

import os
from pathlib import Path


def replace(part: Path, file: Path) -> None:
    """Give a complete file its name. Readers see the old or the new content, also after a power cut."""
    _flush(part)
    os.replace(part, file)
    _flush(file.parent)


def write(file: Path, content: bytes, part: Path | None = None) -> None:
    """Replace the content of a file as a whole. `part` is the partial file, by default beside the file."""
    part = part or file.with_name(f".{file.name}.part")
    part.write_bytes(content)
    replace(part, file)


def _flush(path: Path) -> None:
    """Wait until a file's content, or a folder's list of files, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
