"""The metrics of trials: their histories, and the results of the evaluation."""

import math
from collections.abc import Iterator, Mapping
from functools import partial

from typing_extensions import override

from loopscale.doctor.check import CannotMend, Check, Finding, Patient, listed
from loopscale.doctor.second_evaluation import (
    evaluate_again,
    job_of,
    recorded_study,
    remedy_of_results,
    steps_between_validations,
    validations_of,
)
from loopscale.evaluate import Curve, summary
from loopscale.records.mirror import Mirror
from loopscale.records.model import (
    CURVE,
    EVALUATE,
    EVALUATED,
    FLOOR,
    LEARNING,
    NOT_FINITE,
    WEIGHTS,
    Run,
    decode,
)
from loopscale.records.tables import REGRETS, decode_curve
from loopscale.training import checkpoint
from loopscale.training.checkpoint import CorruptCheckpoint, NewerFormat
from loopscale.training.storage import StorageUnavailable

Points = dict[tuple[str, int], float]
"""Values by metric and step."""
OF_VALIDATION = ("error", "step")
"""Metrics that every validation records."""
RESULTS = ("error", "error_last")
"""The results that every evaluation records, without their prefix."""
OF_FLOOR = ("validate_floor", "validate_ignorance")
"""The metrics that every training records if the floor of its task is known."""


class Metrics(Check):
    """Finished trials have all validations and results."""

    name = "metrics"
    stage = "results"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.store.read_only:
            return
        left = patient.store.metric_mismatches()
        for study in list(patient.studies):
            trials = [run for run in patient.studies[study] if run.is_trial and run.id not in left]
            finished = [run for run in trials if run.tags.get("outcome") == "finished"]
            recorded = _recorded_points(patient, finished)
            every = steps_between_validations(patient, study) if recorded else {}
            for run in finished:
                validations = _lost_validations(patient, study, run, recorded.get(run.id), every)
                yield from validations
                lost = _lost_results(_present(patient, study, run))
                if lost := [name for name in lost if not (validations and name in OF_VALIDATION)]:
                    yield Finding(
                        "error",
                        f"trial {run.tags['trial']} of {study}",
                        f"{listed(lost)} of the finished trial are lost",
                        remedy_of_results(study, run),
                        partial(_mend_results, patient, study, run),
                    )


def _present(patient: Patient, study: str, run: Run) -> Run:
    """The run as the records have the run now, after repairs."""
    return next(each for each in patient.studies[study] if each.id == run.id)


def _recorded_points(patient: Patient, runs: list[Run]) -> dict[str, set[tuple[str, int]]]:
    """The metrics and steps in the history of every run. Empty for a server, which takes a request for each metric."""
    if patient.store.shared:
        return {}
    recorded: dict[str, set[tuple[str, int]]] = {run.id: set() for run in runs}
    for run, step, name, _ in patient.store.histories(runs):
        recorded[run].add((name, step))
    return recorded


def _lost_validations(
    patient: Patient,
    study: str,
    run: Run,
    recorded: set[tuple[str, int]] | None,
    every: Mapping[str, int],
) -> list[Finding]:
    """The finding of a trained trial whose history is not whole."""
    if recorded is None or run.tags.get("role") == "baseline":
        return []
    kept = kept_history(patient, study, run)
    lost = {point: value for point, value in kept.items() if point not in recorded}
    place = f"trial {run.tags['trial']} of {study}"
    remedy = f"`loopscale run {study} --again {run.tags['trial']}` trains the trial again"
    if lost:
        what = f"{len(lost):,} values of {listed(sorted({name for name, _ in lost}))} are lost"
        return [Finding("error", place, what, remedy, partial(_log, patient, run, lost))]
    if len([step for name, step in recorded if name == "error"]) < min(2, validations_of(run, every)):
        what = "the validations before the last one are lost, and no copy has them"
        return [Finding("warning", place, what, remedy)]
    return []


def kept_history(patient: Patient, study: str, run: Run) -> Points:
    """The history in the checkpoint, in the copy of the weights, or in the mirror."""
    key, store = run.tags["trial"], patient.store
    history: tuple[tuple[int, dict[str, float]], ...] = ()
    try:
        history = checkpoint.load_history(store.checkpoints, key)
    except (CorruptCheckpoint, NewerFormat, FileNotFoundError, StorageUnavailable):
        try:
            if content := store.read_artifact(run.id, WEIGHTS):
                history = checkpoint.history_in(content, key)
        except (CorruptCheckpoint, NewerFormat):
            pass
    values = {(name, step): value for step, metrics in history for name, value in metrics.items()}
    values |= {("step", step): float(step) for step, _ in history} if "step" not in run.metrics else {}
    values = values or Mirror(store).kept_history(study, run.id)
    return {(name, step): value for (name, step), value in values.items() if math.isfinite(value)}


def _lost_results(run: Run) -> list[str]:
    """The names of results that the finished trial lacks."""
    trained, known_floor = run.tags.get("role") != "baseline", bool(run.tags.get(FLOOR))
    names = [EVALUATE + name for name in RESULTS] if run.has_curve else []
    names += [EVALUATE + name for name in REGRETS] if run.has_curve and known_floor else []
    names += [*OF_VALIDATION, "flops"] if trained else []
    if trained and run.has_curve and known_floor and not run.tags.get(EVALUATED):
        names += OF_FLOOR  # the floor of another evaluated task says nothing about the trained task
    names += _numeric_settings(run)
    return [name for name in names if name not in run.metrics and NOT_FINITE + name not in run.tags]


def _numeric_settings(run: Run) -> dict[str, float]:
    """The settings that records keep as metrics too, by name."""
    values = {name: decode(text) for name, text in run.params.items()}
    return {name: float(value) for name, value in values.items() if type(value) in (int, float)}


def _mend_results(patient: Patient, study: str, run: Run) -> str:
    """Write the lost results from the mirror, from a second evaluation, or from the curve."""
    run = _present(patient, study, run)
    values: dict[str, float] = {}
    reasons: list[str] = []
    for source in (_of_record, _of_mirror, _of_evaluation, _of_curve):
        try:
            values = source(patient, study, run) | values
        except CannotMend as problem:
            reasons.append(str(problem))
        if values and not set(_lost_results(run)) - values.keys():
            break
    step, settings = int(values.get("step", run.metrics.get("step", 0))), _numeric_settings(run)
    lost = {name: value for name, value in values.items() if name not in run.metrics and math.isfinite(value)}
    if lost:
        points = {(name, 0 if name in settings else step): value for name, value in lost.items()}
        _log(patient, run, points)
    if left := [name for name in _lost_results(run) if name not in lost]:
        raise CannotMend(f"{listed(left)} are in no copy; {'; '.join(reasons) or 'the mirror lacks them'}")
    return f"{len(lost)} values were written again"


def _of_record(patient: Patient, study: str, run: Run) -> dict[str, float]:
    """The values that follow from the settings."""
    values = _numeric_settings(run)
    if "flops" in _lost_results(run) and (recorded := recorded_study(patient, study)):
        values["flops"] = job_of(patient, recorded, run).flops
    return values


def _of_mirror(patient: Patient, study: str, run: Run) -> dict[str, float]:
    """The results in the mirror's row of the run."""
    row = Mirror(patient.store).kept_rows(study).get(run.id, {})
    values = {EVALUATE + name: row.get(name) for name in (*RESULTS, "raw_error", "excess", *REGRETS)}
    values |= {name: row.get(name) for name in ("step", "seconds", "flops", *LEARNING)}
    values |= {"error": row.get("validate_error")}
    return {name: float(value) for name, value in values.items() if value is not None}


def _of_evaluation(patient: Patient, study: str, run: Run) -> dict[str, float]:
    """The results of a second evaluation. Raises CannotMend without weights."""
    _, report = evaluate_again(patient, study, run)
    return dict(report.metrics or {})


def _of_curve(patient: Patient, study: str, run: Run) -> dict[str, float]:
    """The results that follow from the recorded curve. Raises CannotMend without a curve."""
    recorded = recorded_study(patient, study)
    content = patient.store.read_artifact(run.id, CURVE)
    if recorded is None or content is None:
        raise CannotMend("the curve or the recorded file of the study is missing")
    work, grids = job_of(patient, recorded, run).work, decode_curve(content)
    curve = Curve(grids["error"], grids["sem"], grids["raw"])
    loop = (
        recorded.evaluate.loops
        if run.tags.get("role") == "baseline"
        else getattr(work, "steps_per_prompt", 0)
    )
    found = summary(curve, recorded.evaluate.posed(work.task), min(loop, len(curve.error)))
    return {EVALUATE + name: value for name, value in found.items()}


def _log(patient: Patient, run: Run, points: Mapping[tuple[str, int], float]) -> str:
    patient.store.log_points(run.id, points, run.end or run.start)
    patient.forget_runs()
    return f"{len(points):,} values were written again"
