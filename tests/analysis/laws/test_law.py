import numpy as np
import pytest

from loopscale.analysis.laws.law import choose, fit, pooled

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
def test_a_law_without_noise_is_found_exactly(form):
    law = fit(form, X, LAWS[form][0](X), np.arange(len(X)))
    assert law.rate == pytest.approx(LAWS[form][1], rel=1e-3)
    np.testing.assert_allclose(law.value(X), LAWS[form][0](X), rtol=1e-3)


@EACH
def test_the_form_that_was_planted_is_chosen_among_all(form):
    x, y = runs(form, seed=3, noise=0.01)
    assert choose(list(LAWS), x, y, np.arange(len(x))).form == form


def coverage(form: str, simulations: int, each: int) -> float:
    """Of the intervals of `each` laws in every simulated study."""
    hits = []
    for seed in range(simulations * each):
        x, y = runs(form, seed, noise=(0.02, 0.05, 0.1)[seed % 3], replicates=2 + seed % 2)
        law = fit(form, x, y, np.arange(len(x)))
        hits.append(law.low <= LAWS[form][1] <= law.high)
    return float(np.mean(hits))


@EACH
def test_the_interval_of_a_rate_covers_it_about_as_often_as_it_says(form):
    assert 0.91 <= coverage(form, simulations=40, each=3) <= 0.98


@pytest.mark.slow
@EACH
def test_the_interval_of_a_rate_covers_it_in_200_studies(form):
    assert 0.91 <= coverage(form, simulations=200, each=2) <= 0.98


def curves(rng: np.random.Generator, replicates: int):
    """Whole curves: each has its own height and rate, and errors that wander together."""
    loops = np.arange(1.0, 9.0)
    rates = 0.4 + 0.05 * rng.standard_normal((replicates, 1))
    wander = np.cumsum(0.02 * rng.standard_normal((replicates, len(loops))), axis=1)
    y = np.exp(0.2 * rng.standard_normal((replicates, 1)) - rates * np.log(loops) + wander)
    return np.tile(loops, replicates), y.ravel(), np.repeat(np.arange(replicates), len(loops))


def curve_coverage(simulations: int, replicates: int) -> float:
    """Of the intervals of four cells in every simulated study."""
    rng, hits = np.random.default_rng(replicates), []
    for _ in range(simulations):
        found = pooled([fit("power", *curves(rng, replicates)) for _ in range(4)])
        hits += [law.low <= 0.4 <= law.high for law in found]
    return float(np.mean(hits))


@pytest.mark.parametrize("replicates", [2, 3, 5])
def test_whole_curves_give_intervals_that_cover(replicates):
    assert 0.91 <= curve_coverage(40, replicates) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("replicates", [2, 3, 5])
def test_whole_curves_give_intervals_that_cover_in_200_studies(replicates):
    assert 0.91 <= curve_coverage(200, replicates) <= 0.98


def test_a_curve_of_one_replicate_has_no_interval():
    loops = np.arange(1.0, 9.0)
    law = fit("exponential", loops, np.exp(-0.4 * loops), np.zeros(8))
    assert (law.low, law.high) == (None, None)


def test_one_run_for_each_value_has_no_interval():
    law = fit("power", X, LAWS["power"][0](X) * np.exp(0.05 * np.sin(X)), np.arange(len(X)))
    assert (law.low, law.high) == (None, None)


def test_a_rate_that_a_floor_hides_is_said_to_be_unbounded():
    x = np.repeat([1.0, 2.0, 4.0, 8.0], 2)
    y = np.where(x == 1, 1.0, 0.1) * np.exp(0.1 * np.random.default_rng(0).standard_normal(8))
    assert fit("power_floor", x, y, np.arange(8)).high == np.inf


def test_what_is_not_finite_or_not_positive_is_left_out_and_counted():
    x, y = runs("power", seed=1)
    dirty_x = np.r_[x, 1.0, 2.0, 4.0, 0.0]
    dirty_y = np.r_[y, np.nan, np.inf, -0.1, 0.5]
    clean, dirty = (fit("power", a, b, np.arange(len(a))) for a, b in ((x, y), (dirty_x, dirty_y)))
    assert (clean.excluded, dirty.excluded) == (0, 4)
    assert (clean.rate, clean.low) == (dirty.rate, dirty.low)


def test_a_stray_run_moves_the_rate_little():
    x, y = runs("power", seed=2)
    y[-1] *= 20
    assert fit("power", x, y, np.arange(len(x))).rate == pytest.approx(0.7, abs=0.1)


def test_scatter_beyond_the_replicates_noise_is_noticed_and_widens_the_interval():
    x, y = runs("power", seed=4, noise=0.02)
    scattered = y * np.exp(0.3 * np.sin(5 * x))
    calm, wild = (fit("power", x, values, np.arange(len(x))) for values in (y, scattered))
    assert (calm.scatter, wild.scatter) == (False, True)
    assert wild.high - wild.low > 3 * (calm.high - calm.low)


def test_too_few_values_and_unknown_forms_are_errors():
    with pytest.raises(ValueError, match="1 usable value on"):
        fit("power", [2.0, 2.0], [0.1, 0.1], [0, 1])
    with pytest.raises(ValueError, match="no form 'cubic'; there is power"):
        fit("cubic", X, X, X)
