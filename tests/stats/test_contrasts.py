"""The interval rule of `contrasts`, by hand calculation, against scipy, and by simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from loopscale.stats.contrasts import (
    MOST_DECIDING_REPLICATES,
    PRIOR,
    Array,
    Contrast,
    PooledVariance,
    common_noise,
    contrast,
    contrast_with_value,
    deciding_replicates,
    half_pooled,
    mean_interval,
    pool,
    student,
    why_none,
)
from loopscale.stats.verdict_rule import DIFFERENCE, VerdictRule
from tests.stats.simulations import coverage, draw_studies

CELLS, SEEDS, DRAWS = (2, 3, 8, 16), (2, 3, 5, 8), 4000


def study(seed: int, cells: int = 8, seeds: int = 5, noise: float = 0.1) -> Array:
    """Log errors of equally noisy cells; a seed shifts all cells."""
    rng = np.random.default_rng(seed)
    return noise * rng.standard_normal((cells, seeds)) + 0.3 * rng.standard_normal(seeds)


def some(compared: Contrast | None) -> Contrast:
    assert compared is not None
    return compared


# The noise of single runs, and Student's t


def test_student_has_the_quantile_and_the_p_value_of_scipy():
    assert student(4) == pytest.approx(stats.t.ppf(0.975, 4))
    assert student(4.5, 0.9) == pytest.approx(stats.t.ppf(0.95, 4.5))


def test_a_variance_exceeds_the_noise_at_one_percent_of_the_f_distribution():
    noise, bound = PooledVariance(0.1, 12), float(stats.f.isf(0.01, 3, 12))
    assert PooledVariance(0.101 * bound, 3).plainly_exceeds(noise)
    assert not PooledVariance(0.099 * bound, 3).plainly_exceeds(noise)


def test_the_pooled_variance_is_the_mean_square_about_the_means_of_the_groups():
    noise = pool([np.array([1.0, 3.0]), np.array([10.0, 10.0, 13.0]), np.array([7.0]), np.empty(0)])
    assert noise is not None
    assert (noise.variance, noise.freedom) == pytest.approx(((2 + 6) / 3, 3))
    assert pool([np.array([1.0]), np.empty(0)]) is None


# One pair of cells


def test_two_cells_alone_give_the_paired_t_test():
    logs = study(0, cells=2) + np.array([[0.0], [0.2]])
    compared, known = some(contrast(logs, 0, 1)), stats.ttest_rel(logs[0], logs[1])
    assert (compared.freedom, compared.seeds) == (4, 5)
    assert compared.p() == pytest.approx(known.pvalue)
    for level in (0.9, 0.95):
        assert compared.interval(level) == pytest.approx(tuple(known.confidence_interval(level)))


def test_without_a_prior_every_pair_gives_the_paired_t_test():
    logs = study(1)
    compared = some(contrast(logs, 2, 5, prior=0.0))
    assert compared.p() == pytest.approx(stats.ttest_rel(logs[2], logs[5]).pvalue)


def test_a_pair_of_a_study_by_hand():
    logs = np.array([[0.0, 0.2, 0.1], [0.3, 0.4, 0.5], [0.0, 0.0, 0.3]])
    gaps = logs[0] - logs[1]
    residual = logs - logs.mean(1, keepdims=True) - logs.mean(0) + logs.mean()
    variance = (6 * 2 * (residual**2).sum() / 4 + 2 * gaps.var(ddof=1)) / 8
    compared = some(contrast(logs, 0, 1))
    assert (compared.difference, compared.variance) == pytest.approx((-0.3, variance))
    assert (compared.freedom, compared.seeds) == (4, 3)
    half = stats.t.ppf(0.975, 4) * math.sqrt(variance / 3)
    assert compared.ratio() == pytest.approx((math.exp(-0.3), math.exp(-0.3 - half), math.exp(-0.3 + half)))


def test_the_effect_of_a_seed_on_all_cells_changes_no_contrast():
    logs = study(2)
    moved = some(contrast(logs + np.array([0, 5, 0, -3, 1]), 0, 1))
    assert moved.interval() == pytest.approx(some(contrast(logs, 0, 1)).interval())


def test_exchanging_the_cells_inverts_ratio_and_verdict():
    logs = study(3)
    logs[0] -= 1
    one, other = some(contrast(logs, 0, 1)), some(contrast(logs, 1, 0))
    assert (one.verdict(), other.verdict()) == ("less", "more")
    assert one.ratio()[0] == pytest.approx(1 / other.ratio()[0])


def test_many_replicates_let_a_pair_keep_its_own_variance():
    few, many = (half_pooled(4.0, 1.0, seeds - 1, 100)[0] for seeds in (3, 50))
    assert few == pytest.approx((PRIOR + 2 * 4) / (PRIOR + 2))
    assert many > 3.6


def test_an_interval_beyond_the_range_of_floats_ends_at_infinity():
    assert Contrast(0.0, 1e6, 1.0, 2).ratio() == (1.0, 0.0, math.inf)


def test_runs_without_any_noise_give_a_certain_verdict():
    compared = some(contrast(np.array([[0.1, 0.2], [0.3, 0.4]]), 0, 1))
    assert compared.error == pytest.approx(0, abs=1e-12)
    assert Contrast(-0.2, 0.0, 1.0, 2).p() == 0
    assert Contrast(0.0, 0.0, 1.0, 2).p() == 1


# Missing runs


def test_common_noise_is_the_residual_of_the_two_way_table():
    logs = study(5, cells=3, seeds=4)
    residual = logs - logs.mean(1, keepdims=True) - logs.mean(0) + logs.mean()
    assert common_noise(logs) == pytest.approx(((residual**2).sum() / 6, 6))


def test_with_missing_runs_common_noise_is_the_least_squares_residual():
    rng, logs = np.random.default_rng(6), study(6, cells=6, seeds=5)
    logs[rng.random(logs.shape) < 0.3] = np.nan
    logs[4, 1:] = np.nan
    kept = np.isfinite(logs) & (np.isfinite(logs).sum(1, keepdims=True) > 1)
    cells, seeds = np.nonzero(kept)
    design = np.zeros((len(cells), 11))
    design[np.arange(len(cells)), cells] = design[np.arange(len(cells)), 6 + seeds] = 1
    fitted = design @ np.linalg.lstsq(design, logs[kept], rcond=None)[0]
    freedom = len(cells) - np.linalg.matrix_rank(design)
    assert common_noise(logs) == pytest.approx((((logs[kept] - fitted) ** 2).sum() / freedom, freedom))


@pytest.mark.parametrize("same", [True, False], ids=["the same runs", "other runs"])
def test_many_tables_have_the_noise_of_each(same: bool):
    rng, logs = np.random.default_rng(14), np.stack([study(seed) for seed in range(6)])
    missing = rng.random(logs.shape) < 0.2
    logs[missing[:1].repeat(6, axis=0) if same else missing] = np.nan
    variances, freedoms = common_noise(logs)
    for table, variance, freedom in zip(logs, variances, freedoms, strict=True):
        assert common_noise(table) == pytest.approx((variance, freedom))


def test_a_missing_run_costs_one_degree_of_freedom():
    logs = study(4, cells=4, seeds=3)
    assert common_noise(logs)[1] == 6
    logs[2, 1] = np.nan
    assert common_noise(logs)[1] == 5
    assert some(contrast(logs, 2, 3)).seeds == 2


def test_a_missing_replicate_changes_nothing_for_the_other_cells():
    rng = np.random.default_rng(3)
    logs = rng.normal(0, 0.1, (4, 3)) + np.array([0, 0.5, -0.5])
    holed = np.vstack([logs, [[np.nan, 0.2, np.nan]], np.full((1, 3), np.nan)])
    whole, thinned = common_noise(logs), common_noise(holed)
    assert thinned[1] == whole[1] == 6
    assert thinned[0] == pytest.approx(whole[0])
    logs[0, 0] = np.nan
    variance, freedom = common_noise(logs)
    assert freedom == 5  # eleven trials, four means of cells, two free effects of seeds
    assert 0.05 < np.sqrt(variance) < 0.2
    apart = pool([row[np.isfinite(row)] for row in logs])
    assert apart is not None
    assert apart.variance > 4 * variance


@pytest.mark.parametrize("logs", [[[0.1, 0.2, np.nan, np.nan], [np.nan, np.nan, 0.3, 0.4]], [[0.1], [0.2]]])
def test_cells_that_share_no_seed_leave_no_common_noise(logs: list[list[float]]):
    variance, freedom = common_noise(np.array(logs))
    assert np.isnan(variance)
    assert freedom == 0


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (([0.1, 0.2], [0.3, 0.4]), ""),
        (([0.1, np.nan], [0.3, 0.4]), "fewer than two replicates"),
        (([0.1, np.nan, 0.2], [0.3, 0.4, np.nan]), "fewer than two replicates of the same seeds"),
        (([0.1, -np.inf], [0.3, 0.4]), "an error that is 0 or not finite"),
    ],
)
def test_a_pair_without_a_contrast_has_a_reason(rows: tuple[list[float], ...], reason: str):
    logs = np.array(rows)
    assert why_none(*logs) == reason
    assert (contrast(logs, 0, 1) is None) == bool(reason)


def test_one_cell_without_an_interval_has_a_reason():
    logs = np.array([[0.1, np.nan], [0.2, 0.3], [np.inf, 0.1]])
    for cell, reason in enumerate(["fewer than two replicates", "", "an error that is 0 or not finite"]):
        assert why_none(logs[cell]) == reason
        assert (contrast_with_value(logs, cell, 1.0) is None) == bool(reason)
        assert (mean_interval(logs, cell) is None) == bool(reason)


# One cell against a value, and cells of two studies


def test_one_cell_alone_and_a_value_give_the_one_sample_t_test():
    logs = study(7, cells=1)
    compared, known = some(contrast_with_value(logs, 0, 0.7)), stats.ttest_1samp(logs[0], math.log(0.7))
    assert compared.p() == pytest.approx(known.pvalue)
    low, high = known.confidence_interval(0.95)
    assert compared.interval() == pytest.approx((low - math.log(0.7), high - math.log(0.7)))


def test_a_cell_of_a_study_against_a_value_by_hand():
    logs = np.array([[0.0, 0.2, 0.1], [0.3, 0.4, np.nan], [0.0, 0.0, 0.3]])
    pooled = (2 * 0.01 + 0.005 + 2 * 0.03) / 5
    compared = some(contrast_with_value(logs, 0, 2.0))
    assert compared.difference == pytest.approx(0.1 - math.log(2))
    assert compared.variance == pytest.approx((6 * pooled + 2 * 0.01) / 8)
    assert (compared.freedom, compared.seeds) == (5, 3)


def test_the_interval_of_a_mean_error_holds_the_mean_of_the_replicates():
    logs = np.log([[0.1, 0.1, 0.1, 0.9], [0.2, 0.21, 0.2, 0.2]])
    for cell in (0, 1):
        ends = mean_interval(logs, cell)
        assert ends is not None
        assert ends[0] <= np.exp(logs[cell]).mean() <= ends[1]


def test_one_replicate_has_no_interval_beside_cells_with_more():
    logs = np.log([[0.1, np.nan], [0.2, 0.21]])
    assert mean_interval(logs, 0) is None
    ends = mean_interval(logs, 1)
    assert ends is not None
    assert ends[0] < 0.2 < ends[1]


def test_without_two_replicates_of_any_cell_no_mean_has_an_interval():
    logs = np.log([[0.1, np.nan], [0.2, np.nan], [np.nan, np.nan]])
    assert [mean_interval(logs, cell) for cell in range(3)] == [None, None, None]


def test_a_cell_with_an_infinite_or_negative_error_has_no_interval_and_changes_no_other():
    alone = np.log([[0.2, 0.22, 0.21]])
    # The logarithm of a negative error is NaN, so such a run counts as missing.
    beside = np.vstack([alone, [[np.inf, np.log(0.1), np.nan], [np.nan, np.log(0.1), np.nan]]])
    assert [mean_interval(beside, cell) for cell in range(3)] == [mean_interval(alone, 0), None, None]


def test_other_cells_narrow_the_interval_of_a_mean_error():
    alone = mean_interval(np.log([[0.20, 0.22]]), 0)
    many = mean_interval(np.log([[0.20, 0.22]] * 10), 0)
    assert alone is not None
    assert many is not None
    assert many[1] - many[0] < (alone[1] - alone[0]) / 3


# Verdicts


@pytest.mark.parametrize(
    ("low", "high", "rule", "word"),
    [
        (-0.2, -0.1, DIFFERENCE, "less"),
        (0.1, 0.2, DIFFERENCE, "more"),
        (-0.1, 0.1, DIFFERENCE, "undecided"),
        (-0.04, 0.04, VerdictRule.difference(0.05), "level"),
        (0.01, 0.04, VerdictRule.difference(0.05), "level"),
        (0.01, 0.06, VerdictRule.difference(0.05), "more"),
        (-0.06, 0.01, VerdictRule.difference(0.05), "undecided"),
        (0.01, 0.04, VerdictRule.equality(0.05), "level"),
        (0.01, 0.06, VerdictRule.equality(0.05), "undecided"),
        (0.05, 0.06, VerdictRule.equality(0.05), "more"),
        (-0.06, -0.05, VerdictRule.equality(0.05), "less"),
        (-0.06, 0.01, VerdictRule.equality(0.05), "undecided"),
    ],
)
def test_the_verdict_follows_from_the_interval_and_the_rule(
    low: float, high: float, rule: VerdictRule, word: str
):
    assert rule.judge(low, high) == word


@pytest.mark.parametrize(
    "rule", [DIFFERENCE, *map(VerdictRule.difference, (0.05, 0.2)), *map(VerdictRule.equality, (0.05, 0.2))]
)
def test_the_p_value_is_the_level_at_which_the_interval_decides(rule: VerdictRule):
    rng = np.random.default_rng(13)
    for difference, error in zip(rng.normal(0, 0.1, 50), rng.uniform(0.005, 0.1, 50), strict=True):
        compared = Contrast(float(difference), float(3 * error**2), 7.0, 3)
        p = compared.p(rule)
        assert rule.judge(*compared.interval(1 - 0.999 * p)) == "undecided"
        assert p > 0.999 or rule.judge(*compared.interval(1 - min(1.001 * p, 1))) != "undecided"


def test_four_times_the_replicates_halve_an_interval():
    compared = Contrast(0.1, 0.01 * 5, 4.0, 5)
    half = compared.half_width()
    needed = deciding_replicates(compared)
    assert needed == math.ceil(5 * (half / 0.1) ** 2)
    assert needed > 5


def test_a_margin_can_decide_with_fewer_replicates():
    compared = Contrast(0.01, 0.01 * 5, 4.0, 5)
    assert deciding_replicates(compared) is None
    half, room = compared.half_width(), math.log1p(0.2)
    assert deciding_replicates(compared, VerdictRule.difference(0.2)) == math.ceil(
        5 * (half / (room - 0.01)) ** 2
    )


def test_a_decided_contrast_needs_no_more_replicates_and_a_hopeless_one_has_no_number():
    assert deciding_replicates(Contrast(1.0, 0.01, 4.0, 5)) == 5
    assert deciding_replicates(Contrast(0.0, 0.01, 4.0, 5)) is None
    barely = Contrast(0.1, 5 * (0.1 / stats.t.ppf(0.975, 4)) ** 2 * (MOST_DECIDING_REPLICATES / 5), 4.0, 5)
    assert deciding_replicates(barely) in (MOST_DECIDING_REPLICATES, None)
    assert deciding_replicates(Contrast(0.0999, barely.variance, 4.0, 5)) is None


# Simulations: `DRAWS` studies for each number of cells and seeds


def draw(cells: int, seeds: int, spread: float, late: float, common: float) -> Array:
    """Log errors [draws, cells, seeds].

    The standard deviations of the cells differ `spread`-fold. A seed is late in all cells with probability `late`. Its
    effect on all cells has the standard deviation `common`.
    """
    rng = np.random.default_rng([cells, seeds, int(10 * spread), int(10 * late), int(10 * common)])
    logs = (
        rng.standard_normal((DRAWS, cells, seeds)) * 0.15 * spread ** np.linspace(-0.5, 0.5, cells)[:, None]
    )
    logs += 0.8 * (rng.random((DRAWS, 1, seeds)) < late)
    return logs + common * rng.standard_normal((DRAWS, 1, seeds))


def tolerance(share: float) -> float:
    """Three standard errors of a simulated share."""
    return 3 * math.sqrt(share * (1 - share) / DRAWS)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    ("spread", "late", "lowest", "highest"),
    [(1, 0, 0.946, 0.967), (2, 0, 0.944, 0.967), (4, 0, 0.935, 0.963), (1, 0.3, 0.945, 0.967)],
)
def test_intervals_cover_the_differences_of_a_study(
    spread: float, late: float, lowest: float, highest: float, seeds: int
):
    for cells in CELLS:
        covered = coverage(draw(cells, seeds, spread, late, 0.15)).mean()
        assert lowest - tolerance(lowest) <= covered <= highest + tolerance(highest), cells


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("spread", "seeds", "lowest"), [(2, 2, 0.89), (4, 2, 0.836), (2, 5, 0.92), (4, 5, 0.89)]
)
def test_the_noisiest_pair_is_covered_less(spread: float, seeds: int, lowest: float):
    shares = [coverage(draw(cells, seeds, spread, 0, 0))[-1] for cells in CELLS[1:]]
    assert min(shares) == pytest.approx(lowest, abs=tolerance(lowest) + 0.005)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("spread", [1, 4])
def test_without_a_prior_the_interval_covers_every_pair(spread: float, seeds: int):
    for cells in CELLS[:3]:
        covered = coverage(draw_studies([0, cells, seeds], DRAWS, cells, seeds, spread), prior=0.0)
        # Four standard errors, because the 28 pairs of eight cells have a lowest and a highest coverage.
        assert np.abs(covered - 0.95).max() <= 4 * math.sqrt(0.95 * 0.05 / DRAWS), cells


def test_the_simulated_rule_equals_the_rule_of_a_contrast():
    logs = draw(3, 5, 2, 0.3, 0.15)[:200]
    covered = [low <= 0 <= high for table in logs for low, high in [some(contrast(table, 1, 2)).interval()]]
    assert np.mean(covered) == coverage(logs)[-1]


@pytest.mark.parametrize(("common", "lowest", "highest"), [(0.0, 0.945, 0.967), (0.15, 0.927, 0.955)])
def test_the_interval_of_one_cell_against_a_value_covers(common: float, lowest: float, highest: float):
    for cells in (1, *CELLS):
        for seeds in SEEDS:
            logs = draw(cells, seeds, 1, 0, common)
            own = logs.var(-1, ddof=1)
            behind = cells * (seeds - 1)
            variance, freedom = half_pooled(own, own.mean(1, keepdims=True), seeds - 1, behind)
            half = stats.t.ppf(0.975, freedom) * np.sqrt(variance / seeds)
            covered = float((np.abs(logs.mean(-1)) <= half).mean())
            assert lowest - tolerance(lowest) <= covered <= highest + tolerance(highest), (cells, seeds)
            compared = some(contrast_with_value(logs[0], 0, 1.0))
            assert compared.half_width() == pytest.approx(half[0, 0])


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "noise"), [(2, 0.05), (2, 0.3), (3, 0.05), (3, 0.6), (5, 0.2)])
@pytest.mark.parametrize("cells", [2, 8])
def test_the_interval_of_a_mean_error_covers(cells: int, seeds: int, noise: float):
    logs = draw(cells, seeds, 1, 0, 0)[:1000] / 0.15 * noise
    ends = np.array([mean_interval(table, 0) for table in logs], dtype=np.float64)
    covered = (ends[:, 0] <= math.exp(noise**2 / 2)) & (math.exp(noise**2 / 2) <= ends[:, 1])
    assert 0.945 - 0.022 <= covered.mean() <= 0.975 + 0.015  # three standard errors


@pytest.mark.slow
@pytest.mark.parametrize("cells", [2, 3, 6, 20])
@pytest.mark.parametrize(("seeds", "noise"), [(2, 0.05), (2, 0.3), (3, 0.05), (3, 0.6), (5, 0.2)])
def test_the_interval_of_a_mean_error_covers_with_few_cells_and_with_many(
    cells: int, seeds: int, noise: float
):
    logs = draw(cells, seeds, 1, 0, 0)[: 200 * max(1, 10 // cells)] / 0.15 * noise
    ends = np.array(
        [[mean_interval(table, cell) for cell in range(cells)] for table in logs], dtype=np.float64
    )
    truth = math.exp(noise**2 / 2)
    assert 0.91 <= ((ends[..., 0] <= truth) & (truth <= ends[..., 1])).mean() <= 0.98


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("cells", [2, 6])
@pytest.mark.parametrize("common", [0.0, 0.5])
def test_a_difference_by_seed_is_covered_with_and_without_common_effects_of_seeds(cells: int, common: float):
    rng, hits, widths = np.random.default_rng(2), [], []
    for _ in range(1000):
        compared = some(contrast(rng.normal(0, 0.1, (cells, 3)) + rng.normal(0, common, 3), 0, 1))
        hits.append(abs(compared.difference) <= compared.half_width())
        widths.append(compared.half_width())
    assert 0.93 <= np.mean(hits) <= 0.97  # a standard error of .7 %
    assert np.median(widths) < 0.5


def test_a_table_that_changes_in_place_has_its_new_noise():
    table = study(3)
    before = mean_interval(table, 0), contrast(table, 0, 1)
    table[2] *= 3.0
    changed = table.copy()
    assert (mean_interval(table, 0), contrast(table, 0, 1)) == (
        mean_interval(changed, 0),
        contrast(changed, 0, 1),
    )
    assert before[0] != mean_interval(table, 0)


# Several pairs


def test_the_contrast_of_several_pairs_is_the_mean_of_their_differences():
    logs = study(3)
    gaps = (logs[[0, 1, 2]] - logs[[3, 4, 5]]).mean(axis=0)
    compared = some(contrast(logs, [0, 1, 2], [3, 4, 5], prior=0.0))
    reference = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
    assert compared.interval() == pytest.approx(tuple(reference))
    values = [0.5, 0.7, 0.9]
    beside = some(contrast_with_value(logs, [0, 1, 2], values, prior=0.0))
    reference = stats.ttest_1samp((logs[:3] - np.log(values)[:, None]).mean(axis=0), 0).confidence_interval(
        0.95
    )
    assert beside.interval() == pytest.approx(tuple(reference))


def test_one_pair_in_a_list_has_the_contrast_of_the_pair():
    logs = study(4)
    assert contrast(logs, [1], [2]) == contrast(logs, 1, 2)
    assert contrast_with_value(logs, [1], [0.8]) == contrast_with_value(logs, 1, 0.8)


def test_a_seed_that_is_missing_in_one_pair_is_left_out_of_all_pairs():
    logs = study(5)
    logs[1, 2] = np.nan
    kept = np.delete(logs, 2, axis=1)
    compared = some(contrast(logs, [0, 1], [2, 3], prior=0.0))
    assert compared.seeds == 4
    assert compared.difference == pytest.approx((kept[[0, 1]] - kept[[2, 3]]).mean())


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5, 8])
@pytest.mark.parametrize(("effect", "least"), [(0.0, 0.94), (0.1, 0.9)])
def test_intervals_over_several_pairs_cover(seeds: int, effect: float, least: float):
    """`effect` is the share of the variance that is an effect of a seed on one side in all eight pairs."""
    rng, hits, draws = np.random.default_rng(seeds), 0, 800
    sides = [list(range(8)), list(range(8, 16))]
    for _ in range(draws):
        logs = math.sqrt(1 - effect) * rng.standard_normal((16, seeds))
        for side in sides:
            logs[side] += math.sqrt(effect) * rng.standard_normal(seeds)
        low, high = some(contrast(logs, *sides)).interval()
        hits += low < 0 < high
    assert hits / draws > least - 0.02
