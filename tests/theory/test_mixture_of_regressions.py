"""Mixtures of regressions: errors of estimates from sampled pairs, and shapes of the bounds by SNR."""

import math

import numpy as np
import pytest

from tests.theory.checks import assert_agrees, assert_refused, slope, value


@pytest.mark.parametrize(("dim", "points", "noise"), [(5, 25, 2.0), (1, 12, 0.5)])
def test_least_squares_with_known_components_has_the_exact_error(dim: int, points: int, noise: float):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20_000, points, dim))
    errors = np.linalg.solve(x.mT @ x, x.mT @ rng.standard_normal((20_000, points, 1)) * noise)
    assert_agrees((errors**2).sum((1, 2)), value("mlr_labelled", dim=dim, point=points, noise=noise))


def log_density(x: np.ndarray, y: np.ndarray, coefficients: np.ndarray, noise: float) -> np.ndarray:
    """Log density of y given x, up to terms that do not depend on the coefficients."""
    mean = x @ coefficients
    return np.logaddexp(-((y - mean) ** 2) / (2 * noise**2), -((y + mean) ** 2) / (2 * noise**2))


@pytest.mark.parametrize(("snr", "noise"), [(0.5, 1.0), (1.0, 2.0), (4.0, 1.0)])
def test_the_fisher_information_equals_the_information_of_numerical_scores(snr: float, noise: float):
    """The error is the trace of (E score score')⁻¹, with finite differences of the log density as scores."""
    rng, dim, n = np.random.default_rng(1), 4, 400_000
    coefficients = np.full(dim, snr * noise / math.sqrt(dim))
    x = rng.standard_normal((n, dim))
    y = rng.choice([-1, 1], n) * (x @ coefficients) + noise * rng.standard_normal(n)
    steps = 1e-5 * np.eye(dim)
    ahead, behind = (
        np.array([log_density(x, y, coefficients + sign * h, noise) for h in steps]) for sign in (1, -1)
    )
    scores = (ahead - behind) / 2e-5
    information = scores @ scores.T / n
    exact = value("mlr_fisher", dim=dim, point=1, snr=snr, noise=noise)
    assert np.trace(np.linalg.inv(information)) == pytest.approx(exact, rel=0.015)


def maximum_likelihood(x: np.ndarray, y: np.ndarray, start: np.ndarray) -> np.ndarray:
    """EM for ±β and noise 1."""
    inverse, estimate = np.linalg.inv(x.T @ x), start
    for _ in range(60):
        previous, estimate = estimate, inverse @ (x.T @ (y * np.tanh(y * (x @ estimate))))
        if np.abs(estimate - previous).max() < 1e-5:
            break
    return estimate


def test_maximum_likelihood_attains_the_fisher_error_on_long_prompts():
    rng, dim, n, errors = np.random.default_rng(2), 20, 2000, []
    coefficients = np.full(dim, 2 / math.sqrt(dim))
    for _ in range(300):
        x = rng.standard_normal((n, dim))
        # A random sign of y does not change the estimate of ±β.
        y = x @ coefficients + rng.standard_normal(n)
        errors.append(((maximum_likelihood(x, y, coefficients) - coefficients) ** 2).sum())
    assert_agrees(np.array(errors), value("mlr_fisher", point=n, snr=2), within=0.1)


def test_the_fisher_error_at_low_and_high_snr():
    assert slope("mlr_fisher", "snr", (0.01, 0.02)) == pytest.approx(-2, abs=0.01)
    assert value("mlr_fisher", point=1, snr=300) == pytest.approx(20, rel=0.01)
    assert value("mlr_fisher", point=1, snr=300) > 20
    assert slope("mlr_fisher", "noise") == pytest.approx(2)


def test_the_corrected_bound_is_continuous_and_the_printed_bound_jumps():
    """Up to the factor ln(n/δ)/ln n between the rate and the printed threshold."""
    n = 10**9
    edge = (20 * math.log(n) ** 2 / n) ** 0.25
    logs = math.log(n / 0.05) / math.log(n)
    for reading, jump in (("corrected", logs**0.5), ("printed", logs**0.5 * edge)):
        low, high = (value("jin_k2", point=n, snr=edge * r, reading=reading) for r in (1 - 1e-9, 1 + 1e-9))
        assert high / low == pytest.approx(jump)
    assert value("jin_k2", point=n, snr=1.0) == value("jin_k2", point=n, snr=7.0, reading="printed")


def test_the_excess_risk_is_the_square_of_the_error_up_to_logarithms():
    n = 10**6
    for snr in (0.01, 0.9, 2.0):
        squared = value("jin_k2", point=n, snr=snr) ** 2
        logs = math.log(n / 0.05) / math.log(n)
        assert squared / value("jin_excess", point=n, snr=snr) == pytest.approx(
            logs if snr < 0.1 else logs**2
        )


@pytest.mark.parametrize(
    ("kind", "setting", "over", "settings", "expected"),
    [
        ("jin_k2", "point", (1000, 10_000), {"snr": 0.1}, -0.205),
        ("jin_k2", "point", (1000, 10_000), {"snr": 2.0}, -0.409),
        (
            "jin_general",
            "point",
            (10**5, 10**6),
            {},
            -0.5 + math.log10((math.log(1.8e8) + 1) / (math.log(1.8e7) + 1)),
        ),
        (
            "jin_general",
            "components",
            (10**3, 10**3 + 1),
            {"points": 10**9, "snr": 1e5},
            0.5 + 2 / (math.log(2e16) + 1),
        ),
        ("jin_prompts", "prompts", (100, 1000), {}, -0.5),
        ("jin_prompts", "layers", (6, 12), {}, 1),
        ("kwon_k2", "point", (10**4, 10**5), {"snr": 0.05}, -0.25),
        ("kwon_k2", "point", (10**4, 10**5), {"snr": 0.5}, -0.5),
        ("kwon_k2", "snr", (0.3, 0.6), {"point": 10**5}, -1),
        ("kwon_k2", "snr", (1.0, 9.0), {"point": 10**5}, 0),
        ("em_iterations", "point", (10**3, 10**4), {"snr": 0.05}, 0.5),
        ("em_iterations", "snr", (0.3, 0.6), {"point": 10**5}, -2),
    ],
)
def test_the_slope_matches_the_catalogue(kind, setting, over, settings, expected):
    assert slope(kind, setting, over, **settings) == pytest.approx(expected, abs=6e-3)


@pytest.mark.parametrize(
    ("kind", "settings", "condition"),
    [
        ("mlr_labelled", {"point": 21}, "N >= d \\+ 2"),
        ("mlr_fisher", {"point": 0}, "N >= 1"),
        ("jin_k2", {"point": 179}, "N >= 179 = threshold"),
        ("jin_excess", {"point": 100}, "N >= 179 = threshold"),
        ("jin_general", {"snr": 3.0}, "snr >= 3.3 = threshold"),
        ("jin_general", {"point": 0}, "N >= 1"),
        ("kwon_k2", {"point": 19}, "N >= d"),
        ("em_iterations", {"point": 20}, "N > d"),
    ],
)
def test_an_error_names_the_violated_condition(kind: str, settings: dict, condition: str):
    assert_refused(kind, settings, condition)
