"""Laws of a study: the choice among forms, and intervals that pool the noise of several laws."""

from collections.abc import Sequence

import numpy as np
import pytest

from loopscale.analysis.answers.findings import law_sentence
from loopscale.analysis.laws.law import (
    Law,
    comparable,
    compare_rates,
    predict,
    refusal,
    study_laws,
)
from loopscale.analysis.laws.words import law_line
from loopscale.contracts.planted_study import Planted
from loopscale.stats.fitting import FormFit, LawFit, best_form, with_pooled_noise
from loopscale.stats.forms.base import Form, variants

X = np.array([1.0, 2, 3, 4, 6, 8, 12, 16])
LAWS = {
    "power": (lambda x: 2 * x**-0.7, 0.7),
    "power_floor": (lambda x: 2 * x**-0.9 + 0.05, 0.9),
    "exponential": (lambda x: 0.8 * np.exp(-0.3 * x), 0.3),
    "double_exponential": (lambda x: np.exp(-0.05 * np.exp(0.35 * x)), 0.35),
    "log_power": (lambda x: 0.5 * np.log1p(x) ** -1.3, 1.3),
}
EACH = pytest.mark.parametrize("form", LAWS)


def runs(form: str, seed: int, noise: float = 0.05, replicates: int = 3):
    x = np.repeat(X, replicates)
    return x, LAWS[form][0](x) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(x)))


def fit_law(form: str, x: object, y: object, groups: object) -> LawFit:
    return LawFit.of_form(FormFit.of(form, x, y, groups))


def rated(
    low: float | None,
    high: float | None,
    rate: float = 1.0,
    values: int = 6,
    runs: int = 3,
    form: str = "power",
) -> LawFit:
    """A fitted law with this rate and this interval."""
    x = tuple(np.arange(1.0, values + 1))
    shape = variants(form)[0]
    return LawFit(
        form,
        {},
        rate,
        low,
        high,
        x,
        x,
        (runs,) * values,
        (),
        1.0,
        0.0,
        None,
        0,
        False,
        (),
        shape,
        (0.0, rate),
    )


@EACH
def test_a_law_without_noise_is_fitted_exactly(form):
    law = fit_law(form, X, LAWS[form][0](X), np.arange(len(X)))
    assert law.rate == pytest.approx(LAWS[form][1], rel=1e-3)
    np.testing.assert_allclose(law.value(X), LAWS[form][0](X), rtol=1e-3)


@EACH
def test_the_form_that_was_planted_is_chosen_among_all(form):
    x, y = runs(form, seed=3, noise=0.01)
    assert best_form(list(LAWS), x, y, np.arange(len(x))).form == form


def coverage(form: str, simulations: int, each: int) -> float:
    """The share of intervals that cover the rate, for `each` laws in every simulated study."""
    hits = []
    for seed in range(simulations * each):
        x, y = runs(form, seed, noise=(0.02, 0.05, 0.1)[seed % 3], replicates=2 + seed % 2)
        law = fit_law(form, x, y, np.arange(len(x)))
        hits.append(law.low <= LAWS[form][1] <= law.high)
    return float(np.mean(hits))


@pytest.mark.slow
@EACH
def test_95_percent_intervals_cover_the_rate(form):
    assert 0.91 <= coverage(form, simulations=40, each=3) <= 0.98


@pytest.mark.slow
@EACH
def test_95_percent_intervals_cover_the_rate_in_200_studies(form):
    assert 0.91 <= coverage(form, simulations=200, each=2) <= 0.98


def curves(rng: np.random.Generator, replicates: int):
    """Whole curves: each has its own height and rate, and errors that are not independent."""
    loops = np.arange(1.0, 9.0)
    rates = 0.4 + 0.05 * rng.standard_normal((replicates, 1))
    wander = np.cumsum(0.02 * rng.standard_normal((replicates, len(loops))), axis=1)
    y = np.exp(0.2 * rng.standard_normal((replicates, 1)) - rates * np.log(loops) + wander)
    return np.tile(loops, replicates), y.ravel(), np.repeat(np.arange(replicates), len(loops))


def curve_coverage(simulations: int, replicates: int) -> float:
    """The share of intervals that cover the rate, for four cells in every simulated study."""
    rng, hits = np.random.default_rng(replicates), []
    for _ in range(simulations):
        laws = with_pooled_noise([fit_law("power", *curves(rng, replicates)) for _ in range(4)])
        hits += [law.low <= 0.4 <= law.high for law in laws]
    return float(np.mean(hits))


@pytest.mark.slow
@pytest.mark.parametrize("replicates", [2, 3, 5])
def test_whole_curves_give_intervals_that_cover(replicates):
    assert 0.91 <= curve_coverage(40, replicates) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("replicates", [2, 3, 5])
def test_whole_curves_give_intervals_that_cover_in_200_studies(replicates):
    assert 0.91 <= curve_coverage(200, replicates) <= 0.98


def test_a_law_has_the_interval_the_scatter_and_the_exclusions_of_its_fit():
    x, y = runs("power", seed=4, noise=0.02)
    law = fit_law("power", np.r_[x, 0.0], np.r_[y * np.exp(0.3 * np.sin(5 * x)), 0.5], np.arange(len(x) + 1))
    assert (law.scatter, law.excluded) == (True, 1)
    alone = fit_law("exponential", X, np.exp(-0.4 * X), np.zeros(len(X)))
    assert (alone.low, alone.high) == (None, None)


def test_too_few_values_and_unknown_forms_are_errors():
    with pytest.raises(ValueError, match="1 usable value on"):
        fit_law("power", [2.0, 2.0], [0.1, 0.1], [0, 1])
    with pytest.raises(ValueError, match=r"no form 'cubic'; there is .*, power"):
        fit_law("cubic", X, X, X)


CONDITION = 10
RATE = -2 * np.log((CONDITION - 1) / (CONDITION + 1))
"""How fast the square of gradient descent's worst case falls per step: an error is a mean of squares."""


def descending(rate: float, runs: int = 3) -> Planted:
    planted = Planted(noise=0.02)
    planted.replicated(planted.cell("a"), 0.3, rate, runs=runs)
    theory = {"kind": "gd_contraction", "kappa": float(CONDITION)}
    planted.study["laws"] = [{"of": "error", "along": "loop", "form": ["exponential"], "theory": theory}]
    return planted


@pytest.mark.parametrize(("rate", "word"), [(RATE, "agrees"), (0.9, "faster")])
def test_a_planted_rate_gets_its_verdict(rate, word):
    planted = descending(rate)
    ((law,), missing) = study_laws(planted.results)
    assert law.predicted == pytest.approx(RATE, rel=1e-6)
    assert law.judgement.verdict == word, law.judgement
    assert (law.x, missing) == ((1, 2, 3, 4, 5, 6), [])


def four_values(
    errors: Sequence[float], seed: int, noise: float, scatter: float = 0.0, replicates: int = 3
) -> LawFit:
    """The best law through four values over a factor of 8, with noise of runs and a scatter of the values."""
    rng = np.random.default_rng(seed)
    logs = np.log(errors) + scatter * rng.standard_normal(4)
    x, y = np.repeat([2.0, 4, 8, 16], replicates), np.repeat(logs, replicates)
    y = np.exp(y + noise * rng.standard_normal(len(y)))
    return LawFit.of_form(best_form(["power", "exponential"], x, y, np.arange(len(y))))


def refused(errors: Sequence[float], noise: float, scatter: float = 0.0, draws: int = 200) -> float:
    laws = [four_values(errors, seed, noise, scatter) for seed in range(draws)]
    return sum(refusal(law) is not None for law in laws) / draws


def test_a_u_shape_is_no_law_and_a_descent_is_one():
    assert refused([0.52, 0.22, 0.14, 0.26], noise=0.1, draws=8) == 1
    assert refused([0.4, 0.28, 0.2, 0.14], noise=0.1, draws=8) == 0


@pytest.mark.slow
def test_a_u_shape_is_no_law_and_a_true_law_is_refused_as_rarely_as_the_f_test_says():
    assert refused([0.52, 0.22, 0.14, 0.26], noise=0.1) > 0.99
    assert refused([0.4, 0.28, 0.2, 0.14], noise=0.1) == 0
    assert refused([0.3, 0.3, 0.3, 0.3], noise=0.1) <= 0.035  # 1 % are expected: a mean of 2 of 200


@pytest.mark.slow
def test_a_steep_law_whose_cells_were_tuned_apart_is_no_refused_law():
    assert refused([0.4, 0.28, 0.2, 0.14], noise=0.02, scatter=0.1) < 0.05


def test_a_refused_law_has_its_reason_in_the_line_and_the_sentence():
    fit = four_values([0.52, 0.22, 0.14, 0.26], 0, 0.05)
    law = Law(**vars(fit), of="error", along="training.loops", judgement=refusal(fit))
    assert law.judgement is not None
    assert law.judgement.verdict == "no law"
    first, why, _ = law_line(law).split("\n")
    assert first == "law: error along training.loops follows no law of its forms, for training.loops 2 .. 16"
    assert why.startswith("  the values turn by 4")
    assert law_sentence(law).startswith("Error along loops: no law, because the values turn by 4")


def test_a_law_with_one_replicate_is_undecided():
    planted = descending(RATE, runs=1)
    ((law,), _) = study_laws(planted.results)
    assert law.low is None
    assert law.judgement.verdict == "undecided"


def test_a_law_notes_that_the_bound_does_not_depend_on_the_axis():
    planted = descending(RATE)
    planted.study["laws"][0]["along"] = "training.lr"
    for lr in np.geomspace(1e-4, 1e-2, 5):
        cell = planted.cell(f"lr={lr}", **{"training.lr": lr})
        for number in range(2):
            planted.trial(cell, "replicate", number, 0.1 + number / 100)
    fitted, _ = study_laws(planted.results)
    assert "does not depend on training.lr" in fitted[0].note


def test_there_is_a_law_for_every_combination_of_the_other_axes():
    planted = Planted(noise=0.03)
    for kind, exponent in (("looped", 0.5), ("algoformer", 1.0)):
        for loops in (2, 4, 8, 16):
            values = {"model.kind": kind, "training.loops": loops}
            planted.replicated(planted.cell(f"{kind} {loops}", **values), loops**-exponent)
    planted.study["laws"] = [{"of": "error", "along": "training.loops", "form": ["power"]}]
    fitted, _ = study_laws(planted.results)
    rates = {law.cell: law.rate for law in fitted}
    expected = {"looped": 0.5, "algoformer": 1.0}
    assert rates == pytest.approx(expected, abs=0.1)
    assert all(law.low < law.rate < law.high for law in fitted)


def test_a_law_with_too_few_finished_values_is_missing():
    planted = Planted()
    planted.replicated(planted.cell("a", **{"training.loops": 2}), 0.1)
    planted.study["laws"] = [{"of": "error", "along": "training.loops", "form": "power"}]
    fitted, (missing,) = study_laws(planted.results)
    assert (fitted, missing.because) == ([], "1 usable value on the axis is too few for power")


@pytest.mark.parametrize(
    ("kind", "of", "along", "height"),
    [
        ("one_step_best", "excess", "point", True),
        ("decoder_floor", "excess", "loop", True),
        ("one_step_best", "excess", "loop", False),
        ("gd_contraction", "error", "loop", False),
        ("bai_pretrain", "excess", "training.steps", False),
        ("first_order_sampled", "regret_last", "training.loops", True),
        ("first_order_sampled", "regret_last", "point", False),
        ("first_order_sampled", "regret", "training.loops", False),
        ("bai_pretrain", "regret_last", "prompts", False),
    ],
)
def test_heights_are_compared_if_the_bound_gives_the_measured_quantity(kind, of, along, height):
    assert comparable(kind, of, along) == height


def test_the_regret_of_the_last_query_is_a_share_of_the_variance_of_the_target():
    settings = {"task.dim": 4, "task.points": 12, "task.w_scale": 2.0}
    share = predict("one_step_best", settings, "task.dim", [2.0, 4.0], "regret_last")
    excess = predict("one_step_best", settings, "task.dim", [2.0, 4.0], "excess")
    assert share == pytest.approx([excess[0] / 8, excess[1] / 16])
    assert share == pytest.approx([3 / 14, 5 / 16]), "(d + 1)/(N + d + 1)"


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
    assert compare_rates(rated(low, high, (low + high) / 2), 1.0).verdict == word


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
        compare_rates(rated(0.031, 0.066, 0.05, form=form), 0.007).verdict
        for form in ("exponential", "power")
    ]
    assert words == ["faster", "agrees"]


def test_under_four_values_nothing_is_decided():
    verdict = compare_rates(rated(0.99, 1.01, values=3, runs=9), 1.0)
    assert (verdict.verdict, verdict.values) == ("undecided", 4)


def test_one_replicate_decides_nothing_and_the_verdict_asks_for_two():
    verdict = compare_rates(rated(None, None, runs=1), 1.0)
    assert (verdict.verdict, verdict.replicates) == ("undecided", 2)


def test_the_replicates_that_decide_bring_the_interval_below_twice_the_margin():
    verdict = compare_rates(rated(0.6, 1.4, values=4), 1.0)
    assert verdict.replicates is not None
    assert verdict.values == 64
    # four times narrower: sixteen times the replicates, a little fewer since Student's t shrinks too
    assert 35 <= verdict.replicates <= 48
    assert f"{verdict.replicates} replicates" in verdict.because


def test_an_unbounded_rate_asks_for_a_longer_axis():
    verdict = compare_rates(rated(0.6, float("inf"), values=4), 1.0)
    assert verdict.verdict == "undecided"
    assert "longer axis" in verdict.because


@pytest.mark.parametrize(
    ("predicted", "low", "high", "flat"), [(0.05, -0.02, 0.1, True), (0.05, 0.01, 0.1, False)]
)
def test_an_agreement_says_if_a_flat_line_would_agree_too(predicted, low, high, flat):
    verdict = compare_rates(rated(low, high, (low + high) / 2), predicted)
    assert verdict.verdict == "agrees"
    assert verdict.flat is flat
    assert ("a flat line would agree as well" in verdict.because) is flat


def test_a_verdict_on_curves_asks_for_no_more_values_because_each_run_has_them_all():
    verdict = compare_rates(rated(0.6, 1.4, values=4), 1.0, curves=2)
    assert verdict.values is None
    assert "values" not in verdict.because
    assert verdict.replicates is not None
    # From four degrees of freedom: t falls from 2.78 to about 2, so fewer than sixteen times as many.
    assert 20 <= verdict.replicates <= 35


def test_more_than_1000_replicates_are_not_named():
    verdict = compare_rates(rated(-30.0, 30.0, values=4), 1.0)
    assert (verdict.verdict, verdict.replicates, verdict.values) == ("undecided", None, None)
    assert "over 1000 replicates" in verdict.because
