"""Partial files and folders of killed drivers, inside the store."""

import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from typing_extensions import override

from loopscale.doctor.check import Check, Finding, Patient

PATTERNS = (
    "artifacts/*/artifacts/**/.*.part",
    "mirror/*/*.part",
    "mirror/*/*/*.part",
    "checkpoints/*.part",
    "*.part",
)
"""The partial files below the storage."""
LONGEST_WRITE = 3600.0
"""Seconds after which no process still writes a partial file."""


class PartialFiles(Check):
    """No killed driver has left a partial file, or Ray's folder of a study."""

    name = "partial files"
    stage = "leftovers"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.in_use or patient.store.read_only:
            return
        storage, now = patient.store.storage, time.time()
        for path in sorted({path for pattern in PATTERNS for path in storage.glob(pattern)}):
            if path.is_file() and now - path.stat().st_mtime > LONGEST_WRITE:
                yield _leftover(path, "a killed writer has left the partial file")
        for path in sorted(storage.glob("ray/*/")):
            yield _leftover(path, "a killed driver has left the folder of Ray Tune")


def _leftover(path: Path, problem: str) -> Finding:
    return Finding("note", str(path), problem, "remove the path", partial(_remove, path))


def _remove(path: Path) -> str:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return "removed"
