"""The curves of evaluated trials and baselines, and the results that were computed from them."""

import math
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from typing_extensions import override

from loopscale.doctor.check import Check, Finding, Patient
from loopscale.doctor.second_evaluation import evaluate_again, remedy_of_results
from loopscale.records.deferred_imports import pa
from loopscale.records.mirror import Mirror
from loopscale.records.model import CURVE, EVALUATE, STUDY_JSON, Run, json_object
from loopscale.records.tables import parquet_bytes, with_later_columns
from loopscale.runner.decide.conductor import curve_content

FROM_CURVE = {
    "error": ("error", "mean"),
    "error_last": ("error", "last"),
    "raw_error": ("raw", "mean"),
    "regret": ("regret", "mean"),
    "regret_last": ("regret", "last"),
}
"""The column of the curve and the function over its points at one loop that give a recorded result."""
Results = dict[str, list[dict[str, Any]]]
"""By run, one row per loop. The columns of results are named `COLUMN_FUNCTION`."""
SUM_ROUNDING = 1e-6
"""Relative difference between two sums of the same numbers. Seen in 3,274 records: 2e-15."""


class Evaluations(Check):
    """Every evaluated trial and baseline has a curve, which passes its checksums and gives the recorded results."""

    name = "curves"
    stage = "results"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        for study in list(patient.studies):
            trials = [run for run in patient.studies[study] if run.is_trial]
            read = patient.store.read_curves(trials)
            contradictions = _contradictions(read.table, trials)
            for run in trials:
                place = f"trial {run.tags['trial']} of {study}"
                if run.id in read.damaged:
                    yield Finding(
                        "error",
                        place,
                        f"the curve cannot be read ({read.damaged[run.id][:200]})",
                        remedy_of_results(study, run),
                        partial(_mend, patient, study, run),
                    )
                elif run.id in contradictions:
                    yield Finding(
                        "error",
                        place,
                        contradictions[run.id],
                        "restore the store from a copy"
                        + ("" if "imported" in run.tags else ", or let `--repair` evaluate the trial again"),
                        partial(_reconcile, patient, study, run),
                    )


def _contradictions(curves: "pa.Table", runs: list[Run]) -> dict[str, str]:
    """The contradiction between curve and recorded results in words, by the id of the run."""
    found = _results(curves)
    return {
        run.id: text
        for run in runs
        if run.id in found and (text := _contradiction(found[run.id], run.metrics))
    }


def _results(curves: "pa.Table") -> Results:
    """The results that follow from every curve."""
    ordered = curves.sort_by([(name, "ascending") for name in ("run", "loop", "point")])
    by_loop = ordered.group_by(["run", "loop"], use_threads=False)
    found: Results = {}
    for row in by_loop.aggregate(list(FROM_CURVE.values())).to_pylist():
        found.setdefault(row["run"], []).append(row)
    return found


def _contradiction(rows: list[dict[str, Any]], metrics: Mapping[str, float]) -> str:
    """Empty if one loop of the curve gives all recorded results. A curve may end before the T of a net."""
    recorded = {name: metrics[EVALUATE + name] for name in FROM_CURVE if EVALUATE + name in metrics}
    others = [
        [name for name, value in recorded.items() if not _is_same(row["_".join(FROM_CURVE[name])], value)]
        for row in rows
    ]
    fewest = min(others, key=len)
    if not fewest:
        return ""
    if "error" in fewest:
        return (
            f"the curve has the recorded error, {recorded['error']:.6g}, at no loop: one of them was changed"
        )
    return f"the curve gives another {', '.join(fewest)} than the recorded one: one of them was changed"


def _is_same(computed: float | None, recorded: float) -> bool:
    """False for NaN and for a missing column: the loop of a recorded result has finite values."""
    return computed is not None and math.isclose(computed, recorded, rel_tol=SUM_ROUNDING, abs_tol=1e-12)


def _mend(patient: Patient, study: str, run: Run) -> str:
    """Copy the curve from the mirror, else evaluate the trial again."""
    if curve := _kept_curve(patient, study, run):
        patient.store.write_artifact(run.id, CURVE, parquet_bytes(curve))
        return "copied from the mirror"
    evaluated, report = evaluate_again(patient, study, run)
    assert report.curve is not None
    patient.store.write_artifact(run.id, CURVE, curve_content(report.curve, evaluated))
    return "evaluated again"


def _reconcile(patient: Patient, study: str, run: Run) -> str:
    """Take the curve or the results from the mirror, if that ends the contradiction; else evaluate the trial again."""
    kept = _kept_curve(patient, study, run)
    results = _kept_results(patient, study, run)
    if kept is not None and not _contradiction(_results(_with_run(kept, run))[run.id], run.metrics):
        patient.store.write_artifact(run.id, CURVE, parquet_bytes(kept))
        return "the curve was copied from the mirror"
    present = _results(patient.store.read_curves([run]).table)[run.id]
    if results and not _contradiction(present, {**run.metrics, **results}):
        _replace(patient, run, results)
        return "the results were copied from the mirror"
    evaluated, report = evaluate_again(patient, study, run)
    assert report.curve is not None
    patient.store.write_artifact(run.id, CURVE, curve_content(report.curve, evaluated))
    _replace(patient, run, {n: v for n, v in (report.metrics or {}).items() if n.startswith(EVALUATE)})
    return "evaluated again"


def _replace(patient: Patient, run: Run, values: Mapping[str, float]) -> None:
    """Write results as of now: of two values at one step, the later one counts."""
    step = int(run.metrics.get("step", 0))
    points = {(name, step): value for name, value in values.items() if math.isfinite(value)}
    patient.store.log_points(run.id, points, int(time.time() * 1000))
    patient.forget_runs()


def _kept_results(patient: Patient, study: str, run: Run) -> dict[str, float]:
    row = Mirror(patient.store).kept_rows(study).get(run.id, {})
    return {EVALUATE + name: float(row[name]) for name in FROM_CURVE if row.get(name) is not None}


def _kept_curve(patient: Patient, study: str, run: Run) -> "pa.Table | None":
    """The curve in the mirror, unless the study has measures, which the mirror lacks."""
    return None if _has_further_measures(patient, study) else Mirror(patient.store).kept_curve(study, run)


def _with_run(curve: "pa.Table", run: Run) -> "pa.Table":
    """The curve with the columns of all curves."""
    columns = (
        curve if "run" in curve.column_names else curve.append_column("run", pa.array([run.id] * len(curve)))
    )
    return with_later_columns(columns)


def _has_further_measures(patient: Patient, study: str) -> bool:
    """Whether curves of the study have columns that the mirror lacks. True if nobody knows."""
    parent = patient.parent(study)
    described = json_object(patient.store.read_artifact(parent.id, STUDY_JSON)) if parent else None
    evaluate = (described or {}).get("evaluate")
    return not isinstance(evaluate, dict) or bool(evaluate.get("measures"))
