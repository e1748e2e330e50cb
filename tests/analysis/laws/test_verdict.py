import pytest

from loopscale.analysis.laws.verdict import judge, margin


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.95, 1.05, "agrees"),
        (1.01, 1.09, "agrees"),
        (1.05, 1.30, "faster"),
        (0.70, 0.98, "slower"),
        (0.80, 1.30, "undecided"),
        (0.98, 1.15, "undecided"),
    ],
)
def test_the_verdict_follows_from_where_the_interval_lies(low, high, word):
    assert judge((low + high) / 2, low, high, 1.0, values=6, runs=3).word == word


def test_the_margin_is_a_tenth_of_the_slope_and_at_least_a_tenth():
    assert margin(0.5) == 0.1
    assert margin(-4.0) == pytest.approx(0.4)


def test_of_a_rate_per_step_the_margin_is_a_tenth_however_small_it_is():
    """An interval of .031 to .066 is no agreement with .007, though all of it is within .1."""
    assert margin(0.007, "exponential") == pytest.approx(0.0007)
    assert margin(0.0, "exponential") == 0.1
    words = [judge(0.05, 0.031, 0.066, 0.007, 6, 3, form=form).word for form in ("exponential", "power")]
    assert words == ["faster", "agrees"]


def test_under_four_values_nothing_is_decided():
    verdict = judge(1.0, 0.99, 1.01, 1.0, values=3, runs=9)
    assert (verdict.word, verdict.values) == ("undecided", 4)


def test_one_replicate_decides_nothing_and_two_are_asked_for():
    verdict = judge(1.0, None, None, 1.0, values=6, runs=1)
    assert (verdict.word, verdict.replicates) == ("undecided", 2)


def test_what_would_decide_it_brings_the_interval_under_twice_the_margin():
    verdict = judge(1.0, 0.6, 1.4, 1.0, values=4, runs=3)
    assert verdict.replicates is not None
    assert verdict.values == 64
    # four times narrower: sixteen times the replicates, a little fewer since Student's t shrinks too
    assert 35 <= verdict.replicates <= 48
    assert f"{verdict.replicates} replicates" in verdict.because


def test_a_rate_that_nothing_bounds_asks_for_a_longer_axis():
    verdict = judge(1.0, 0.6, float("inf"), 1.0, values=4, runs=3)
    assert verdict.word == "undecided"
    assert "longer axis" in verdict.because


@pytest.mark.parametrize(
    ("predicted", "low", "high", "flat"), [(0.05, -0.02, 0.1, True), (0.05, 0.01, 0.1, False)]
)
def test_what_agrees_says_so_where_a_flat_line_would_too(predicted, low, high, flat):
    verdict = judge((low + high) / 2, low, high, predicted, values=6, runs=3)
    assert verdict.word == "agrees"
    assert verdict.flat is flat
    assert ("a flat line would agree as well" in verdict.because) is flat


def test_more_values_of_a_curve_are_not_asked_for_since_they_come_with_each_run():
    verdict = judge(1.0, 0.6, 1.4, 1.0, values=4, runs=3, curves=2)
    assert verdict.values is None
    assert "values" not in verdict.because
    assert verdict.replicates is not None
    # From four degrees of freedom: t falls from 2.78 to about 2, so fewer than sixteen times as many.
    assert 20 <= verdict.replicates <= 35


def test_what_nobody_would_run_is_not_named():
    verdict = judge(1.0, -30.0, 30.0, 1.0, values=4, runs=3)
    assert (verdict.word, verdict.replicates, verdict.values) == ("undecided", None, None)
    assert "over 1000 replicates" in verdict.because
