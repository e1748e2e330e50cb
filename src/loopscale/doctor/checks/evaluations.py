"""The curves of evaluated trials and baselines."""

from collections.abc import Iterator
from functools import partial

from typing_extensions import override

from loopscale.doctor.check import Check, Finding, Patient
from loopscale.doctor.second_evaluation import evaluate_again, remedy_of_results
from loopscale.records.mirror import Mirror
from loopscale.records.model import CURVE, STUDY_JSON, Run, json_object
from loopscale.records.tables import parquet_bytes
from loopscale.runner.decide.conductor import curve_content


class Evaluations(Check):
    """Every evaluated trial and baseline has a curve, and the curve passes its checksums."""

    name = "curves"
    stage = "results"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        for study, runs in patient.studies.items():
            trials = [run for run in runs if run.is_trial]
            damaged = patient.store.read_curves(trials).damaged
            for run in trials:
                if run.id in damaged:
                    yield Finding(
                        "error",
                        f"trial {run.tags['trial']} of {study}",
                        f"the curve cannot be read ({damaged[run.id][:200]})",
                        remedy_of_results(study, run),
                        partial(_mend, patient, study, run),
                    )


def _mend(patient: Patient, study: str, run: Run) -> str:
    """Copy the curve from the mirror, else evaluate the trial again."""
    if not _has_further_measures(patient, study) and (curve := Mirror(patient.store).kept_curve(study, run)):
        patient.store.write_artifact(run.id, CURVE, parquet_bytes(curve))
        return "copied from the mirror"
    evaluated, report = evaluate_again(patient, study, run)
    assert report.curve is not None
    patient.store.write_artifact(run.id, CURVE, curve_content(report.curve, evaluated))
    return "evaluated again"


def _has_further_measures(patient: Patient, study: str) -> bool:
    """Whether curves of the study have columns that the mirror lacks. True if nobody knows."""
    parent = patient.parent(study)
    described = json_object(patient.store.read_artifact(parent.id, STUDY_JSON)) if parent else None
    evaluate = (described or {}).get("evaluate")
    return not isinstance(evaluate, dict) or bool(evaluate.get("measures"))
