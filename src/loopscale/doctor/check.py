"""A check of the doctor, its findings, and the store that the doctor examines."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

from loopscale.records.model import Run, parent_among
from loopscale.records.stores.base import Store
from loopscale.records.stores.folder import FolderStore

Severity = Literal["error", "warning", "note"]
"""Severity of a finding. An error is a loss or a wrong answer. A warning becomes an error after the next damage. A note
costs nothing but room."""
Stage = Literal["places", "records", "sources", "results", "conclusions", "copies", "leftovers"]
STAGES: tuple[Stage, ...] = (
    "places",
    "records",
    "sources",
    "results",
    "conclusions",
    "copies",
    "leftovers",
)
"""The order of the checks. A check finds the repairs of the stages before: curves come from the sources, which are the
descriptions and the weights. Conclusions follow from the results."""


LISTED_NAMES = 3
"""Names that a finding lists."""


def listed(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - LISTED_NAMES:,} more" if len(names) > LISTED_NAMES else ""
    return ", ".join(names[:LISTED_NAMES]) + more


class CannotMend(Exception):
    """A repair cannot mend the damage. The text is the reason."""


@dataclass(frozen=True)
class Finding:
    """One fault of a store."""

    severity: Severity
    place: str
    """The path, the trial or the study."""
    problem: str
    remedy: str
    """The remedy of a person who does not let the doctor mend."""
    repair: Callable[[], str] | None = None
    """Mends the fault, and returns the repair in a few words. Raises CannotMend. None if the doctor cannot help."""


class Patient:
    """An open store under examination."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.in_use = ""
        """Why the store is only read: a driver runs a study of the store, or this user may not write."""

    @cached_property
    def studies(self) -> dict[str, list[Run]]:
        """The runs of every study."""
        store = self.store
        return {study: store.runs(experiment) for study, experiment in sorted(store.experiments().items())}

    @property
    def trials(self) -> Iterator[tuple[str, Run]]:
        """Every trial and baseline, with the name of its study."""
        return ((study, run) for study, runs in self.studies.items() for run in runs if run.is_trial)

    def parent(self, study: str) -> Run | None:
        return parent_among(self.studies[study])

    @property
    def folder(self) -> Path | None:
        """The folder of a folder store."""
        return self.store.root if isinstance(self.store, FolderStore) else None

    def forget_runs(self) -> None:
        """Read the runs anew after a repair of the records."""
        self.__dict__.pop("studies", None)


class Check(ABC):
    """One check. The docstring of the class is the description for users."""

    name: ClassVar[str]
    stage: ClassVar[Stage]

    @abstractmethod
    def find(self, patient: Patient) -> Iterator[Finding]:
        """Every fault that the check knows. A repair runs before the next finding is looked for."""
