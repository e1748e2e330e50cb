"""Rows of the database that others refer to."""

from collections.abc import Iterator
from functools import partial

from typing_extensions import override

from loopscale.doctor.check import Check, Finding, Patient
from loopscale.records.stores.folder import DATABASE


class LostRows(Check):
    """No table of the database has lost rows that other tables refer to."""

    name = "lost rows"
    stage = "places"  # a study without its mark is invisible to all other checks

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.folder is None:
            return
        place, copy = str(patient.folder / DATABASE), "restore the database from a copy"
        for experiment in patient.store.unmarked_experiments():
            what = f"experiment {experiment} has trials, and has lost the tag that marks a study"
            yield Finding("error", place, what, copy, partial(_mark, patient, experiment))
        for what in patient.store.lost_rows():
            yield Finding("error", place, what, copy)


def _mark(patient: Patient, experiment: str) -> str:
    patient.store.mark_experiment(experiment)
    patient.forget_runs()
    return "marked again"
