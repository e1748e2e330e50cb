import pytest

from loopscale.analysis.laws.verdict import compare_rates
from loopscale.stats.forms.base import Form


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
    assert compare_rates((low + high) / 2, low, high, 1.0, values=6, runs=3).word == word


def test_the_margin_is_a_tenth_of_the_slope_and_at_least_a_tenth():
    margin = Form.choices()["power"].margin
    assert margin(0.5) == 0.1
    assert margin(-4.0) == pytest.approx(0.4)


def test_the_margin_of_a_rate_per_step_is_a_tenth_of_the_rate_however_small():
    """An interval of .031 to .066 does not agree with .007, although all of it is within .1."""
    margin = Form.choices()["exponential"].margin
    assert margin(0.007) == pytest.approx(0.0007)
    assert margin(0.0) == 0.1
    words = [
        compare_rates(0.05, 0.031, 0.066, 0.007, 6, 3, form=form).word for form in ("exponential", "power")
    ]
    assert words == ["faster", "agrees"]


def test_under_four_values_nothing_is_decided():
    verdict = compare_rates(1.0, 0.99, 1.01, 1.0, values=3, runs=9)
    assert (verdict.word, verdict.values) == ("undecided", 4)


def test_one_replicate_decides_nothing_and_the_verdict_asks_for_two():
    verdict = compare_rates(1.0, None, None, 1.0, values=6, runs=1)
    assert (verdict.word, verdict.replicates) == ("undecided", 2)


def test_the_replicates_that_decide_bring_the_interval_below_twice_the_margin():
    verdict = compare_rates(1.0, 0.6, 1.4, 1.0, values=4, runs=3)
    assert verdict.replicates is not None
    assert verdict.values == 64
    # four times narrower: sixteen times the replicates, a little fewer since Student's t shrinks too
    assert 35 <= verdict.replicates <= 48
    assert f"{verdict.replicates} replicates" in verdict.because


def test_an_unbounded_rate_asks_for_a_longer_axis():
    verdict = compare_rates(1.0, 0.6, float("inf"), 1.0, values=4, runs=3)
    assert verdict.word == "undecided"
    assert "longer axis" in verdict.because


@pytest.mark.parametrize(
    ("predicted", "low", "high", "flat"), [(0.05, -0.02, 0.1, True), (0.05, 0.01, 0.1, False)]
)
def test_an_agreement_says_if_a_flat_line_would_agree_too(predicted, low, high, flat):
    verdict = compare_rates((low + high) / 2, low, high, predicted, values=6, runs=3)
    assert verdict.word == "agrees"
    assert verdict.flat is flat
    assert ("a flat line would agree as well" in verdict.because) is flat


def test_a_verdict_on_curves_asks_for_no_more_values_because_each_run_has_them_all():
    verdict = compare_rates(1.0, 0.6, 1.4, 1.0, values=4, runs=3, curves=2)
    assert verdict.values is None
    assert "values" not in verdict.because
    assert verdict.replicates is not None
    # From four degrees of freedom: t falls from 2.78 to about 2, so fewer than sixteen times as many.
    assert 20 <= verdict.replicates <= 35


def test_more_than_1000_replicates_are_not_named():
    verdict = compare_rates(1.0, -30.0, 30.0, 1.0, values=4, runs=3)
    assert (verdict.word, verdict.replicates, verdict.values) == ("undecided", None, None)
    assert "over 1000 replicates" in verdict.because
