"""Folders and links where the store has files, and files where the store has folders."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from typing_extensions import override

from loopscale.core.files import is_misplaced
from loopscale.doctor.check import Check, Finding, Patient
from loopscale.records.stores.base import misplaced_folders

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

OF_RUNS = ("artifacts/*", "artifacts/*/artifacts")
"""The patterns of folders that belong to runs."""
MOVED = ".moved"
"""Suffix of a path that was put aside."""


class Places(Check):
    """Locks and checkpoints are files, and the folders of the store are folders."""

    name = "places"
    stage = "places"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.store.read_only:
            return
        for path, reason in misplaced(patient):
            kind = "a folder" if path.is_dir() else "a file" if path.is_file() else "no file"
            remedy = "rename the path; loopscale makes the right one"
            yield Finding(
                "error", str(path), f"the path is {kind}, and {reason}", remedy, partial(_rename, path)
            )


def misplaced(patient: Patient) -> Iterator[tuple[Path, str]]:
    """The paths that are folders, pipes or devices in the place of files, or that have the name of a folder."""
    storage = patient.store.storage
    for kind, patterns in FILES.items():
        for path in sorted(path for pattern in patterns for path in storage.glob(pattern)):
            if is_misplaced(path):
                yield path, f"a {kind} is a file"
    for root in {storage, patient.folder or storage}:
        for path in misplaced_folders(root):
            yield path, "a folder of the store has this name"
        for path in sorted(path for pattern in OF_RUNS for path in root.glob(pattern)):
            if not path.is_dir() and not path.name.endswith(MOVED):
                yield path, "a folder of a run has this name"


def _rename(path: Path) -> str:
    aside = path.with_name(f"{path.name}.{time.time_ns()}{MOVED}")
    path.rename(aside)
    return f"renamed to {aside.name}"
