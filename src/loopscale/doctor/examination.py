"""Examine a store with all checks, and mend the store on request."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from loopscale.doctor import checks
from loopscale.doctor.check import STAGES, CannotMend, Check, Finding, Patient
from loopscale.errors import HeldError, LoopscaleError, StoreError
from loopscale.runner.lease import claim_records, lease, lock_holder


@dataclass(frozen=True)
class Examined:
    """A finding of a check, and the end of its repair."""

    check: str
    finding: Finding
    mended: str = ""
    """The repair in words; empty if nothing was mended."""
    failed: str = ""
    """The reason of a repair that has failed."""

    @property
    def is_open(self) -> bool:
        """True for a fault that remains and matters."""
        return not self.mended and self.finding.severity != "note"

    def to_dict(self) -> dict[str, Any]:
        finding = self.finding
        return {
            "check": self.check,
            "severity": finding.severity,
            "place": finding.place,
            "problem": finding.problem,
            "remedy": finding.remedy,
            "repairable": finding.repair is not None,
            "mended": self.mended or None,
            "failed": self.failed or None,
        }


def all_checks() -> list[Check]:
    """Every check of the folder `checks`, in the order of the stages."""
    for module in iter_modules(checks.__path__):
        import_module(f"{checks.__name__}.{module.name}")
    found = [kind() for kind in Check.__subclasses__()]
    return sorted(found, key=lambda check: (STAGES.index(check.stage), check.name))


def examine(patient: Patient, repair: bool, notice: Callable[[str], None]) -> Iterator[Examined]:
    """Every finding, with its repair on request. A store that a live driver uses is only read."""
    _look_for_driver(patient)
    checks = all_checks()
    for check in checks:
        if check.stage == STAGES[0]:  # a folder in the place of a lock would forbid the leases
            yield from _examine(patient, check, repair and not patient.in_use)
    with _leases(patient, notice) if repair and not patient.in_use else nullcontext():
        for check in checks:
            if check.stage != STAGES[0]:
                yield from _examine(patient, check, repair and not patient.in_use)


def _examine(patient: Patient, check: Check, repair: bool) -> Iterator[Examined]:
    try:
        for finding in check.find(patient):
            yield _mended(check, finding) if repair and finding.repair else Examined(check.name, finding)
    except (LoopscaleError, OSError) as problem:
        what, _, remedy = str(problem).partition("; ")
        yield Examined(check.name, Finding("error", patient.store.name, what, remedy or "look at the store"))


def _mended(check: Check, finding: Finding) -> Examined:
    assert finding.repair
    try:
        return Examined(check.name, finding, mended=finding.repair())
    except (CannotMend, LoopscaleError, OSError, sqlite3.Error) as problem:
        return Examined(check.name, finding, failed=" ".join(str(problem).split()) or type(problem).__name__)


def _look_for_driver(patient: Patient) -> None:
    """Note the driver that uses the store, if there is one on this host."""
    store = patient.store
    for study in [] if store.read_only else store.studies():
        with suppress(PermissionError):  # a store of another user
            if driver := lock_holder(store.storage, study):
                patient.in_use = f"{study} is being run by {driver}"


@contextmanager
def _leases(patient: Patient, notice: Callable[[str], None]) -> Iterator[None]:
    """Hold every study of the store, so that no driver starts."""
    store = patient.store
    with ExitStack() as held:
        for study in [] if store.read_only else store.studies():
            try:
                held.enter_context(lease(store.storage, study))
                held.enter_context(claim_records(store, study, lambda _: None, notice))
            except (HeldError, StoreError, OSError) as problem:
                patient.in_use = " ".join(str(problem).partition(";")[0].split())
                held.close()
                break
        yield
