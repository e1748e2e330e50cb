"""Pooled noise and Student's t."""

import numpy as np
import pytest
from scipy import stats

from loopscale.stats.intervals import PooledVariance, pool, student, student_p


def test_student_has_the_quantile_and_the_p_value_of_scipy():
    assert student(4) == pytest.approx(stats.t.ppf(0.975, 4))
    assert student(4.5, 0.9) == pytest.approx(stats.t.ppf(0.95, 4.5))
    assert student_p(-2.5, 4.5) == pytest.approx(2 * stats.t.sf(2.5, 4.5))


def test_a_variance_exceeds_the_noise_at_one_percent_of_the_f_distribution():
    noise, bound = PooledVariance(0.1, 12), float(stats.f.isf(0.01, 3, 12))
    assert PooledVariance(0.101 * bound, 3).plainly_exceeds(noise)
    assert not PooledVariance(0.099 * bound, 3).plainly_exceeds(noise)


def test_the_pooled_variance_is_the_mean_square_about_the_means_of_the_groups():
    noise = pool([np.array([1.0, 3.0]), np.array([10.0, 10.0, 13.0]), np.array([7.0]), np.empty(0)])
    assert noise is not None
    assert (noise.variance, noise.freedom) == pytest.approx(((2 + 6) / 3, 3))
    assert pool([np.array([1.0]), np.empty(0)]) is None
