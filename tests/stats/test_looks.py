"""Looks at a running study: bounds, p-values, futility, and the studies that they stop."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from loopscale.stats.contrasts import ALPHA, Array, Contrast, contrast, contrast_with_value, half_widths
from loopscale.stats.looks import ClaimLooks, LookSchedule, looks_at, looks_at_value
from loopscale.stats.verdict_rule import DIFFERENCE, VerdictRule
from tests.stats.simulations import (
    NOISES,
    SCHEDULE,
    StoppedStudies,
    all_pairs,
    contrasts_at_looks,
    control_pairs,
    draw_studies,
    simulate_look_family,
    stop_lengths,
    stop_studies,
)

RULES = [DIFFERENCE, VerdictRule.difference(0.1), VerdictRule.equality(0.1)]
ONE_PAIR = np.array([0]), np.array([1])
RECORDED_SEEDS = (16.4, 18.0, 19.3, 12.8, 4.6)
"""The mean seeds of the first simulation of these looks, for effects of 0, .05, .1, .2 and .5."""


def stopped(draws: int, effect: float, futility: bool, alphas: Array | None = None) -> StoppedStudies:
    looks = contrasts_at_looks(draw_studies([4], draws, 8, 27), ONE_PAIR, SCHEDULE)
    return stop_studies(looks, effect, SCHEDULE.alphas() if alphas is None else alphas, SCHEDULE, futility)


def tolerance(share: float, draws: int) -> float:
    """3.1 standard errors of a simulated share."""
    return 3.1 * math.sqrt(share * (1 - share) / draws)


# Levels of the looks


def test_two_equal_looks_have_the_bounds_of_the_book():
    """2.157 and 2.201 for Lan and DeMets' function like Pocock's bounds (Jennison and Turnbull 2000, chapter 7)."""
    bounds = stats.norm.isf(LookSchedule((2, 4)).alphas() / 2)
    assert bounds == pytest.approx([2.157, 2.201], abs=2e-3)


def test_a_single_look_has_the_whole_level():
    assert LookSchedule((5,)).alphas() == pytest.approx([ALPHA])


@pytest.mark.parametrize("rate", [0.9, 0.4])
def test_looks_with_fewer_observations_than_seeds_have_the_level_together(rate: float):
    """The level is spent by seeds. The correlation of the looks is that of the observations."""
    rng, draws = np.random.default_rng(8), 200
    false, total = 0, 0
    for _ in range(draws):
        learnt = rng.random(27) < rate
        counts = [int(learnt[:seeds].sum()) for seeds in SCHEDULE.seeds]
        schedule = SCHEDULE.with_counts(counts)
        kept = [count for k, count in enumerate(counts) if count > max([1, *counts[:k]])]
        walk = rng.standard_normal((500, counts[-1])).cumsum(1)[:, np.array(kept) - 1]
        bounds = stats.norm.isf(schedule.alphas()[: len(kept)] / 2)
        false += int((np.abs(walk) / np.sqrt(kept) > bounds).any(1).sum())
        total += 500
    share = false / total
    assert share <= ALPHA + 3.1 * math.sqrt(ALPHA / total)
    assert share > 0.7 * ALPHA


def test_a_look_without_a_new_observation_is_no_look():
    assert SCHEDULE.with_counts([3, 5]) is SCHEDULE
    schedule = SCHEDULE.with_counts([1, 3, 3, 6])
    assert schedule.seeds == (5, 12, 18, 27)
    assert schedule.counts == (3, 6, 9, 14)
    assert schedule.alphas()[0] == pytest.approx(LookSchedule((5, 27)).alphas()[0])
    assert LookSchedule((3, 5)).with_counts([3, 3]).counts == (3, 4)
    assert LookSchedule((3, 5)).with_counts([0, 0]).counts == (2,)


def test_later_looks_have_no_influence_on_the_level_of_the_present_look():
    for later in ([3, 5, 8], [3, 4, 4], [3, 4, 7]):
        assert SCHEDULE.with_counts([3, 4]).alphas()[:2] == pytest.approx(
            SCHEDULE.with_counts([3, 4, *later[2:]]).alphas()[:2]
        )


def test_only_seeds_at_which_both_sides_have_learnt_are_compared():
    rng = np.random.default_rng(9)
    logs = 0.1 * rng.standard_normal((3, 12))
    learnt = np.ones((3, 12), bool)
    learnt[0, 1] = learnt[1, 6] = False
    logs[0, 1] = logs[1, 6] = 3.0
    logs[2, 4] = np.nan  # a run that is missing in another cell
    found = looks_at(logs, 0, 1, SCHEDULE, learnt)
    assert found is not None
    assert [each.seeds for each in found.contrasts] == [2, 4, 6, 10]
    assert found.schedule.seeds[:4] == (3, 5, 8, 12)
    masked = np.where(learnt, logs, np.nan)
    assert found.contrasts[-1] == contrast(masked, 0, 1, SCHEDULE.prior)
    assert abs(found.contrasts[-1].difference) < 0.2
    value = looks_at_value(logs, 0, 1.0, SCHEDULE, learnt)
    assert value is not None
    assert [each.seeds for each in value.contrasts] == [2, 4, 7, 11]
    learnt[0, :] = False
    assert looks_at(logs, 0, 1, SCHEDULE, learnt) is None


def test_all_looks_together_have_the_level():
    rng, draws = np.random.default_rng(7), 100_000
    walk = rng.standard_normal((draws, 27)).cumsum(1)[:, np.array(SCHEDULE.seeds) - 1]
    z = np.abs(walk) / np.sqrt(SCHEDULE.seeds)
    for alpha in (0.05, 0.01):
        crossed = (z > stats.norm.isf(SCHEDULE.alphas(alpha) / 2)).any(1).mean()
        assert crossed == pytest.approx(alpha, abs=tolerance(alpha, draws))


def test_the_level_of_a_look_depends_on_no_later_look():
    early, whole = LookSchedule((3, 5, 27)).alphas(), LookSchedule((3, 5, 8, 27)).alphas()
    assert early[:2] == pytest.approx(whole[:2])


@pytest.mark.parametrize("seeds", [(), (1, 3), (3, 3), (5, 3)])
def test_a_schedule_without_order_is_refused(seeds: tuple[int, ...]):
    with pytest.raises(ValueError, match="give ascending numbers from 2 on"):
        LookSchedule(seeds)


@pytest.mark.parametrize("alpha", [1e-4, 0.01, 0.05])
def test_the_p_value_of_looks_inverts_their_levels(alpha: float):
    for look, level in enumerate(SCHEDULE.alphas(alpha)):
        p = np.ones(look + 1)
        p[look] = level
        assert float(SCHEDULE.p(p)) == pytest.approx(alpha, rel=0.01)
    assert float(SCHEDULE.p(np.ones(6))) == 1


# Looks at one claim


def test_a_look_has_the_contrast_of_the_seeds_so_far():
    logs = draw_studies([1], 1, 4, 12)[0]
    found = looks_at(logs[:, :9], 1, 2, SCHEDULE)
    assert found is not None
    assert found.contrasts == tuple(contrast(logs[:, :seeds], 1, 2, prior=2.0) for seeds in (3, 5, 8))
    present, level = found.contrasts[-1], SCHEDULE.alphas()[2]
    half = stats.t.isf(level / 2, present.freedom) * present.error
    assert found.interval() == pytest.approx((present.difference - half, present.difference + half))


def test_before_the_first_look_nothing_is_judged():
    assert looks_at(draw_studies([1], 1, 4, 2)[0], 0, 1, SCHEDULE) is None


def test_the_next_seed_replaces_a_failed_run():
    logs = draw_studies([1], 1, 4, 6)[0]
    logs[0, 1] = np.nan
    found = looks_at(logs, 0, 1, LookSchedule((3, 5)))
    assert found is not None
    assert [one.seeds for one in found.contrasts] == [3, 5]
    assert found.contrasts[0] == contrast(logs[:, :4], 0, 1, prior=2.0)


def test_a_later_look_does_not_withdraw_a_verdict():
    clear, unclear = Contrast(-1.0, 0.01, 4.0, 3), Contrast(0.0, 1.0, 6.0, 5)
    seen = ClaimLooks(SCHEDULE, (clear, unclear))
    assert seen.verdict() == "less"
    assert ClaimLooks(SCHEDULE, (unclear, clear)).verdict() == "less"
    assert not seen.is_futile()
    low, high = seen.interval()
    assert low < 0 < high


@pytest.mark.parametrize("rule", RULES)
def test_the_p_value_of_a_claim_is_the_level_at_which_the_looks_decide(rule: VerdictRule):
    for seed in range(20):
        seen = looks_at(draw_studies([seed], 1, 4, 12, noise=0.1)[0], 0, 1, SCHEDULE)
        assert seen is not None
        p = seen.p(rule)
        assert seen.verdict(rule, min(0.98 * p, 0.45)) == "undecided"  # a p-value above .5 is 1
        if p < 0.45:
            assert seen.verdict(rule, 1.02 * p) != "undecided"


# Futility


@pytest.mark.parametrize(
    ("rule", "now"),
    [
        (DIFFERENCE, 0.06),
        (VerdictRule.difference(0.1), 0.03),
        (VerdictRule.difference(0.5), 0.1),
        (VerdictRule.equality(0.1), 0.03),
        (VerdictRule.equality(0.1), 0.15),
    ],
)
def test_the_chance_of_a_verdict_is_the_share_of_drawn_ends(rule: VerdictRule, now: float):
    rng, variance, draws = np.random.default_rng(8), 0.045, 200_000
    later = now + rng.standard_normal(draws) * math.sqrt(variance * (1 / 8 - 1 / 27))
    bar = float(half_widths(math.sqrt(variance / 27), 28, float(SCHEDULE.alphas()[-1])))
    decided = rule.judge_all(later - bar, later + bar) != "undecided"
    chance = float(SCHEDULE.chance(now, variance, 2, rule))
    assert chance == pytest.approx(decided.mean(), abs=tolerance(0.5, draws))


def test_a_claim_without_a_difference_is_futile_and_a_margin_can_rescue_the_claim():
    seen = ClaimLooks(SCHEDULE, (Contrast(0.0, 0.01, 20.0, 12),) * 4)
    assert seen.is_futile()
    assert not seen.is_futile(VerdictRule.difference(0.2))


# Simulations


def test_looks_cover_at_the_end_and_looks_at_95_percent_do_not():
    draws = 4000
    plain = stopped(draws, 0.0, False, np.full(6, ALPHA))
    spending = stopped(draws, 0.0, False)
    assert plain.verdict == pytest.approx(0.155, abs=tolerance(0.155, draws))
    assert spending.verdict <= 0.05
    assert spending.covered >= 0.95
    for effect in (0.05, 0.2):
        assert stopped(draws, effect, True).covered >= 0.95


@pytest.mark.parametrize(("effect", "seeds"), [(0.0, 16.4), (0.2, 12.8), (0.5, 4.6)])
def test_futility_saves_seeds(effect: float, seeds: float):
    ended = stopped(4000, effect, True)
    assert ended.seeds == pytest.approx(seeds, abs=0.5)  # three standard errors of the mean of 4,000 studies
    assert ended.seeds <= stopped(4000, effect, False).seeds


@pytest.mark.slow
def test_futility_saves_the_recorded_seeds():
    for effect, seeds in zip((0.0, 0.05, 0.1, 0.2, 0.5), RECORDED_SEEDS, strict=True):
        ended = stopped(40_000, effect, True)
        assert ended.seeds == pytest.approx(seeds, abs=0.2), effect  # three standard errors, and rounding
        assert ended.covered >= 0.96 - tolerance(0.96, 40_000)
    assert stopped(40_000, 0.1, False).verdict - stopped(40_000, 0.1, True).verdict < 0.025


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    ("cells", "prior", "most"), [(2, 2.0, 0.057), (8, 2.0, 0.07), (3, 2.0, 0.086), (3, 0.0, 0.062)]
)
def test_the_noisiest_pair_is_judged_falsely_at_most_this_often(
    noise: str, cells: int, prior: float, most: float
):
    logs = draw_studies([6, cells], 8000, cells, 27, *NOISES[noise])
    pair = np.array([cells - 2]), np.array([cells - 1])
    looks = contrasts_at_looks(logs, pair, SCHEDULE, prior)
    share = stop_studies(looks, 0.0, SCHEDULE.alphas(), SCHEDULE, False).verdict
    assert share <= most + tolerance(most, 8000)


def test_looks_at_a_family_rarely_give_any_false_verdict():
    draws = 500
    shares = simulate_look_family(control_pairs(8), draw_studies([5], draws, 8, 27), np.zeros(8), SCHEDULE)
    assert shares.alone > 0.45
    assert shares.corrected <= 0.031 + tolerance(0.031, draws)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["equal", "4-fold", "late runs"])
@pytest.mark.parametrize("pairs", [control_pairs(8), all_pairs(8)], ids=["control", "all pairs"])
def test_looks_at_a_family_rarely_give_any_false_verdict_in_many_studies(
    noise: str, pairs: tuple[np.ndarray, np.ndarray]
):
    logs = draw_studies([5], 4000, 8, 27, *NOISES[noise])
    for means in (np.zeros(8), np.repeat([0.0, 0.3], 4)):
        shares = simulate_look_family(pairs, logs, means, SCHEDULE)
        assert shares.corrected <= 0.031 + tolerance(0.031, 4000)


def test_looks_at_a_value_are_the_contrasts_with_this_value():
    logs = np.random.default_rng(5).normal(size=(3, 9))
    logs[1, 3] = np.nan
    looks = looks_at_value(logs, 1, 2.0, LookSchedule((3, 5, 8, 12)))
    assert looks is not None
    assert [each.seeds for each in looks.contrasts] == [3, 5, 8]
    expected = [contrast_with_value(logs[:, :columns], 1, 2.0, prior=2.0) for columns in (3, 6, 9)]
    assert list(looks.contrasts) == expected
    assert looks_at_value(logs[:, :2], 1, 2.0, LookSchedule()) is None


@pytest.mark.slow
@pytest.mark.parametrize("steps", [2, 8])
def test_longer_trainings_after_undecided_looks_keep_the_level(steps: int):
    """Without the split, a study that trains every length finds an effect in up to 16 % of studies without one."""
    count = steps.bit_length()
    split = replace(LookSchedule(), parts=count)
    level, unsplit = (stop_lengths(3, 4_000, [0.0] * count, each) for each in (split, LookSchedule()))
    assert level.any_false < 0.05
    assert level.covered > 0.95
    assert unsplit.any_false > 0.065
    late = stop_lengths(3, 4_000, [0.0] * (count - 1) + [0.2], split)
    assert late.covered > 0.95
    assert stop_lengths(3, 4_000, [0.2] * count, split).verdict > 0.9


def test_a_schedule_with_parts_judges_each_part_at_its_share_of_the_level():
    whole, split = LookSchedule(), replace(LookSchedule(), parts=4)
    assert split.alphas(0.04).tolist() == whole.alphas(0.01).tolist()
    p = np.array([[0.001, 0.004]])
    assert split.p(p) == pytest.approx(4 * whole.p(p))
    assert split.p(np.array([[0.9]])) == 1
