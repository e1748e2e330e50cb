"""Names of files and folders that a file system takes, for names of studies of any length."""

from hashlib import sha256

LONGEST_FILE_NAME = 255
"""Bytes in the name of a file on the usual file systems."""
LONGEST_STUDY_NAME = 200
"""Characters of the name of a study that a person gives to records. Escaped, the name is a folder of an export."""
DIGITS = 16
"""Hexadecimal digits of the hash."""


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
