"""Runs that a killed driver has left under way."""

import time
from collections.abc import Iterator
from functools import partial

from typing_extensions import override

from loopscale.doctor.check import Check, Finding, Patient
from loopscale.records.model import OVER, STATUS, STUDY_JSON, Run, json_object


class Running(Check):
    """No run is under way without a driver."""

    name = "running"
    stage = "copies"  # the description tells whether the study is complete

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.in_use or patient.store.read_only:
            return
        for study, runs in patient.studies.items():
            # The trials come first: the state of the study depends on them.
            for run in sorted(runs, key=lambda run: not run.is_trial):
                if run.status not in ("RUNNING", "SCHEDULED"):
                    continue
                place = f"trial {run.tags['trial']} of {study}" if run.is_trial else study
                remedy = f"`loopscale run {study}` goes on from here"
                repair = partial(_end_trial if run.is_trial else _end_study, patient, study, run)
                yield Finding(
                    "warning", place, "the run is under way, and no driver runs the study", remedy, repair
                )


def _end_trial(patient: Patient, study: str, run: Run) -> str:
    outcome = run.tags.get("outcome", "")
    if outcome not in OVER:
        outcome = "interrupted"
        patient.store.client.set_tag(run.id, "outcome", outcome, synchronous=True)
    return _end(patient, run, STATUS.get(outcome, "FAILED"), outcome)


def _end_study(patient: Patient, study: str, run: Run) -> str:
    content = patient.store.read_artifact(run.id, STUDY_JSON)
    planned = (json_object(content) or {}).get("planned")
    outcomes = [
        each.tags.get("outcome") for each in patient.studies[study] if each.tags.get("role") in TRAINED
    ]
    complete = (
        isinstance(planned, int) and len(outcomes) >= planned and all(each in OVER for each in outcomes)
    )
    return _end(patient, run, "FINISHED" if complete else "KILLED", "finished" if complete else "stopped")


def _end(patient: Patient, run: Run, status: str, word: str) -> str:
    patient.store.client.set_terminated(run.id, status, end_time=int(time.time() * 1000))
    patient.forget_runs()
    return f"the run is recorded as {word}"


TRAINED = ("tuning", "replicate")
