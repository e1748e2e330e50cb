"""Ranges that a person has edited between two runs: earlier trials count if the new ranges hold their points."""

from typing import Any

import pytest

from loopscale.notation.space import Real
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.simulation.curves import point_distance
from loopscale.studies.spec import Study
from tests.runner.simulated_study import Store, Workers, complete, study


def tuned_clip(axis: dict[str, Any], trials: int) -> Study:
    return study(
        scientific={},
        where="",
        nuisance={"training.clip": axis},
        search={"kind": "random", "trials": trials},
        scheduler={"kind": "none"},
        baselines=[],
    )


CHOICE, REAL = {"choice": [None, 0.5, 1, 3]}, {"real": [0.1, 2]}


@pytest.mark.parametrize(
    ("before", "after", "held"),
    [
        (CHOICE, REAL, [0.5, 1.0]),
        (CHOICE, {"integer": [1, 3]}, [1, 3]),
        (CHOICE, {"choice": [None, 1.0]}, [None, 1.0]),
        ({"integer": [1, 4]}, REAL, [1.0, 2.0]),
        ({"choice": [0.25, 2.0]}, {"integer": [2, 5]}, [2]),
        (REAL, {"choice": [None, 0.7]}, []),
    ],
)
def test_trials_count_that_a_range_of_another_type_holds(before: Any, after: Any, held: list[Any]):
    store = Store()
    first = {record.key for record in complete(tuned_clip(before, 4), Workers(1), store)}
    edited = tuned_clip(after, 6)
    conductor = Conductor(edited, store.records(), store)
    points = [job.point["training.clip"] for job in conductor.jobs() if job.role == "tuning"]
    assert sorted(map(repr, points)) == sorted(map(repr, held))
    lines = conductor.outside()
    left = len(first) - sum(1 for _ in conductor.jobs())
    assert lines.startswith(f"{left} of {len(first)} earlier trials lie outside the ranges")
    records = complete(edited, Workers(1), store)
    assert first <= {record.key for record in records}
    assert {record.outcome for record in records} == {"finished"}


def test_unchanged_ranges_leave_no_trial_outside():
    store = Store()
    complete(tuned_clip(CHOICE, 4), Workers(1), store)
    assert not Conductor(tuned_clip(CHOICE, 4), store.records(), store).outside()


def test_a_simulation_compares_points_of_a_choice_that_became_a_range():
    axis = {"training.clip": Real(real=(0.1, 2.0))}
    assert point_distance(axis, {"training.clip": 0.5}, {"training.clip": None}) == 1
