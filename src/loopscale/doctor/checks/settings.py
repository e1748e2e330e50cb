"""The settings of trials and baselines."""

from collections.abc import Iterator
from functools import partial

from typing_extensions import override

from loopscale.doctor.check import CannotMend, Check, Finding, Patient
from loopscale.doctor.second_evaluation import job_of, recorded_study
from loopscale.records.model import OVER, Run, flatten


class Settings(Check):
    """Every trial and baseline that is over has the settings of its task."""

    name = "settings"
    stage = "records"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        for study in list(patient.studies):
            for run in patient.studies[study]:
                if run.is_trial and run.tags.get("outcome") in OVER and "task.kind" not in run.params:
                    repair = None if patient.store.read_only else partial(_restore, patient, study, run)
                    yield Finding(
                        "error",
                        f"trial {run.tags['trial']} of {study}",
                        "the settings are lost",
                        "restore the database from a copy",
                        repair,
                    )


def _restore(patient: Patient, study: str, run: Run) -> str:
    """Write the settings of the trial in the recorded file of the study. The key of a trial is a hash of them."""
    if (recorded := recorded_study(patient, study)) is None:
        raise CannotMend(f"the recorded file of {study} is missing or damaged")
    settings = flatten(job_of(patient, recorded, run).work.settings)
    lost = {name: value for name, value in settings.items() if name not in run.params}
    patient.store.log_settings(run.id, lost)
    patient.forget_runs()
    return "written again from the recorded file of the study"
