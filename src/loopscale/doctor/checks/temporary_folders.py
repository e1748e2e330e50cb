"""Temporary folders and Ray sessions of killed processes of this user."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from typing_extensions import override

from loopscale.core.temporary import abandoned, remove
from loopscale.doctor.check import CannotMend, Check, Finding, Patient


class TemporaryFolders(Check):
    """No process of this user has died and left a temporary folder or a Ray session behind."""

    name = "temporary folders"
    stage = "leftovers"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        for folder in list(abandoned()):
            what = "the process that made the folder is dead"
            yield Finding(
                "note", str(folder), what, "the next run removes the folder", partial(_remove, folder)
            )


def _remove(folder: Path) -> str:
    if not remove([folder]):
        raise CannotMend(f"{folder} cannot be removed")
    return "removed"
