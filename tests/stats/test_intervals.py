"""Pooled noise, Student's t, and the intervals of mean errors and of differences by seed."""

import numpy as np
import pytest
from scipy import stats

from loopscale.stats.intervals import PooledVariance, mean_intervals, paired, pool, student, student_p


def coverage(simulations: int, cells: int, replicates: int, noise: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    hits = []
    for _ in range(simulations):
        centres = rng.normal(-2, 1, cells)
        groups = [np.exp(centre + noise * rng.standard_normal(replicates)) for centre in centres]
        truth = np.exp(centres + noise**2 / 2)
        intervals = np.array(mean_intervals(groups), dtype=np.float64)
        hits.append((intervals[:, 0] <= truth) & (truth <= intervals[:, 1]))
    return float(np.mean(hits))


def test_student_has_the_quantile_and_the_p_value_of_scipy():
    assert student(4) == pytest.approx(stats.t.ppf(0.975, 4))
    assert student(4.5, 0.9) == pytest.approx(stats.t.ppf(0.95, 4.5))
    assert student_p(-2.5, 4.5) == pytest.approx(2 * stats.t.sf(2.5, 4.5))


def test_a_variance_exceeds_the_noise_at_one_percent_of_the_f_distribution():
    noise, bound = PooledVariance(0.1, 12), float(stats.f.isf(0.01, 3, 12))
    assert PooledVariance(0.101 * bound, 3).plainly_exceeds(noise)
    assert not PooledVariance(0.099 * bound, 3).plainly_exceeds(noise)


CASES = [(2, 0.05), (2, 0.3), (3, 0.05), (3, 0.6), (5, 0.2)]


@pytest.mark.parametrize(("replicates", "noise"), CASES)
def test_95_percent_intervals_cover_the_mean_of_a_cell(replicates, noise):
    # 40 simulated studies of 25 cells: 1,000 intervals, whose share has a standard error under 1 %
    assert 0.91 <= coverage(40, 25, replicates, noise, seed=replicates) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("cells", [2, 3, 6, 20])
@pytest.mark.parametrize(("replicates", "noise"), CASES)
def test_95_percent_intervals_cover_with_few_cells_and_with_many(cells, replicates, noise):
    assert 0.91 <= coverage(200 * max(1, 10 // cells), cells, replicates, noise, seed=7) <= 0.98


def test_one_replicate_has_no_interval_beside_cells_with_more():
    one, two = mean_intervals([np.array([0.1]), np.array([0.2, 0.21])])
    assert one is None
    assert two is not None
    assert two[0] < 0.2 < two[1]


def test_without_two_replicates_of_any_cell_there_is_no_interval():
    assert mean_intervals([np.array([0.1]), np.array([0.2]), np.empty(0)]) == [None, None, None]


def test_a_cell_with_an_infinite_or_negative_error_has_no_interval_and_changes_no_other():
    alone = mean_intervals([np.array([0.2, 0.22, 0.21])])
    beside = mean_intervals([np.array([0.2, 0.22, 0.21]), np.array([np.inf, 0.1]), np.array([-0.1, 0.1])])
    assert beside == [*alone, None, None]


def test_other_cells_narrow_the_interval_of_a_cell():
    alone = mean_intervals([np.array([0.20, 0.22])])[0]
    many = mean_intervals([np.array([0.20, 0.22])] * 10)[0]
    assert alone is not None
    assert many is not None
    assert many[1] - many[0] < (alone[1] - alone[0]) / 3


def test_two_cells_by_seed_give_the_paired_t_test():
    first, second = np.random.default_rng(1).normal(size=(2, 6))
    spread = paired(np.stack([first, second]))
    assert spread is not None
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    half = student(spread.freedom) * np.sqrt(2 * spread.variance / 6)
    assert half == pytest.approx((expected.high - expected.low) / 2)


@pytest.mark.parametrize("cells", [2, 6])
@pytest.mark.parametrize("common", [0.0, 0.5])
def test_a_difference_by_seed_is_covered_with_and_without_common_effects_of_seeds(cells, common):
    rng, hits, widths = np.random.default_rng(2), [], []
    for _ in range(1000):
        logs = rng.normal(0, 0.1, (cells, 3)) + rng.normal(0, common, 3)
        spread = paired(logs)
        assert spread is not None
        half = student(spread.freedom) * np.sqrt(2 * spread.variance / 3)
        hits.append(abs(logs[0].mean() - logs[1].mean()) <= half)
        widths.append(half)
    assert 0.93 <= np.mean(hits) <= 0.97  # a standard error of .7 %
    assert np.median(widths) < 0.5


def test_a_missing_replicate_changes_nothing_for_the_other_cells():
    rng = np.random.default_rng(3)
    logs = rng.normal(0, 0.1, (4, 3)) + np.array([0, 0.5, -0.5])
    holed = np.vstack([logs, [[np.nan, 0.2, np.nan]], np.full((1, 3), np.nan)])
    whole, thinned = paired(logs), paired(holed)
    assert whole is not None
    assert thinned is not None
    assert thinned.freedom == whole.freedom == 6
    assert thinned.variance == pytest.approx(whole.variance)
    logs[0, 0] = np.nan
    spread = paired(logs)
    assert spread is not None
    assert spread.freedom == 5  # eleven trials, four means of cells, two free effects of seeds
    assert 0.05 < np.sqrt(spread.variance) < 0.2
    apart = pool([row[np.isfinite(row)] for row in logs])
    assert apart is not None
    assert apart.variance > 4 * spread.variance


def test_cells_that_share_no_seed_have_no_common_noise():
    assert paired(np.array([[0.1, 0.2, np.nan, np.nan], [np.nan, np.nan, 0.3, 0.4]])) is None
    assert paired(np.array([[0.1], [0.2]])) is None
