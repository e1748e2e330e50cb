"""Fits of one form: data, rate, interval and scatter."""

import numpy as np
import pytest

from loopscale.stats.contrasts import Array
from loopscale.stats.fitting import Fit, clean, descend
from loopscale.stats.forms.base import variants

X = np.array([1.0, 2, 3, 4, 6, 8, 12, 16])
LAWS = {
    "power": (lambda x: 2 * x**-0.7, 0.7),
    "power_floor": (lambda x: 2 * x**-0.9 + 0.05, 0.9),
    "exponential": (lambda x: 0.8 * np.exp(-0.3 * x), 0.3),
    "double_exponential": (lambda x: np.exp(-0.05 * np.exp(0.35 * x)), 0.35),
    "log_power": (lambda x: 0.5 * np.log1p(x) ** -1.3, 1.3),
}


def fitted(kind: str, x: Array, y: Array, groups: Array) -> Fit:
    """The fit of the form with the fewest parameters."""
    form = variants(kind)[0]
    return Fit.of(form, clean(form, x, y, groups))


def runs(seed: int, noise: float = 0.05) -> tuple[Array, Array]:
    """Three runs at each value, scattered about a power of the axis."""
    x = np.repeat(X, 3)
    return x, LAWS["power"][0](x) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(x)))


@pytest.mark.parametrize("kind", LAWS)
def test_errors_without_noise_give_the_rate_of_the_formula(kind: str):
    fit = fitted(kind, X, LAWS[kind][0](X), np.arange(len(X)))
    assert fit.rate == pytest.approx(LAWS[kind][1], rel=1e-3)
    np.testing.assert_allclose(np.exp(fit.means - fit.off), LAWS[kind][0](X), rtol=1e-3)


def test_one_curve_has_no_interval():
    loops = np.arange(1.0, 9.0)
    fit = fitted("exponential", loops, np.exp(-0.4 * loops), np.zeros(8))
    assert fit.interval() == (None, None)


def test_one_run_at_each_value_has_no_interval():
    fit = fitted("power", X, LAWS["power"][0](X) * np.exp(0.05 * np.sin(X)), np.arange(len(X)))
    assert fit.interval() == (None, None)


def test_a_rate_hidden_by_a_floor_has_no_upper_bound():
    x = np.repeat([1.0, 2.0, 4.0, 8.0], 2)
    y = np.where(x == 1, 1.0, 0.1) * np.exp(0.1 * np.random.default_rng(0).standard_normal(8))
    assert fitted("power_floor", x, y, np.arange(8)).interval()[1] == np.inf


def test_errors_that_are_not_finite_or_not_positive_are_left_out_and_counted():
    x, y = runs(seed=1)
    dirty_x = np.r_[x, 1.0, 2.0, 4.0, 0.0]
    dirty_y = np.r_[y, np.nan, np.inf, -0.1, 0.5]
    whole, dirty = (fitted("power", a, b, np.arange(len(a))) for a, b in ((x, y), (dirty_x, dirty_y)))
    assert (whole.data.excluded, dirty.data.excluded) == (0, 4)
    assert (whole.rate, whole.interval()) == (dirty.rate, dirty.interval())


def test_a_stray_run_changes_the_rate_little():
    x, y = runs(seed=2)
    y[-1] *= 20
    assert fitted("power", x, y, np.arange(len(x))).rate == pytest.approx(0.7, abs=0.1)


def test_scatter_beyond_the_noise_of_replicates_is_found_and_widens_the_interval():
    x, y = runs(seed=4, noise=0.02)
    scattered = y * np.exp(0.3 * np.sin(5 * x))
    calm, wild = (fitted("power", x, values, np.arange(len(x))) for values in (y, scattered))
    assert calm.scatter() is None
    assert wild.scatter() is not None
    widths = [
        high - low for low, high in (wild.interval(), calm.interval()) if low is not None and high is not None
    ]
    assert widths[0] > 3 * widths[1]


def test_a_row_of_a_batch_descends_to_where_it_descends_alone():
    form = variants("power_floor")[-1]
    logs = np.log(np.stack([LAWS[kind][0](X) for kind in LAWS]))
    t, _, _ = form.coordinate(X)
    starts = np.stack([form.starts(t, row)[0] for row in logs])
    together, losses = descend(form, t, logs, starts, 1e6)
    for row, start, end, loss in zip(logs, starts, together, losses, strict=True):
        alone, its_loss = descend(form, t, row[None], start[None], 1e6)
        np.testing.assert_allclose(form.value(alone, t), form.value(end[None], t), atol=1e-6)
        assert its_loss[0] == pytest.approx(loss, rel=1e-6, abs=1e-12)
