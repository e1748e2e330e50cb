"""The curves of evaluated trials and baselines."""

from collections.abc import Iterator
from functools import partial

from typing_extensions import override

from loopscale.doctor.check import CannotMend, Check, Finding, Patient
from loopscale.notation.mistakes import Mistakes
from loopscale.pricing.training_budget import Prices
from loopscale.records.mirror import Mirror
from loopscale.records.model import CURVE, STUDY_FILE, STUDY_JSON, Note, Run, json_object
from loopscale.records.study_records import as_records
from loopscale.records.tables import parquet_bytes
from loopscale.records.weights import restore_weights
from loopscale.runner.decide.conductor import Conductor, curve_content
from loopscale.runner.decide.job import Job
from loopscale.studies.spec import Study
from loopscale.training import checkpoint
from loopscale.training.storage import CheckpointStore, StorageMissing


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
                        _remedy(study, run),
                        partial(_mend, patient, study, run),
                    )


def _remedy(study: str, run: Run) -> str:
    if "imported" in run.tags:
        return "`loopscale import FOLDER`, with the folder of the export, writes the curve again"
    return f"`loopscale run {study}` evaluates the trial again, or trains the trial again"


def _mend(patient: Patient, study: str, run: Run) -> str:
    """Copy the curve from the mirror, else evaluate the trial again."""
    if not _has_further_measures(patient, study) and (curve := Mirror(patient.store).kept_curve(study, run)):
        patient.store.write_artifact(run.id, CURVE, parquet_bytes(curve))
        return "copied from the mirror"
    if (evaluated := _study_of(patient, study)) is None:
        raise CannotMend(f"the recorded file of {study} is missing or damaged")
    if evaluated.evaluate.key != run.tags.get("evaluation"):
        raise CannotMend("the trial was evaluated otherwise than the study evaluates now")
    patient.store.write_artifact(run.id, CURVE, _evaluate(patient, evaluated, run))
    return "evaluated again"


def _has_further_measures(patient: Patient, study: str) -> bool:
    """Whether curves of the study have columns that the mirror lacks. True if nobody knows."""
    parent = patient.parent(study)
    described = json_object(patient.store.read_artifact(parent.id, STUDY_JSON)) if parent else None
    evaluate = (described or {}).get("evaluate")
    return not isinstance(evaluate, dict) or bool(evaluate.get("measures"))


def _study_of(patient: Patient, name: str) -> Study | None:
    """The study of the recorded file, at the recorded prices; None without a valid file."""
    parent, store = patient.parent(name), patient.store
    content = store.read_artifact(parent.id, STUDY_FILE) if parent else None
    if not (parent and content):
        return None
    described = json_object(store.read_artifact(parent.id, STUDY_JSON)) or {}
    try:
        study = Study.parse(content.decode(), name)
        return (
            study.at_prices(Prices.of_document(described.get("prices", {}))) if study.has_budgets else study
        )
    except (Mistakes, ValueError, KeyError, TypeError, AttributeError):
        return None


def _evaluate(patient: Patient, study: Study, run: Run) -> bytes:
    """The file of the curve, evaluated in this process. Raises CannotMend."""
    from loopscale.runner.on_ray.worker import work  # prepares the process for training

    job = _job_of(patient, study, run)
    checkpoints = patient.store.checkpoints
    if job.role == "baseline":
        job.order_kind = "baseline"
    else:
        job.order_kind = "evaluate"
        if not _is_trained(checkpoints, job) and not restore_weights(patient.store, job.key, run.id):
            kept = "imported" if "imported" in run.tags else "kept"
            raise CannotMend(f"no weights were {kept}; {_remedy(study.name, run)}")
    *_, last = work(job.make_order(study.evaluate, checkpoints.url, study.resources))
    if last.curve is None:
        raise CannotMend(f"the evaluation has failed ({last.detail.strip()[-200:]})")
    return curve_content(last.curve, study)


def _is_trained(checkpoints: CheckpointStore, job: Job) -> bool:
    """True if the checkpoint has the trained weights. An import makes no checkpoints, and no folder for them."""
    try:
        return checkpoint.condition(checkpoints, job.key, job.steps) == "trained"
    except StorageMissing:
        return False


def _job_of(patient: Patient, study: Study, run: Run) -> Job:
    records = as_records(patient.studies[study.name])
    parent = patient.parent(study.name)
    jobs = Conductor(study, records, Unwritten(), tags=parent.tags if parent else {}).jobs()
    if (job := next((job for job in jobs if job.key == run.tags["trial"]), None)) is None:
        raise CannotMend("the study has left the cell of the trial")
    return job


class Unwritten:
    """Takes the notes of a conductor that is only asked for its jobs."""

    backlog = 0
    away_since: float | None = None

    def write(self, note: Note) -> None:
        pass

    def flush(self, timeout: float) -> bool:
        return True
