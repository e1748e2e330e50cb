"""Ranges, paths and conditions."""

import itertools
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopscale.core.config import leaves
from loopscale.notation.settings import get, put
from loopscale.notation.space import Axis, Choice, Integer, Real
from loopscale.notation.where import holds, paths
from loopscale.studies.searches.base import distribution

positive = st.floats(1e-8, 1e8)
names = st.text("abc_", min_size=1, max_size=4)
trees = st.recursive(
    st.dictionaries(names, st.integers(), max_size=3), lambda inner: st.dictionaries(names, inner, max_size=3)
)


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    scale, points = draw(st.sampled_from(["linear", "log"])), draw(st.integers(2, 20))
    kind = draw(st.sampled_from(["choice", "integer", "real"]))
    if kind == "choice":
        return Choice(choice=tuple(draw(st.lists(st.integers(), min_size=1, max_size=5, unique=True))))
    numbers = st.integers(1, 10_000) if kind == "integer" else positive
    low, high = sorted(draw(st.lists(numbers, min_size=2, max_size=2, unique=True)))
    form = Integer if kind == "integer" else Real
    return form.model_validate({kind: [low, high], "scale": scale, "points": points})


@pytest.mark.slow
@given(axes(), st.integers(0, 2**31))
def test_a_sampler_draws_values_within_the_ends(axis: Axis, seed: int):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    value = study.ask({"x": distribution(axis)}).params["x"]
    assert value in axis.ends if isinstance(axis, Choice) else min(axis.ends) <= value <= max(axis.ends)


@pytest.mark.slow
@given(axes())
def test_both_ends_belong_to_the_distribution_and_to_the_grid(axis: Axis):
    for end in axis.ends:
        assert distribution(axis)._contains(distribution(axis).to_internal_repr(end))
        assert end in axis.grid()


@pytest.mark.slow
@given(axes())
def test_a_grid_rises_without_repeating_itself_and_stays_within_the_ends(axis: Axis):
    grid = axis.grid()
    if isinstance(axis, Choice):
        assert grid == axis.choice
        return
    assert all(a < b for a, b in itertools.pairwise(grid))
    assert (grid[0], grid[-1]) == tuple(axis.ends)
    assert len(grid) <= (axis.points or 0)
    assert all(type(value) is type(axis.ends[0]) for value in grid)


@given(axes())
def test_the_place_of_a_value_is_between_the_ends_and_rises_with_it(axis: Axis):
    if isinstance(axis, Choice):
        return
    places = [axis.place(value) for value in axis.grid()]
    assert (places[0], places[-1]) == (0, 1)
    assert all(a <= b for a, b in itertools.pairwise(places))


def test_the_middle_of_a_log_range_is_its_geometric_mean():
    assert Real(real=(1e-4, 1e-2), scale="log").place(1e-3) == pytest.approx(0.5)
    assert Integer(integer=(0, 8)).place(6) == pytest.approx(0.75)


def test_a_log_grid_has_equal_ratios():
    assert Real(real=(1e-4, 1e-2), scale="log", points=3).grid() == pytest.approx((1e-4, 1e-3, 1e-2))


def test_a_grid_over_a_range_needs_points():
    with pytest.raises(ValueError, match="needs points"):
        Real(real=(0, 1)).grid()


@given(trees, st.lists(names, min_size=1, max_size=4), st.integers())
def test_put_sets_one_value_and_changes_nothing_else(tree: dict[str, Any], steps: list[str], value: int):
    path = ".".join(steps)
    before = dict(leaves(tree))
    through = {".".join(steps[:n]) for n in range(1, len(steps))}
    if through & before.keys():
        with pytest.raises(ValueError, match="has no"):
            put(tree, path, value)
        return
    put(tree, path, value)
    assert get(tree, path) == value
    kept = {name: each for name, each in before.items() if name != path and not name.startswith(f"{path}.")}
    assert dict(leaves(tree)) == kept | {path: value}


@given(trees)
def test_get_returns_every_leaf_by_its_path(tree: dict[str, Any]):
    for path, value in leaves(tree):
        assert get(tree, path) == value


SETTINGS = {"model": {"kind": "looped", "width": 16}, "training": {"loops": 4, "clip": None}}


@pytest.mark.parametrize(
    ("condition", "truth"),
    [
        ("training.loops <= 4", True),
        ("1 < training.loops < 4", False),
        ("training.loops * 4 == model.width", True),
        ("model.kind == 'gpt2' or model.width in [16, 32]", True),
        ("not model.kind == 'looped'", False),
        ("model.kind == 'looped' or model.nothing > 3", True),
        ("training.clip == null", True),
        ("training.loops - 5 == -1 and model.width % 3 == 1 and model.width // 3 == 5", True),
    ],
)
def test_a_condition_has_the_truth_value_of_its_comparisons(condition: str, truth: bool):
    assert holds(condition, SETTINGS) is truth


def test_paths_lists_the_paths_of_a_condition():
    assert paths("model.kind == 'a.b' and training.loops < model.width") == (
        "model.kind",
        "training.loops",
        "model.width",
    )


@pytest.mark.parametrize(
    "condition",
    [
        "__import__('os').system('ls')",
        "[x for x in (1,)] == 1",
        "(lambda: 1)() == 1",
        "model.width.__class__ == 1",
        "training.loops / 0 > 1",
        "training.clip > 1",
        "'a' * 9 == 'b'",
        "9 ** 9 > 1",
        "model.width > 'a'",
        "f'{1}' == 1",
        "1 < 2 < 3 and " * 60 + "1 < 2",
    ],
)
def test_a_condition_with_other_operations_is_refused(condition: str):
    with pytest.raises((ValueError, KeyError)):
        holds(condition, SETTINGS)
