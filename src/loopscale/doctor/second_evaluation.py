"""Evaluate a recorded trial or baseline once more, from the recorded file of its study and from kept weights."""

import math
from collections.abc import Mapping

from loopscale.doctor.check import CannotMend, Patient
from loopscale.notation.mistakes import Mistakes
from loopscale.pricing.training_budget import Prices
from loopscale.records.model import NOT_FINITE, STUDY_FILE, STUDY_JSON, Note, Run, json_object
from loopscale.records.study_records import as_records
from loopscale.records.weights import restore_weights
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job, Report
from loopscale.studies.spec import Study
from loopscale.training import checkpoint
from loopscale.training.storage import CheckpointStore, StorageMissing


def remedy_of_results(study: str, run: Run) -> str:
    """The remedy of a person for lost results of a trial."""
    if "imported" in run.tags:
        return "`loopscale import FOLDER`, with the folder of the export, writes the curve again"
    return f"`loopscale run {study}` evaluates the trial again, or trains the trial again"


def evaluate_again(patient: Patient, study: str, run: Run) -> tuple[Study, Report]:
    """The recorded study, and the report of an evaluation in this process. Raises CannotMend."""
    if (evaluated := recorded_study(patient, study)) is None:
        raise CannotMend(f"the recorded file of {study} is missing or damaged")
    if evaluated.evaluate.key != run.tags.get("evaluation"):
        raise CannotMend("the trial was evaluated otherwise than the study evaluates now")
    return evaluated, _evaluate(patient, evaluated, run)


def recorded_study(patient: Patient, name: str) -> Study | None:
    """The study of the recorded file, at the recorded prices; None without a valid file."""
    parent = patient.parent(name)
    return study_in(patient, parent.id, name) if parent else None


def steps_between_validations(patient: Patient, study: str) -> dict[str, int]:
    """The steps between two validations of the recorded study, by the key of the cell. A trial does not record them."""
    recorded = recorded_study(patient, study)
    trials = recorded.layout.trials if recorded else {}
    return {cell: trial.training.eval_every for cell, trial in trials.items()}


def validations_of(run: Run, every: Mapping[str, int]) -> int:
    """The number of validations of a finished training; 0 if the records do not tell.

    `every` is the result of `steps_between_validations`.
    """
    if NOT_FINITE + "error" in run.tags:  # a value that is not finite is a tag
        return 0
    steps, between = run.metrics.get("step", 0), every.get(run.tags.get("cell", ""))
    return math.ceil(steps / between) if between and math.isfinite(steps) else 0


def study_in(patient: Patient, parent: str, name: str) -> Study | None:
    """The study of the file in the run `parent`, at the recorded prices; None without a valid file."""
    store = patient.store
    if not (content := store.read_artifact(parent, STUDY_FILE)):
        return None
    described = json_object(store.read_artifact(parent, STUDY_JSON)) or {}
    try:
        study = Study.parse(content.decode(), name)
        return (
            study.at_prices(Prices.of_document(described.get("prices", {}))) if study.has_budgets else study
        )
    except (Mistakes, ValueError, KeyError, TypeError, AttributeError):
        return None


def _evaluate(patient: Patient, study: Study, run: Run) -> Report:
    """The report of an evaluation in this process. Raises CannotMend."""
    from loopscale.runner.on_ray.worker import work  # prepares the process for training

    job = job_of(patient, study, run)
    checkpoints = patient.store.checkpoints
    if job.role == "baseline":
        job.order_kind = "baseline"
    else:
        job.order_kind = "evaluate"
        if not _is_trained(checkpoints, job) and not restore_weights(patient.store, job.key, run.id):
            kept = "imported" if "imported" in run.tags else "kept"
            raise CannotMend(f"no weights were {kept}; {remedy_of_results(study.name, run)}")
    *_, last = work(job.make_order(study.evaluate, checkpoints.url, study.resources))
    if last.curve is None:
        raise CannotMend(f"the evaluation has failed ({last.detail.strip()[-200:]})")
    return last


def _is_trained(checkpoints: CheckpointStore, job: Job) -> bool:
    """True if the checkpoint has the trained weights. An import makes no checkpoints, and no folder for them."""
    try:
        return checkpoint.condition(checkpoints, job.key, job.steps) == "trained"
    except StorageMissing:
        return False


def job_of(patient: Patient, study: Study, run: Run) -> Job:
    """The trial or baseline of the run as the runner sees it. Raises CannotMend."""
    if (job := next((job for job in jobs_of(patient, study) if job.key == run.tags["trial"]), None)) is None:
        raise CannotMend("the study has left the cell of the trial")
    return job


def jobs_of(patient: Patient, study: Study) -> list[Job]:
    """The trials and baselines of a recorded study as the runner sees them."""
    records = as_records(patient.studies[study.name])
    parent = patient.parent(study.name)
    return list(Conductor(study, records, _Unwritten(), tags=parent.tags if parent else {}).jobs())


def unwritten_jobs(study: Study) -> list[Job]:
    """The jobs of a study without records."""
    return list(Conductor(study, (), _Unwritten(), tags={}).jobs())


class _Unwritten:
    """Takes the notes of a conductor that is only asked for its jobs."""

    backlog = 0
    away_since: float | None = None

    def write(self, note: Note) -> None:
        pass

    def flush(self, timeout: float) -> bool:
        return True
