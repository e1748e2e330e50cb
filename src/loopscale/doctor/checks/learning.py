"""The learning that every finished training records of itself."""

import math
import time
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from typing_extensions import override

from loopscale.doctor.check import CannotMend, Check, Finding, Patient
from loopscale.doctor.checks.metrics import OF_FLOOR
from loopscale.doctor.second_evaluation import steps_between_validations, validations_of
from loopscale.records.mirror import Mirror
from loopscale.records.model import LEARNING, NOT_FINITE, Run
from loopscale.stats.learning import History, recorded_learning

LEARNING_ROUNDING = 1e-6
"""Relative difference between two computations from the same validations. Seen in 2,353 records: 2e-14."""


class Learning(Check):
    """When a training emerged, and how fast its error still fell, follow from its recorded validations."""

    name = "learning"
    stage = "conclusions"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.store.read_only or patient.store.shared:  # a server takes a request for each history
            return
        for study in list(patient.studies):
            trainings = [run for run in patient.studies[study] if _is_training(run)]
            errors = _errors(patient, trainings)
            every = steps_between_validations(patient, study) if trainings else {}
            for run in trainings:
                history = errors.get(run.id, {})
                if len(history) < max(1, validations_of(run, every)):
                    continue  # the check of metrics has found that validations are lost
                if wrong := _differences(_expected(history, run.metrics), run.metrics):
                    yield Finding(
                        "error",
                        f"trial {run.tags['trial']} of {study}",
                        f"{', '.join(wrong)} differ from the learning of the recorded validations",
                        "restore the database from a copy",
                        partial(_mend, patient, study, run, history, wrong),
                    )


def _is_training(run: Run) -> bool:
    return (
        run.is_trial
        and run.tags.get("outcome") == "finished"
        and run.tags.get("role") != "baseline"
        and NOT_FINITE + "error" not in run.tags
        and all(name in run.metrics for name in OF_FLOOR)
    )


def _errors(patient: Patient, runs: list[Run]) -> dict[str, dict[int, float]]:
    """The validation errors by step, of every run."""
    errors: dict[str, dict[int, float]] = {}
    for run, step, name, value in patient.store.histories(runs):
        if name == "error":
            errors.setdefault(run, {})[step] = value
    return errors


def _expected(errors: Mapping[int, float], metrics: Mapping[str, float]) -> dict[str, float]:
    steps = sorted(errors)
    history = History(
        np.array(steps, np.float64),
        np.array([errors[step] for step in steps]),
        *(metrics[name] for name in OF_FLOOR),
    )
    return recorded_learning(history)


def _differences(expected: Mapping[str, float], recorded: Mapping[str, float]) -> list[str]:
    return [
        name
        for name in LEARNING
        if (name in expected) != (name in recorded)
        or (name in expected and not math.isclose(expected[name], recorded[name], rel_tol=LEARNING_ROUNDING))
    ]


def _mend(patient: Patient, study: str, run: Run, errors: Mapping[int, float], wrong: list[str]) -> str:
    """Write lost values as they follow from the validations, and changed values as the mirror has them.

    Values that are present and wrong leave it open whether they or the validations were changed. Raises CannotMend.
    """
    expected = _expected(errors, run.metrics)
    if any(name in run.metrics for name in wrong):
        row = Mirror(patient.store).kept_rows(study).get(run.id, {})
        kept = {name: float(row[name]) for name in LEARNING if row.get(name) is not None}
        if not all(name in kept for name in OF_FLOOR) or _differences(_expected(errors, kept), kept):
            raise CannotMend("no copy tells whether these values or the validations were changed")
        expected = kept
    if surplus := [name for name in wrong if name not in expected]:
        raise CannotMend(f"{', '.join(surplus)} should be absent, and records cannot lose a metric")
    step = int(run.metrics.get("step", 0))
    points = {(name, step): value for name, value in expected.items() if run.metrics.get(name) != value}
    patient.store.log_points(run.id, points, int(time.time() * 1000))
    patient.forget_runs()
    return f"{len(points)} values were written again"
