"""What every form of a law must keep to. A new form is tested by being there."""

import math

import numpy as np
import pytest

from loopscale.contracts.members import under_test
from loopscale.stats.contrasts import Array
from loopscale.stats.fitting import Fit, clean
from loopscale.stats.forms.base import Form, variants

X = np.array([1.0, 2, 3, 4, 6, 8, 12, 16])
VARIANTS = [variant for form in under_test(Form).values() for variant in form.variants()]
SCALED = [variant for variant in VARIANTS if "scale" in variant.parameters]
"""A form without a scale starts from 1, the error of predicting nothing, and depends on the unit of the error."""
EACH = pytest.mark.parametrize("form", VARIANTS, ids=lambda form: f"{form.kind}-{form.size}")


def planted(form: Form) -> tuple[Array, Array]:
    """Parameters with a clear slope [batch, size], and their log errors [batch, n]: starts for a falling curve."""
    t, _, _ = form.coordinate(X)
    starts = form.starts(t, -0.2 - 2 * t)
    theta = starts[(starts[:, 1] > 0.15) & (starts[:, 1] < 4)]
    return theta, form.value(theta, t)


def fitted(form: Form, x: Array, y: Array) -> Fit:
    return Fit.of(form, clean(form, x, y, np.arange(len(x))))


@EACH
def test_planted_parameters_come_back(form: Form):
    theta, logs = planted(form)
    assert len(theta) > 2
    for wanted, log in zip(theta, logs, strict=True):
        fit = fitted(form, X, np.exp(log))
        assert np.ptp(fit.off) < 1e-3
        if form.size == 2 or np.ptp(log) > 0.5:  # else a floor far below the errors hardly changes them
            assert fit.rate * fit.length == pytest.approx(wanted[1], rel=0.02)


@EACH
def test_the_derivatives_equal_numerical_derivatives_of_the_value(form: Form):
    theta, _ = planted(form)
    t, _, _ = form.coordinate(X)
    slopes = form.jacobian(theta, t)
    assert slopes.shape == (len(theta), len(X), form.size)
    for column in range(form.size):
        step = np.zeros(form.size)
        step[column] = 1e-6
        numeric = (form.value(theta + step, t) - form.value(theta - step, t)) / 2e-6
        np.testing.assert_allclose(slopes[:, :, column], numeric, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("form", SCALED, ids=lambda form: f"{form.kind}-{form.size}")
def test_another_unit_of_the_error_changes_no_rate(form: Form):
    noise = np.exp(0.05 * np.random.default_rng(0).standard_normal(len(X)))
    errors = np.exp(planted(form)[1][0]) * noise
    assert fitted(form, X, 1000 * errors).rate == pytest.approx(fitted(form, X, errors).rate, rel=1e-4)


@EACH
def test_a_positive_rate_falls(form: Form):
    theta, logs = planted(form)
    assert (theta[:, 1] > 0).all()
    assert (np.diff(logs, axis=1) < 0).all()


@EACH
def test_values_and_derivatives_are_finite_far_from_the_data(form: Form):
    t = np.array([-3.0, 0.0, 0.5, 1.0, 30.0])
    theta = np.array(
        [[first, slope, last] for first in (-9, 9) for slope in (-40, 0, 40) for last in (-99, 9)]
    )
    theta = theta[:, : form.size].astype(np.float64)
    assert np.isfinite(form.value(theta, t)).all()
    assert np.isfinite(form.jacobian(theta, t)).all()


@EACH
def test_starts_of_any_errors_are_finite(form: Form):
    t, _, _ = form.coordinate(X)
    for logs in (np.zeros(len(X)), np.linspace(0, -40, len(X)), np.linspace(-40, 3, len(X))):
        starts = form.starts(t, logs)
        assert starts.shape[1] == form.size
        assert np.isfinite(form.value(form.refitted(starts, t, logs), t)).all()


@EACH
def test_the_axis_is_increasing_and_needs_positive_values_only_if_logarithmic(form: Form):
    assert (np.diff(form.transform(X)) > 0).all()
    data = clean(form, np.array([-1.0, 0.0, 1.0]), np.ones(3), np.arange(3))
    assert data.excluded == (2 if form.log_axis else 0)


@EACH
def test_the_parameters_are_named_in_the_formula(form: Form):
    assert 2 <= form.size <= 3
    assert all(name in form.formula for name in form.names)
    assert "x" in form.formula
    assert ("[" in form.formula) == form.optional
    theta, _ = planted(form)
    _, low, length = form.coordinate(X)
    parameters = form.natural(theta[0], low, length)
    assert tuple(parameters) == form.parameters
    assert parameters[form.parameters[1]] == pytest.approx(theta[0, 1] / length)
    assert all(value > 0 and math.isfinite(value) for value in parameters.values())


@pytest.mark.parametrize("kind", under_test(Form))
def test_variants_differ_by_one_parameter_and_the_shortest_comes_first(kind: str):
    sizes = [form.size for form in variants(kind)]
    assert sizes in ([2], [3], [2, 3])
    assert len(set(variants(kind))) == len(sizes)


@pytest.mark.parametrize("kind", under_test(Form))
def test_the_margin_is_a_tenth_of_a_large_rate_and_above_0_for_every_rate(kind: str):
    form = under_test(Form)[kind]
    assert form.margin(-4.0) == pytest.approx(0.4)
    assert form.margin(0.0) > 0
