"""Spaces with few points: a search tries every point once before it ends."""

import random
from typing import Any

import pytest

from loopscale.foresight.plan import plan_study
from loopscale.notation.mistakes import Mistakes
from loopscale.runner.decide.conductor import Conductor
from loopscale.studies.searches.base import Search
from loopscale.studies.spec import Study
from tests.runner.simulated_study import Store, Workers, complete, ends, study

TWELVE: dict[str, Any] = {
    "choices": {"training.batch_size": {"choice": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}},
    "crossed": {"model.heads": {"choice": [1, 2, 4]}, "training.batch_size": {"choice": [1, 2, 3, 4]}},
    "whole numbers": {"training.batch_size": {"integer": [1, 12], "scale": "log", "points": 12}},
}
SEARCHES = [kind for kind, search in Search.choices().items() if not search.exhaustive]


def small(kind: str, space: dict[str, Any], trials: int, **changes: Any) -> Study:
    search = {"kind": kind, "objectives": list(Search.choices()[kind].weighs), "trials": trials}
    basis = {
        "scientific": {"training.loops": [2]},
        "where": "",
        "scheduler": {"kind": "none"},
        "baselines": [],
    }
    return study(**basis | {"nuisance": space, "search": search, "replicates": 1} | changes)


def tried(whole: Study, count: int = 1, deaths: random.Random | None = None) -> list[str]:
    records = complete(whole, Workers(count), Store(), deaths)
    return [repr(sorted(record.point.items())) for record in records if record.role == "tuning"]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("space", TWELVE)
@pytest.mark.parametrize("trials", [12, 14])
@pytest.mark.parametrize("kind", SEARCHES)
def test_a_search_tries_every_point_of_a_small_space_once(kind: str, trials: int, space: str):
    points = tried(small(kind, TWELVE[space], trials), count=2)
    assert len(points) == len(set(points)) == 12


@pytest.mark.slow
def test_a_search_finds_the_last_points_that_a_condition_leaves():
    wide = {"training.batch_size": {"integer": [1, 64]}, "training.warmup": {"integer": [1, 64]}}
    related = small("tpe", wide, 8, where="training.batch_size * training.warmup in [61, 59, 62]")
    points = tried(related)
    assert len(points) == len(set(points)) == 8


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", SEARCHES)
def test_a_killed_search_of_a_small_space_equals_the_uninterrupted_one(kind: str):
    whole = small(kind, TWELVE["crossed"], 12)
    killed = complete(whole, Workers(1), Store(), random.Random(3))
    assert ends(killed) == ends(complete(whole, Workers(1), Store()))


def test_a_plan_says_that_fewer_points_exist_than_trials():
    planned = plan_study(small("tpe", TWELVE["crossed"], 14), rate=1e9)
    assert planned.tuning == 12
    assert "a cell has only 12 different points for search.trials 14" in planned.warnings


def test_equal_numbers_of_two_types_are_one_choice():
    with pytest.raises(Mistakes, match="choice has a value twice"):
        small("tpe", {"training.lr": {"choice": [1, 1.0]}}, 2)


HEADS: dict[str, Any] = {
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 4},
        "model": {"kind": "looped", "heads": 2},
        "training": {"steps": 30, "eval_every": 10, "loops": 2, "window": 1},
    }
}


def test_a_range_with_impossible_points_between_its_ends_is_refused():
    with pytest.raises(Mistakes, match=r"heads do not divide width .*; write step: n"):
        small("random", {"model.width": {"integer": [8, 22]}}, 4, **HEADS)
    even = small("random", {"model.width": {"integer": [8, 22]}}, 4, **HEADS, where="model.width % 2 == 0")
    assert "where excludes 47 % of the points of a cell's ranges" in plan_study(even, rate=1e9).warnings


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", Search.choices())
def test_a_search_tries_the_values_of_a_step_and_no_others(kind: str):
    space = {"model.width": {"integer": [8, 14], "step": 2}, "training.lr": {"real": [0.1, 0.7], "step": 0.2}}
    search = {"kind": kind, "objectives": list(Search.choices()[kind].weighs)}
    search |= {} if Search.choices()[kind].exhaustive else {"trials": 16}
    records = complete(small("random", space, 16, **HEADS, search=search), Workers(1), Store())
    points = [(r.point["model.width"], r.point["training.lr"]) for r in records if r.role == "tuning"]
    assert sorted(points) == [(width, lr) for width in (8, 10, 12, 14) for lr in (0.1, 0.3, 0.5, 0.7)]


@pytest.mark.parametrize(
    ("axis", "remedy"),
    [
        ({"integer": [8, 22], "step": 4}, r"write \[8, 20\]"),
        ({"real": [0.1, 1.0], "step": 0.2}, r"write \[0.1, 0.9\]"),
        ({"integer": [8, 22], "step": 2, "scale": "log"}, "remove step"),
        ({"real": [1, 2], "step": 0.5, "points": 3}, "keep one of the two"),
        ({"real": [0, 1], "step": 1e-9}, "write a larger step"),
    ],
)
def test_a_wrong_step_is_a_mistake_with_a_remedy(axis: dict[str, Any], remedy: str):
    with pytest.raises(Mistakes, match=remedy):
        small("random", {"training.warmup": axis}, 4)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_an_impossible_point_that_the_plan_has_missed_does_not_end_the_study(
    kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("loopscale.studies.cells.MOST_TRIED", 0)  # as if the plan had missed the point
    store = Store()
    whole = small(kind, {"model.width": {"integer": [8, 400]}}, 12, **HEADS)
    complete(whole, Workers(1), store)
    conductor = Conductor(whole, [], store)
    assert Workers(1).drive(conductor)
    assert sum(job.role == "tuning" for job in conductor.jobs()) == 12
    assert {job.point["model.width"] % 2 for job in conductor.jobs()} == {0}
    assert "2 heads do not divide width" in conductor.ended_early()[0]


def test_a_description_names_a_step_only_if_the_range_has_one():
    ranges = {"training.lr": {"real": [0.1, 0.7], "step": 0.2}, "model.heads": {"integer": [1, 2]}}
    described = small("random", ranges, 4).document()["nuisance"]
    assert described["training.lr"]["step"] == 0.2
    assert "step" not in described["model.heads"]
