"""Shapes of the bounds for transformers as decision makers."""

import pytest

from tests.theory.checks import slope, value


@pytest.mark.parametrize(
    ("kind", "setting", "over", "settings", "expected"),
    [
        ("icrl_gap", "prompts", (100, 1000), {}, -0.5),
        ("icrl_gap", "ratio", (2.0, 8.0), {}, 0.5),
        ("icrl_gap", "horizon", (100, 1000), {"log_covering": 1e9}, 2),
        ("icrl_gap", "realizability", (1.0, 4.0), {"prompts": 10**12}, 0.5),
        ("soft_linucb_depth", "horizon", (100, 1000), {}, 0.5),
        ("soft_linucb_depth", "horizon", (100, 1000), {"descent": "plain"}, 1),
        ("ts_depth", "horizon", (100, 1000), {}, 0.5),
        ("ucbvi", "episodes", (10**12, 10**13), {}, 0.5),
        ("ucbvi", "states", (10**6, 10**7), {}, 2),
        ("ucbvi", "horizon", (10**4, 10**5), {}, 3),
        ("ucbvi", "actions", (10**4, 10**5), {}, 1),
    ],
)
def test_the_slope_matches_the_catalogue(kind, setting, over, settings, expected):
    assert slope(kind, setting, over, **settings) == pytest.approx(expected, abs=1e-3)


def test_each_step_of_an_episode_takes_two_layers():
    assert value("ucbvi_depth", horizon=6) - value("ucbvi_depth", horizon=5) == 2


def test_at_the_size_of_experiments_the_bounds_exceed_the_largest_possible_regret():
    assert value("icrl_gap") > 200
    assert value("ucbvi") > 5 * 1000
