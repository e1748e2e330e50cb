"""Points that a study asks for or forbids: `known`, and `where` over tuned settings."""

import random
from typing import Any

import pytest

from loopscale.records.model import Record
from loopscale.studies.searches.base import Search
from loopscale.studies.spec import Study
from tests.runner.simulated_study import Store, Workers, complete, ends, study

NARROW = "training.batch_size * model.heads == 8"
"""True of 1 point in 24."""
RANGES = {
    "training.lr": {"real": [1e-4, 0.1], "scale": "log", "points": 3},
    "training.batch_size": {"integer": [1, 8], "points": 8},
    "model.heads": {"choice": [1, 2, 4]},
}


def plain(kind: str, **changes: Any) -> Study:
    search = Search.choices()[kind]
    written: dict[str, Any] = {"kind": kind, "objectives": list(search.weighs)}
    basis = {
        "scientific": {"training.loops": [2]},
        "where": "",
        "nuisance": RANGES,
        "search": written | ({} if search.exhaustive else {"trials": 9}),
        "scheduler": {"kind": "none"},
    }
    return study(**basis | changes)


def tuned(records: list[Record]) -> list[dict[str, Any]]:
    return [record.point for record in records if record.role == "tuning"]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", Search.choices())
def test_no_search_trains_an_infeasible_point(kind: str):
    related = plain(kind, where=NARROW)
    points = tuned(complete(related, Workers(2), Store()))
    assert len(points) == related.points(related.cells()[0]) >= 9
    assert {point["training.batch_size"] * point["model.heads"] for point in points} == {8}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", Search.choices())
def test_a_killed_search_with_known_points_and_relations_equals_the_uninterrupted_one(kind: str, seed: int):
    known = [{"model.heads": 4}, {"training.lr": 0.01, "training.batch_size": 8, "model.heads": 1}]
    changes = {} if Search.choices()[kind].exhaustive else {"known": known}
    related = plain(kind, where=NARROW, **changes)
    killed = complete(related, Workers(1), Store(), random.Random(seed))
    assert ends(killed) == ends(complete(related, Workers(1), Store()))


@pytest.mark.parametrize("kind", [kind for kind, each in Search.choices().items() if not each.exhaustive])
def test_known_points_come_first_and_the_search_draws_what_they_leave_out(kind: str):
    known = [{"training.lr": 0.01, "training.batch_size": 3, "model.heads": 2}, {"model.heads": 4}]
    points = tuned(complete(plain(kind, known=known), Workers(1), Store()))
    assert len(points) == 9
    assert points[0] == known[0]
    assert points[1]["model.heads"] == 4
    assert 1e-4 <= points[1]["training.lr"] <= 0.1


def test_known_points_added_later_are_tried_if_trials_are_left():
    store = Store()
    complete(plain("tpe", search={"kind": "tpe", "trials": 4}), Workers(1), store)
    known = [{"training.lr": 0.01, "training.batch_size": 3, "model.heads": 2}]
    more = plain("tpe", search={"kind": "tpe", "trials": 6}, known=known)
    points = tuned(complete(more, Workers(1), store))
    assert len(points) == 6
    assert points[4] == known[0]


def test_a_cell_without_a_known_setting_ignores_it():
    known = [{"training.lr": 0.01, "training.batch_size": 3, "model.heads": 2}]
    narrow = plain("random", known=[{"training.lr": 0.01}], nuisance={"training.lr": RANGES["training.lr"]})
    assert tuned(complete(narrow, Workers(1), Store()))[0] == {"training.lr": 0.01}
    lr_only = plain("random", known=known)
    assert lr_only.known_points(lr_only.cells()[0]) == known


def test_points_that_a_new_condition_forbids_do_not_count():
    store = Store()
    complete(plain("random"), Workers(1), store)
    before = {record.key for record in store.records()}
    complete(plain("random", where=NARROW), Workers(1), store)
    new = [record for record in store.records() if record.key not in before]
    assert {r.point["training.batch_size"] * r.point["model.heads"] for r in new if r.role != "baseline"} == {
        8
    }
