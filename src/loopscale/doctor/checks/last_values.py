"""The last values of metrics, which the database keeps beside the histories of the metrics."""

from collections.abc import Iterator
from functools import partial

from typing_extensions import override

from loopscale.doctor.check import Check, Finding, Patient, listed


class LastValues(Check):
    """The last value of every metric ends the history of the metric."""

    name = "last values"
    stage = "records"  # the checks of results compare the values with the curves

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.store.read_only:
            return
        places = {
            run.id: f"trial {run.tags['trial']} of {study}" if run.is_trial else study
            for study, runs in patient.studies.items()
            for run in runs
        }
        for run, names in patient.store.metric_mismatches().items():
            if run in places:
                what = f"the last values of {listed(names)} and their histories disagree, so one of them has lost rows"
                remedy = "restore the database from a copy"
                yield Finding("error", places[run], what, remedy, partial(_mend_tables, patient, run))


def _mend_tables(patient: Patient, run: str) -> str:
    patient.store.mend_metrics(run)
    patient.forget_runs()
    return "each table was completed from the other"
