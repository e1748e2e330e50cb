"""The contract of every axis of laws. A new file in `loopscale/questions/axes` is tested here."""

import math
import re

import numpy as np
import pytest

from loopscale.contracts.members import under_test
from loopscale.questions.axes.base import Array, LawAxis, Setting, axis_of
from loopscale.questions.measures import CURVE_MEASURES

TRAINED_LOOPS, EVALUATED_LOOPS, CURVE_POINTS = 3, 5, 4


LOOPS, SEEN = np.arange(1, EVALUATED_LOOPS + 1), np.arange(CURVE_POINTS)
"""The curve of a net that is trained for 3 loops and evaluated for 5 loops."""
PLANTED_GRID: Array = np.random.default_rng(0).uniform(0.1, 1, (EVALUATED_LOOPS, CURVE_POINTS))
EVERY = pytest.mark.parametrize(
    "axis", [member() for member in under_test(LawAxis).values()], ids=lambda axis: axis.kind
)


def with_factors(axis: LawAxis, number: object, last: object = None) -> float:
    """The place for this value of all factors, or for another value of the last factor."""
    values = dict.fromkeys(axis.factors, number)
    return axis.place((values | ({axis.factors[-1]: last} if last is not None else {})).get)


@EVERY
def test_a_law_names_the_axis_by_its_kind(axis: LawAxis):
    assert axis_of(axis.kind) == axis == LawAxis.model_validate(axis.model_dump())
    assert "." not in axis.kind, "a kind with a dot would be the path of a setting"
    assert axis_of(f"task.{axis.kind}") == Setting(path=f"task.{axis.kind}")


@EVERY
def test_the_title_has_a_unit_in_parentheses(axis: LawAxis):
    assert re.fullmatch(r"\S.* \(\S+\)", axis.title)


@EVERY
def test_a_place_comes_from_a_curve_or_from_factors_or_from_a_measure(axis: LawAxis):
    assert [axis.curve, bool(axis.factors), axis.measured].count(True) == 1


@EVERY
def test_a_study_varies_a_setting_of_the_axis_unless_each_run_has_a_curve(axis: LawAxis):
    assert bool(axis.varied) is not axis.curve
    assert set(axis.factors) <= axis.may_vary(axis.factors)
    assert not any(path.endswith(".") for path in axis.may_vary(()))


@EVERY
def test_values_can_be_held_out_if_and_only_if_settings_give_the_places(axis: LawAxis):
    assert bool(axis.not_held_out) is not bool(axis.factors)


@EVERY
def test_the_place_grows_with_each_factor_and_is_unknown_without_one(axis: LawAxis):
    assert math.isnan(axis.place({}.get))
    if axis.factors:
        assert 0 < with_factors(axis, 4) < with_factors(axis, 4, last=5) < with_factors(axis, 5)
        assert math.isnan(with_factors(axis, 4, last=True))
        assert math.isnan(with_factors(axis, 4, last="words"))


@EVERY
def test_a_plan_knows_the_places_of_a_curve_or_a_measure(axis: LawAxis):
    if axis.curve:
        places = axis.curve_places(TRAINED_LOOPS, SEEN.tolist())
        x, _ = axis.along_curve(LOOPS, SEEN, PLANTED_GRID, TRAINED_LOOPS, CURVE_MEASURES["error"])
        assert places == x.tolist() == sorted(set(places))
        assert all(0 < place < math.inf for place in places)
    elif axis.measured:
        assert axis.place({axis.kind: 4e9}.get) == 4e9


@EVERY
@pytest.mark.parametrize("of", CURVE_MEASURES)
def test_a_curve_has_a_value_at_every_place_that_later_loops_do_not_change(axis: LawAxis, of: str):
    if not axis.curve:
        with pytest.raises(NotImplementedError):
            axis.along_curve(LOOPS, SEEN, PLANTED_GRID, TRAINED_LOOPS, CURVE_MEASURES[of])
        return
    x, y = axis.along_curve(LOOPS, SEEN, PLANTED_GRID, TRAINED_LOOPS, CURVE_MEASURES[of])
    assert len(x) == len(y) > 1
    assert (np.diff(x) > 0).all()
    assert ((PLANTED_GRID.min() <= y) & (y <= PLANTED_GRID.max())).all()
    later = np.where(LOOPS[:, None] > TRAINED_LOOPS, 9.0, PLANTED_GRID)
    np.testing.assert_array_equal(
        axis.along_curve(LOOPS, SEEN, later, TRAINED_LOOPS, CURVE_MEASURES[of]), (x, y)
    )
    none = np.arange(0)
    nothing = axis.along_curve(none, none, np.empty((0, 0)), TRAINED_LOOPS, CURVE_MEASURES[of])
    assert [len(part) for part in nothing] == [0, 0]


@EVERY
def test_noise_of_rates_is_known_for_curves_alone(axis: LawAxis):
    assert bool(axis.rate_form) is axis.curve
    assert not axis.at_query or axis.curve
