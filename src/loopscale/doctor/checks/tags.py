"""The tags of trials."""

from collections.abc import Iterator

from typing_extensions import override

from loopscale.doctor.check import Check, Finding, Patient
from loopscale.records.model import StoreError
from loopscale.records.study_records import as_records, spending_in


class Tags(Check):
    """Every record has the tags of a trial, and the parent run has the tags of a study."""

    name = "tags"
    stage = "records"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        for study, runs in patient.studies.items():
            if runs and patient.parent(study) is None:
                remedy = f"`loopscale run {study}` writes the run again"
                yield Finding("warning", study, "the run of the study is missing", remedy)
            for run in runs:
                try:
                    list(as_records([run]))
                    if not run.is_trial:
                        spending_in(run, study)
                except StoreError as problem:
                    what, _, remedy = str(problem).partition("; ")
                    yield Finding("error", f"run {run.id} of {study}", what, remedy)
