"""The contract of every search. A new file in `loopscale/studies/searches` is tested here."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from loopscale.contracts.members import under_test
from loopscale.notation.space import Axis, Choice, Space
from loopscale.runner.decide.sampler import Exhausted, Sampler, TriedPoint
from loopscale.studies.searches.base import Search

SPACE: dict[str, Axis] = TypeAdapter(Space).validate_python(
    {
        "training.lr": {"real": [1e-4, 1e-1], "scale": "log", "points": 4},
        "training.batch_size": {"integer": [4, 64], "scale": "log", "points": 3},
        "model.heads": {"choice": [1, 2]},
    }
)
TRIALS = 12
"""Several generations of a genetic algorithm."""
Measure = Callable[[dict[str, Any]], float]


def made(kind: str, trials: int = TRIALS) -> Search:
    search = Search.choices()[kind]
    settings: dict[str, Any] = {"kind": kind, "objectives": search.weighs}
    return Search.model_validate(settings | ({} if search.exhaustive else {"trials": trials}))


EVERY = pytest.mark.parametrize(
    "search", [made(kind) for kind in under_test(Search)], ids=lambda each: each.kind
)


def near_one_percent(point: dict[str, Any]) -> float:
    """Least at a learning rate of 0.01."""
    return abs(math.log10(point["training.lr"]) + 2) + point["model.heads"] / 10


def near_one_permille(point: dict[str, Any]) -> float:
    """Least at a learning rate of 0.001, with the larger choice."""
    return abs(math.log10(point["training.lr"]) + 3) - point["model.heads"] / 10


def sampler(search: Search, done: list[TriedPoint], name: str = "cell") -> Sampler:
    return Sampler(SPACE, search, search.count(SPACE), name, done)


def record(number: int, point: dict[str, Any], error: float, memory: dict[str, Any]) -> TriedPoint:
    memory = json.loads(json.dumps(memory))
    return TriedPoint(point, "finished", error, {}, float(point["training.batch_size"]), memory)


def proposals(
    search: Search, measure: Measure = near_one_percent, name: str = "cell", dies: str = ""
) -> list[dict[str, Any]]:
    """The points of a whole search. Records rebuild the sampler before every trial, or while the trial is trained."""
    one, records = sampler(search, [], name), list[TriedPoint]()
    for number in range(search.count(SPACE)):
        if dies == "between trials":
            one = sampler(search, records, name)
        asked, point = one.ask(number)
        memory = one.memory(asked)
        one.asked[str(number)] = asked
        if dies == "during a trial":
            one = sampler(search, records, name)
            one.again(str(number), point, memory)
        records.append(record(number, point, measure(point), memory))
        one.tell(str(number), records[-1])
    return [each.point for each in records]


@EVERY
def test_the_name_of_a_cell_fixes_the_points(search: Search):
    points = proposals(search)
    assert points == proposals(search)
    assert points != proposals(search, name="other cell")


@EVERY
@pytest.mark.parametrize("dies", ["between trials", "during a trial"])
def test_a_search_rebuilt_from_records_proposes_the_same_points(search: Search, dies: str):
    assert proposals(search, dies=dies) == proposals(search)


@EVERY
def test_points_lie_within_the_ranges(search: Search):
    for point in proposals(search):
        assert list(point) == list(SPACE)
        for path, axis in SPACE.items():
            value = point[path]
            assert type(value) is type(axis.ends[0])
            assert value in axis.ends if isinstance(axis, Choice) else axis.ends[0] <= value <= axis.ends[-1]


@EVERY
def test_results_change_later_points_if_and_only_if_the_search_is_adaptive(search: Search):
    changed = proposals(search, near_one_percent) != proposals(search, near_one_permille)
    assert changed is search.adaptive
    assert not (search.adaptive and search.order_free)


@EVERY
def test_an_order_free_search_needs_only_the_number_of_a_trial(search: Search):
    if search.order_free:
        backwards = [sampler(search, []).ask(number)[1] for number in reversed(range(TRIALS))]
        assert backwards[::-1] == proposals(search)


@EVERY
def test_an_exhaustive_search_lists_every_point_once_and_other_searches_list_no_point(search: Search):
    listed = search.listed_points(SPACE, seed=0)
    assert (listed is not None) is search.exhaustive
    if listed is None:
        return
    assert search.count(SPACE) == len(listed) == len({tuple(point.values()) for point in listed}) == 4 * 3 * 2
    done = [record(number, point, 1.0, {}) for number, point in enumerate(listed)]
    with pytest.raises(Exhausted):
        sampler(search, done).ask(len(listed))


@EVERY
def test_a_search_tries_no_more_points_than_the_space_has(search: Search):
    space: dict[str, Axis] = {"model.heads": Choice(choice=(1, 2, 4))}
    assert search.count(space) == 3
    assert search.count({}) == 0


@EVERY
def test_another_attempt_gives_another_point(search: Search):
    one = sampler(search, [])
    assert one.ask(0)[1] != one.ask(0, attempt=1)[1]


@EVERY
def test_a_stateful_search_has_attributes_that_records_keep(search: Search):
    one = sampler(search, [])
    asked, _ = one.ask(0)
    assert bool(one.memory(asked)) is search.stateful
    assert json.loads(json.dumps(one.memory(asked))) == one.memory(asked)


@EVERY
def test_a_search_minimises_its_own_objectives_only(search: Search):
    others = {("error",), ("error", "flops")} - {search.weighs}
    for objectives in others:
        with pytest.raises(ValueError, match="objectives"):
            Search.model_validate({"kind": search.kind, "objectives": objectives})


@EVERY
def test_a_search_survives_a_round_trip_through_yaml(search: Search):
    assert Search.model_validate(search.model_dump(mode="json", exclude_unset=True)) == search
    assert set(search.model_dump(mode="json")) == {"kind", "trials", "seeds", "objectives"}
