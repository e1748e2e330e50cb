"""Folders and links where the store has files, and files where the store has folders."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from typing_extensions import override

from loopscale.doctor.check import Check, Finding, Patient


class Places(Check):
    """Locks and checkpoints are files, and the folders of the store are folders."""

    name = "places"
    stage = "places"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.store.read_only:
            return
        storage = patient.store.storage
        for path in [storage / "open.lock", *storage.glob("locks/*.lock"), *storage.glob("mirror/*/lock")]:
            if path.exists() and not path.is_file():
                yield _wrong(path, "a lock is a file")
        for path in storage.glob("checkpoints/*.safetensors"):
            if path.is_dir():
                yield _wrong(path, "a checkpoint is a file")
        for name in ("checkpoints", "locks", "mirror", "ray", "reports", "artifacts"):
            if (storage / name).exists() and not (storage / name).is_dir():
                yield _wrong(storage / name, "a folder of the store has this name")


def _wrong(path: Path, reason: str) -> Finding:
    kind = "a folder" if path.is_dir() else "a file" if path.is_file() else "no file"
    remedy = "rename the path; loopscale makes the right one"
    return Finding("error", str(path), f"the path is {kind}, and {reason}", remedy, partial(_rename, path))


def _rename(path: Path) -> str:
    aside = path.with_name(f"{path.name}.{time.time_ns()}.moved")
    path.rename(aside)
    return f"renamed to {aside.name}"
