"""The slope at the end of a training: by hand, against scipy, and error rates by simulation."""

import numpy as np
import pytest
from scipy import stats

from loopscale.stats.contrasts import Array, PooledVariance
from loopscale.stats.learning import Trend, report_scatter, trend

DRAWS = 400


def some(found: Trend | None) -> Trend:
    assert found is not None
    return found


def steps(reports: int) -> Array:
    return np.arange(1.0, reports + 1) * 50


def test_a_power_of_the_step_has_its_own_fall_per_doubling():
    found = some(trend(steps(20), 7 * steps(20) ** -0.5, PooledVariance(1e-12, 30)))
    assert (found.fall, found.low, found.high) == pytest.approx((1 - 2**-0.5,) * 3, abs=1e-5)


def test_the_interval_equals_the_interval_of_linear_regression():
    rng, x = np.random.default_rng(0), steps(20)
    regret = x**-0.3 * np.exp(0.1 * rng.standard_normal(20))
    scatter = report_scatter([(x, regret)])
    assert scatter is not None
    found = some(trend(x, regret, scatter))
    slope, _, _, _, error = tuple(stats.linregress(np.log2(x[9:]), np.log2(regret[9:])))
    half = stats.t.ppf(0.975, 9) * error
    expected = [1 - 2**value for value in (slope, slope + half, slope - half)]
    assert [found.fall, found.low, found.high] == pytest.approx(expected)


def test_the_scatter_is_pooled_over_trainings_with_lines_of_their_own():
    rng, x = np.random.default_rng(1), steps(24)
    runs = [(x, x**-rate * np.exp(0.2 * rng.standard_normal(24))) for rate in np.linspace(0, 2, 200)]
    scatter = report_scatter(runs)
    assert scatter is not None
    assert scatter.freedom == 200 * (13 - 2)
    assert np.sqrt(scatter.variance) * np.log(2) == pytest.approx(0.2, rel=0.05)


def test_reports_before_the_window_and_reports_without_a_logarithm_do_not_count():
    x, regret = steps(12), steps(12) ** -1.0
    changed = np.where(x < 300, 99.0, regret)
    scatter = PooledVariance(0.01, 9)
    assert trend(x, changed, scatter) == trend(x, regret, scatter)
    changed[8] = -0.01
    assert some(trend(x, changed, scatter)).fall == pytest.approx(0.5)


def test_too_few_reports_have_no_trend():
    one, none = np.array([100.0]), np.empty(0)
    assert report_scatter([(one, one), (none, none), (steps(2), steps(2))]) is None
    for few in (one, none):
        assert trend(few, few, PooledVariance(0.01, 9)) is None


@pytest.mark.parametrize(
    ("low", "high", "ending"),
    [(-0.1, 0.19, "over"), (0.05, 0.19, "over"), (0.05, 0.3, "falling"), (-0.1, 0.3, "unclear")],
)
def test_the_interval_gives_the_word(low: float, high: float, ending: str):
    assert Trend((low + high) / 2, low, high).ending == ending


def rates(regret: Array, reports: int, noise: float) -> dict[str, float]:
    """How often a training of a study of twelve gets each word."""
    rng, endings = np.random.default_rng(2), list[str]()
    for _ in range(DRAWS):
        runs = [(steps(reports), regret * np.exp(noise * rng.standard_normal(reports))) for _ in range(12)]
        scatter = report_scatter(runs)
        assert scatter is not None
        endings.append(some(trend(*runs[0], scatter)).ending)
    return {word: endings.count(word) / DRAWS for word in ("over", "falling", "unclear")}


def test_a_level_training_is_rarely_called_falling_and_is_over_if_reports_are_many():
    level = rates(np.full(20, 0.1), 20, 0.1)
    assert level["falling"] < 0.05
    assert 0.5 < level["over"] < 0.8
    assert rates(np.full(40, 0.1), 40, 0.05)["over"] > 0.97


def test_a_falling_training_is_never_called_over():
    fast = rates(steps(20) ** -1.0, 20, 0.1)
    assert fast["falling"] == 1
    slow = rates(steps(20) ** -0.4, 20, 0.1)
    assert slow["over"] < 0.03
    assert slow["falling"] > 0.6


def test_the_interval_covers_the_fall_with_independent_reports():
    rng, x, covered = np.random.default_rng(3), steps(20), 0
    for _ in range(DRAWS):
        runs = [(x, x**-0.3 * np.exp(0.1 * rng.standard_normal(20))) for _ in range(6)]
        scatter = report_scatter(runs)
        assert scatter is not None
        found = some(trend(*runs[0], scatter))
        covered += found.low < 1 - 2**-0.3 < found.high
    assert 0.92 < covered / DRAWS < 0.98
