"""Rows of the database that others refer to."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from typing_extensions import override

from loopscale.doctor.check import CannotMend, Check, Finding, Patient
from loopscale.records.stores import lost_rows
from loopscale.records.stores.folder import DATABASE

COPY = "restore the database from a copy"


class LostRows(Check):
    """No table of the database has lost rows that other tables refer to."""

    name = "lost rows"
    stage = "places"  # a study without its experiment or its mark is invisible to all other checks

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if (root := patient.folder) is None:
            return
        place = str(root / DATABASE)
        if not lost_rows.has_version(root):
            what = f"the version of the tables is lost ({lost_rows.VERSION_TABLE} is empty)"
            yield Finding("error", place, what, COPY, partial(_restore_version, root))
        if damaged := lost_rows.unsound_rows(root):
            what = f"readers leave out values that are infinite, or of another type than the column ({damaged:,})"
            yield Finding("error", place, what, COPY, _repair(patient, _remove_unsound_rows, root))
        if lost := lost_rows.lost_experiments(root):
            what = f"{lost:,} runs belong to an experiment that is lost"
            yield Finding("error", place, what, COPY, _repair(patient, _restore_experiments, root))
        for experiment in lost_rows.unmarked_experiments(root):
            what = f"experiment {experiment} has trials, and has lost the tag that marks a study"
            yield Finding("error", place, what, COPY, _repair(patient, _mark, patient, experiment))
        if lost := lost_rows.lost_runs(root):
            what = f"{lost:,} runs are lost, and other rows of them remain"
            yield Finding("error", place, what, COPY, _repair(patient, _restore_runs, root))


def _repair(patient: Patient, restore: Callable[..., str], *what: object) -> Callable[[], str]:
    """A repair after which the runs are read anew, also if the repair has mended a part."""

    def mend() -> str:
        try:
            return restore(*what)
        finally:
            patient.forget_runs()

    return mend


def _restore_version(root: Path) -> str:
    if not (version := lost_rows.restore_version(root)):
        raise CannotMend("the tables are not those of the installed MLflow, so their version is unknown")
    return f"written again: the tables are those of version {version}"


def _remove_unsound_rows(root: Path) -> str:
    lost_rows.remove_unsound_rows(root)
    return "the rows were removed; the findings below name the values that they have lost"


def _restore_experiments(root: Path) -> str:
    names = lost_rows.restore_experiments(root)
    if left := lost_rows.lost_experiments(root):
        raise CannotMend(
            f"the experiments of {len(names):,} studies are back; no tag tells the study of {left:,} runs"
        )
    return f"written again from the tags of their runs: {', '.join(names)}"


def _mark(patient: Patient, experiment: str) -> str:
    patient.store.mark_experiment(experiment)
    return "marked again"


def _restore_runs(root: Path) -> str:
    number = lost_rows.restore_runs(root)
    if left := lost_rows.lost_runs(root):
        raise CannotMend(f"{number:,} runs are back; no tag tells the study of {left:,} runs")
    return (
        f"{number:,} runs were written again from their tags, with the times of their metrics; runs that were deleted "
        "one by one in MLflow are back too, and can be deleted again"
    )
