"""Laws of a study: the choice among forms, and intervals that pool the noise of several laws."""

import numpy as np
import pytest

from loopscale.analysis.laws.law import fit_best_form, fit_law, with_pooled_noise

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


@EACH
def test_a_law_without_noise_is_fitted_exactly(form):
    law = fit_law(form, X, LAWS[form][0](X), np.arange(len(X)))
    assert law.rate == pytest.approx(LAWS[form][1], rel=1e-3)
    np.testing.assert_allclose(law.value(X), LAWS[form][0](X), rtol=1e-3)


@EACH
def test_the_form_that_was_planted_is_chosen_among_all(form):
    x, y = runs(form, seed=3, noise=0.01)
    assert fit_best_form(list(LAWS), x, y, np.arange(len(x))).form == form


def coverage(form: str, simulations: int, each: int) -> float:
    """The share of intervals that cover the rate, for `each` laws in every simulated study."""
    hits = []
    for seed in range(simulations * each):
        x, y = runs(form, seed, noise=(0.02, 0.05, 0.1)[seed % 3], replicates=2 + seed % 2)
        law = fit_law(form, x, y, np.arange(len(x)))
        hits.append(law.low <= LAWS[form][1] <= law.high)
    return float(np.mean(hits))


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
