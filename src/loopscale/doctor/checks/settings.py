"""The settings of trials and baselines."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from typing_extensions import override

from loopscale.doctor.check import CannotMend, Check, Finding, Patient
from loopscale.doctor.second_evaluation import job_of, jobs_of, recorded_study
from loopscale.errors import StoreError
from loopscale.notation.mistakes import quoted
from loopscale.records.model import OVER, Run, decode, encode, flatten


class Settings(Check):
    """Every trial and baseline that is over has the settings of its task, and those that its study gives."""

    name = "settings"
    stage = "records"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        for study in list(patient.studies):
            over = [
                run
                for run in patient.studies[study]
                if run.is_trial and run.tags.get("outcome") in OVER and "trial" in run.tags
            ]
            given = _given(patient, study, over)
            for run in over:
                yield from _faults(patient, study, run, given.get(run.tags["trial"], {}))


def _given(patient: Patient, study: str, over: list[Run]) -> dict[str, dict[str, Any]]:
    """The settings by dotted path that the recorded file gives to each trial and baseline.

    Names that no run has are left out: an older version did not know them.
    """
    if not over or (recorded := recorded_study(patient, study)) is None:
        return {}
    try:
        jobs = jobs_of(patient, recorded)
    except StoreError:  # a record with a damaged tag, which the check of the tags names
        return {}
    known = {name for run in over for name in run.params}
    return {
        job.key: {name: value for name, value in flatten(job.work.settings).items() if name in known}
        for job in jobs
    }


def _faults(patient: Patient, study: str, run: Run, given: Mapping[str, Any]) -> Iterator[Finding]:
    place, remedy = f"trial {run.tags['trial']} of {study}", "restore the database from a copy"
    lost = sorted(name for name in given if name not in run.params)
    changed = sorted(
        name
        for name, value in given.items()
        if name in run.params and decode(run.params[name]) != decode(encode(value))
    )
    if "task.kind" not in run.params or lost:
        what = "the settings are lost" if "task.kind" not in run.params else f"{_listed(lost)} lost"
        repair = None if patient.store.read_only else partial(_restore, patient, study, run)
        yield Finding("error", place, what, remedy, repair)
    if changed:
        values = ", ".join(
            f"{name} is {quoted(decode(run.params[name]))}, not {encode(given[name])}" for name in changed
        )
        yield Finding("error", place, f"the record differs from the study's file: {values}", remedy)


def _listed(names: list[str]) -> str:
    return f"the {'settings' if len(names) > 1 else 'setting'} {', '.join(names)} {'are' if len(names) > 1 else 'is'}"


def _restore(patient: Patient, study: str, run: Run) -> str:
    """Write the settings of the trial in the recorded file of the study. The key of a trial is a hash of them."""
    if (recorded := recorded_study(patient, study)) is None:
        raise CannotMend(f"the recorded file of {study} is missing or damaged")
    settings = flatten(job_of(patient, recorded, run).work.settings)
    lost = {name: value for name, value in settings.items() if name not in run.params}
    patient.store.log_settings(run.id, lost)
    patient.forget_runs()
    return "written again from the recorded file of the study"
