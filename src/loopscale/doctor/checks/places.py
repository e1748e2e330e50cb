"""Folders and links where the store has files, and files where the store has folders."""

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from typing_extensions import override

from loopscale.core.regular_files import is_misplaced
from loopscale.doctor.check import Check, Finding, Patient

FILES = {
    "lock": (
        "open.loc[k]",
        "open.lock.hel[d]",
        "locks/*.lock",
        "locks/*.held",
        "mirror/*/loc[k]",
        "mirror/*/*.held",
    ),
    "checkpoint": ("checkpoints/*.safetensors",),
}
"""The patterns of paths that are files, by the kind of the file. `held` is the lock of a file system without locks.
Every last part is a pattern, because `glob` does not find a link to itself by its plain name."""
FOLDERS = ("checkpoints", "locks", "mirror", "ray", "reports", "artifacts")


class Places(Check):
    """Locks and checkpoints are files, and the folders of the store are folders."""

    name = "places"
    stage = "places"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.store.read_only:
            return
        for path, reason in misplaced(patient.store.storage):
            kind = "a folder" if path.is_dir() else "a file" if path.is_file() else "no file"
            remedy = "rename the path; loopscale makes the right one"
            yield Finding(
                "error", str(path), f"the path is {kind}, and {reason}", remedy, partial(_rename, path)
            )


def misplaced(storage: Path) -> Iterator[tuple[Path, str]]:
    """The paths that are folders, pipes or devices in the place of files, or that have the name of a folder."""
    for kind, patterns in FILES.items():
        for path in sorted(path for pattern in patterns for path in storage.glob(pattern)):
            if is_misplaced(path):
                yield path, f"a {kind} is a file"
    for name in FOLDERS:
        if os.path.lexists(storage / name) and not (storage / name).is_dir():
            yield storage / name, "a folder of the store has this name"


def _rename(path: Path) -> str:
    aside = path.with_name(f"{path.name}.{time.time_ns()}.moved")
    path.rename(aside)
    return f"renamed to {aside.name}"
