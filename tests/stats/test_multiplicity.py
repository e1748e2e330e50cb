"""Families of claims: corrections by hand, and the chance of any false verdict."""

import math

import numpy as np
import pytest
from scipy import stats

from loopscale.stats.contrasts import ALPHA, Array, Contrast, contrast, contrasts
from loopscale.stats.looks import LookSchedule, looks_at
from loopscale.stats.multiplicity import AdjustedJudgement, Evidence, bonferroni, holm, judge_claims
from loopscale.stats.verdict_rule import DIFFERENCE, VerdictRule
from tests.stats.simulations import (
    NOISES,
    FamilyShares,
    all_pairs,
    control_pairs,
    draw_studies,
    simulate_family,
    simulate_lowest,
)

QUICK = 1000
RULES = [DIFFERENCE, VerdictRule.difference(0.1), VerdictRule.equality(0.1)]


def claim(p: float, sign: int = -1) -> Contrast:
    """A contrast of five seeds with this p-value."""
    return Contrast(sign * float(stats.t.isf(p / 2, 4)), 5.0, 4.0, 5)


def above(share: float, draws: int) -> float:
    """A simulated share that a true share exceeds with a chance of .1 %."""
    return share + 3.1 * math.sqrt(share * (1 - share) / draws)


def words(verdicts: tuple[AdjustedJudgement, ...]) -> list[str]:
    return [one.verdict for one in verdicts]


# By hand


def test_holm_equals_a_calculation_by_hand():
    assert holm(np.array([0.01, 0.04, 0.03])) == pytest.approx([0.03, 0.06, 0.06])
    assert holm(np.array([[0.5, 0.9], [0.01, 0.02]])) == pytest.approx(np.array([[1, 1], [0.02, 0.02]]))


def test_bonferroni_equals_a_calculation_by_hand():
    assert bonferroni(np.array([0.01, 0.04, 0.5])) == pytest.approx([0.03, 0.12, 1])


def test_holm_rejects_the_same_claims_as_the_textbook_procedure():
    rng = np.random.default_rng(0)
    for p in rng.beta(0.3, 3, (200, 6)):
        rejected = np.zeros(6, bool)
        for step, place in enumerate(np.argsort(p)):
            if p[place] > ALPHA / (6 - step):
                break
            rejected[place] = True
        assert ((holm(p) <= ALPHA) == rejected).all()


# Verdicts of a study


def test_a_single_claim_needs_no_correction():
    (one,) = judge_claims([claim(0.04)], [DIFFERENCE])
    assert (one.verdict, one.alone) == ("less", "less")
    assert one.adjusted_p == pytest.approx(one.p) == pytest.approx(0.04)


def test_claims_keep_their_uncorrected_intervals_beside_corrected_verdicts():
    claims = [claim(0.04), claim(0.01, sign=1), claim(0.03)]
    found = judge_claims(claims, [DIFFERENCE] * 3)
    assert words(found) == ["undecided", "more", "undecided"]
    assert [one.alone for one in found] == ["less", "more", "less"]
    assert [one.adjusted_p for one in found] == pytest.approx([0.06, 0.03, 0.06])
    assert [(one.low, one.high) for one in found] == [one.interval() for one in claims]


def test_the_verdict_of_one_claim_lets_holm_relax_the_level_of_the_next():
    assert words(judge_claims([claim(0.02), claim(0.04)], [DIFFERENCE] * 2)) == ["less", "less"]


def test_a_margin_of_one_claim_forbids_holm_for_all():
    found = judge_claims([claim(0.02), claim(0.04)], [DIFFERENCE, VerdictRule.difference(0.05)])
    assert words(found) == ["less", "undecided"]


def test_a_claim_without_data_counts_in_the_family():
    found = judge_claims([claim(0.03), None], [DIFFERENCE] * 2)
    assert words(found) == ["undecided", "undecided"]
    assert math.isnan(found[1].low)
    assert judge_claims([], []) == ()


def test_a_wider_interval_can_turn_level_into_less():
    # The 95 % interval lies within the margin. The corrected interval of ten claims leaves the margin, and not 0.
    room = math.log1p(0.05)
    error = (room - 0.045) / (stats.t.isf(0.025, 40) * 1.1)
    narrow = Contrast(-0.045, 10 * error**2, 40.0, 10)
    found = judge_claims([narrow] + [None] * 9, [VerdictRule.difference(0.05)] * 10)[0]
    assert (found.alone, found.verdict) == ("level", "less")


def test_unlisted_claims_equal_claims_without_data():
    claims = [claim(0.004), claim(0.03)]
    for rule in (DIFFERENCE, VerdictRule.difference(0.05)):
        padded = judge_claims([*claims, *[None] * 4], [rule] * 6)[:2]
        assert judge_claims(claims, [rule] * 2, unlisted=4) == padded
    assert [one.adjusted_p for one in padded] == pytest.approx([0.024, 0.18])


def test_contrasts_and_looks_are_evidence():
    logs = draw_studies([1], 1, 4, 5)[0]
    seen = contrast(logs, 0, 1), looks_at(logs, 0, 1, LookSchedule())
    assert all(isinstance(one, Evidence) for one in seen)
    assert len(judge_claims(seen, [DIFFERENCE] * 2)) == 2


def test_simulated_verdicts_equal_the_verdicts_of_judge_claims():
    logs, means = draw_studies([2], 60, 5, 5), np.array([0.0, 0, 0.2, 0.3, 0.5])
    first, second = all_pairs(5)
    shares = simulate_family((first, second), logs, means, holm)
    alone = corrected = 0
    for table in logs + means[:, None]:
        found = judge_claims(
            [contrast(table, int(a), int(b)) for a, b in zip(first, second, strict=True)], [DIFFERENCE] * 10
        )
        truth = means[first] - means[second]
        wrong = {"less": truth >= 0, "more": truth <= 0, "undecided": np.zeros(10, bool)}
        alone += any(wrong[one.alone][place] for place, one in enumerate(found))
        corrected += any(wrong[one.verdict][place] for place, one in enumerate(found))
    assert (shares.alone, shares.corrected) == pytest.approx((alone / 60, corrected / 60))
    assert alone > corrected


# Simulations


def check_family(draws: int, noise: str, seeds: int, pairs: tuple[np.ndarray, np.ndarray]) -> None:
    logs = draw_studies([2, seeds], draws, 8, seeds, *NOISES[noise])
    for means in (np.zeros(8), np.repeat([0.0, 0.4], 4)):
        shares = simulate_family(pairs, logs, means, holm)
        assert shares.corrected <= above(0.031, draws)
        assert shares.corrected < shares.alone or shares.alone < 0.02


@pytest.mark.parametrize("noise", NOISES)
def test_holm_bounds_the_chance_of_any_false_verdict(noise: str):
    check_family(QUICK, noise, 5, all_pairs(8))


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("pairs", [control_pairs(8), all_pairs(8)], ids=["control", "all pairs"])
def test_holm_bounds_the_chance_of_any_false_verdict_in_many_studies(
    noise: str, seeds: int, pairs: tuple[np.ndarray, np.ndarray]
):
    check_family(10_000, noise, seeds, pairs)


def check_lowest(draws: int, noise: str, cells: int, seeds: int) -> dict[str, FamilyShares]:
    """Level cells against the cell of lowest error."""
    logs = draw_studies([7, cells, seeds], draws, cells, seeds, *NOISES[noise])
    shares = simulate_lowest(logs, np.zeros(cells))
    assert shares["Holm, all pairs"].corrected <= above(0.05, draws)
    return shares


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("cells", [2, 3, 8, 16])
def test_verdicts_against_the_lowest_cell_count_all_pairs(noise: str, cells: int):
    check_lowest(QUICK, noise, cells, 5)


def test_the_listed_pairs_alone_are_too_small_a_family_for_the_lowest_cell():
    shares = check_lowest(QUICK, "equal", 16, 8)
    assert shares["Holm, listed pairs"].corrected > 0.07
    assert shares["Holm, listed pairs"].alone > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_verdicts_against_the_lowest_cell_in_many_studies(noise: str, seeds: int):
    for cells in (2, 3, 4, 8, 16):
        check_lowest(10_000, noise, cells, seeds)


def test_without_correction_many_studies_have_a_false_verdict():
    shares = simulate_family(all_pairs(8), draw_studies([2, 5], QUICK, 8, 5), np.zeros(8), holm)
    assert 0.38 < shares.alone < 0.48


def margin_shares(draws: int) -> tuple[float, float]:
    """Any false verdict by Holm and by Bonferroni: half the cells level, half at the margin of 10 %."""
    logs, means = draw_studies([3, 12], draws, 8, 12, noise=0.05), np.repeat([0.0, math.log(1.1)], 4)
    by_holm, by_bonferroni = (
        simulate_family(all_pairs(8), logs, means, correct, VerdictRule.difference(0.1))
        for correct in (holm, bonferroni)
    )
    return by_holm.corrected, by_bonferroni.corrected


def test_with_a_margin_holm_fails_and_bonferroni_holds():
    by_holm, by_bonferroni = margin_shares(QUICK)
    assert by_holm > 0.09
    assert by_bonferroni <= above(0.02, QUICK)


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_claims_of_equality_at_the_margin_rarely_get_any_verdict(noise: float):
    """Cells that differ by the margin are neither level nor different, so every verdict is false."""
    rule, edge = VerdictRule.equality(0.1), math.log(1.1)
    logs = draw_studies([6, round(100 * noise)], QUICK, 8, 5, noise=noise)
    shares = simulate_family(control_pairs(8), logs, np.array([0.0, *[edge] * 7]), bonferroni, rule)
    assert shares.corrected <= above(0.05, QUICK)
    assert shares.corrected < shares.alone


def test_claims_of_equality_are_found_right_on_both_sides():
    logs = draw_studies([7], QUICK, 4, 8, noise=0.02)
    shares = simulate_family(
        control_pairs(4), logs, np.array([0.0, 0.02, 0.3, 0.4]), bonferroni, VerdictRule.equality(0.1)
    )
    assert shares.corrected == 0
    assert shares.found > 0.95


def test_contrasts_of_many_studies_equal_the_contrasts_of_each_study():
    logs = draw_studies([4], 20, 6, 4, spread=2.0)
    first, second = all_pairs(6)
    many = contrasts(logs, first, second)
    for table, differences, variances in zip(logs, many.difference, many.variance, strict=True):
        for place, (a, b) in enumerate(zip(first, second, strict=True)):
            one = contrast(table, int(a), int(b))
            assert one is not None
            assert (one.difference, one.variance) == pytest.approx((differences[place], variances[place]))
            assert one.freedom == many.freedom[0, place]


@pytest.mark.parametrize("rule", RULES)
def test_p_values_and_verdicts_of_many_contrasts_equal_the_values_of_each_contrast(rule: VerdictRule):
    logs: Array = draw_studies([5], 50, 3, 4, noise=0.03)
    many = contrasts(logs, np.array([0]), np.array([1]))
    p, verdicts = many.p(rule)[:, 0], many.verdicts(rule)[:, 0]
    for table, its_p, verdict in zip(logs, p, verdicts, strict=True):
        one = contrast(table, 0, 1)
        assert one is not None
        assert one.p(rule) == pytest.approx(its_p)
        assert one.verdict(rule) == verdict
