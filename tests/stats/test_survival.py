"""Interval-censored survival, by hand and by simulation. The reference tests compare with lifelines."""

import math

import numpy as np
import pytest

from loopscale.stats.survival import (
    AcceleratedFailureTime,
    Distribution,
    accelerated_failure_time,
    survival_curve,
)
from tests.stats.simulated_emergence import DISTRIBUTIONS, simulated


def some(fit: AcceleratedFailureTime | None) -> AcceleratedFailureTime:
    assert fit is not None
    return fit


def test_the_curve_falls_inside_an_interval_and_ends_above_zero_with_censored_runs():
    curve = survival_curve(np.array([0.0, 100, 100, 300]), np.array([100.0, 200, 200, np.inf]))
    assert (curve.after.tolist(), curve.by.tolist()) == ([0, 100], [100, 200])
    assert curve.share == pytest.approx([0.75, 0.25])
    assert curve.at(np.array([0.0, 99, 100, 199, 200, 1e6])) == pytest.approx([1, 1, 0.75, 0.75, 0.25, 0.25])
    assert curve.median == 200
    assert survival_curve(np.full(3, 100.0), np.full(3, np.inf)).median == math.inf


def test_units_of_the_columns_and_of_the_steps_do_not_matter():
    columns, after, by = simulated(7, each=10)
    fit = some(accelerated_failure_time(columns, after, by))
    other = some(accelerated_failure_time(1e6 * columns, 1000 * after, 1000 * by))
    assert 1e6 * other.coefficients == pytest.approx(fit.coefficients)
    assert 1e6 * other.errors == pytest.approx(fit.errors)
    assert other.level == pytest.approx(fit.level + math.log(1000))


def test_a_run_without_information_changes_nothing():
    columns, after, by = simulated(9, each=10)
    fit = some(accelerated_failure_time(columns, after, by))
    more = some(
        accelerated_failure_time(
            np.append(columns, [[3.0]], axis=0), np.append(after, 0), np.append(by, np.inf)
        )
    )
    assert more.coefficients == pytest.approx(fit.coefficients, abs=1e-5)
    assert more.log_likelihood == pytest.approx(fit.log_likelihood)


def test_there_is_no_fit_if_the_likelihood_has_no_maximum():
    columns, after, by = simulated(8)
    never = np.full(16, np.inf)
    first, last = columns[:, 0] == 0, columns[:, 0] > 0
    assert accelerated_failure_time(columns, np.full(16, 1200.0), never) is None
    assert accelerated_failure_time(columns[:3], after[:3], by[:3]) is None
    assert accelerated_failure_time(np.column_stack([columns, 2 * columns]), after, by) is None
    separated = accelerated_failure_time(
        first[:, None].astype(float), np.where(last, after, 1200), np.where(last, by, np.inf)
    )
    assert separated is None


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_interval_covers_the_slope_of_few_runs_with_censoring(distribution: Distribution):
    draws = [simulated(seed, distribution=distribution) for seed in range(400)]
    fits = [some(accelerated_failure_time(*draw, distribution)) for draw in draws]
    slopes = np.array([fit.coefficients[0] for fit in fits])
    covered = np.mean([low < 0.4 < high for low, high in (fit.interval(0) for fit in fits)])
    assert np.median(slopes) == pytest.approx(0.4, abs=0.03)
    assert 0.92 < covered < 0.98


def test_without_the_censored_runs_the_slope_is_halved():
    slopes = list[float]()
    for seed in range(200):
        columns, _, by = simulated(seed)
        emerged = np.isfinite(by)
        slopes.append(float(np.polyfit(columns[emerged, 0], np.log(by[emerged]), 1)[0]))
    assert np.median(slopes) < 0.27


def test_with_shared_reports_the_curve_is_the_product_of_the_shares_that_stay():
    after = np.array([0.0, 100, 100, 200, 100, 300])
    by = np.array([100.0, 200, np.inf, 300, 200, np.inf])
    curve = survival_curve(after, by)
    # A run that was only watched until step 100 is at risk until step 100.
    assert curve.by.tolist() == [100, 200, 300]
    assert curve.share == pytest.approx([5 / 6, 5 / 6 * 2 / 4, 5 / 6 * 2 / 4 * 1 / 2], abs=1e-6)
