"""Folders that only their user can read, because records and checkpoints belong to the user."""

from pathlib import Path

PRIVATE = 0o700


def make_private(folder: Path) -> None:
    """Make a folder that only this user can open, with the missing folders above it.

    A folder that exists keeps its permissions, because a group may share the folder on purpose. The folders above have
    the permissions of the process's umask. They hold no records.
    """
    folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
