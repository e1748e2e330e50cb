"""Spaces with few points: a search tries every point once before it ends."""

import random
from typing import Any

import pytest

from loopscale.studies.mistakes import Mistakes
from loopscale.studies.plan import plan_study
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


@pytest.mark.quick_cases(6)
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
