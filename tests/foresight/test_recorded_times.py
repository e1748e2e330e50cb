"""Recorded seconds beside the seconds of a plan."""

from typing import Any

import pytest

from loopscale.foresight.plan import RecordedTimes, plan_study
from loopscale.studies.spec import Study

STUDY: dict[str, Any] = {
    "question": "How long?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 4},
        "model": {"kind": "looped", "width": 8, "heads": 2},
        "training": {"steps": 100, "eval_every": 50, "batch_size": 4, "loops": 2, "window": 1},
    },
    "replicates": 2,
}


def planned(rate: float, seconds: float, **changes: Any) -> RecordedTimes | None:
    made = Study.parse(STUDY)
    (trial,) = made.layout.trials.values()
    training = trial.training.model_copy(update=changes)
    recorded = [(trial.model_copy(update={"training": training, "seed": seed}), seconds) for seed in (1, 2)]
    return plan_study(made, rate, 1, recorded=recorded).recorded


def test_recorded_trials_of_the_planned_shape_check_the_speed():
    fast, slow = planned(1e9, 3.0), planned(5e8, 3.0)
    assert fast is not None
    assert slow is not None
    assert (fast.trials, fast.recorded_seconds) == (2, 6.0)
    assert slow.planned_seconds == pytest.approx(2 * fast.planned_seconds)
    longer = planned(1e9, 3.0, steps=200)
    assert longer is not None
    assert longer.planned_seconds == pytest.approx(2 * fast.planned_seconds), (
        "the records count with their own steps"
    )


def test_trials_of_other_shapes_say_nothing():
    assert planned(1e9, 3.0, batch_size=8) is None
