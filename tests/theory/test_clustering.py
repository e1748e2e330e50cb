"""Errors of sampled clusterings, compared with the smallest possible errors."""

import math

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from tests.theory.checks import assert_agrees, assert_refused, slope, value

DRAWS = 400_000


@pytest.mark.parametrize(
    ("kind", "components", "snr"),
    [("gmm2_bayes", 2, 2.0), ("gmm_bayes", 2, 1.0), ("gmm_bayes", 3, 4.0), ("gmm_bayes", 5, 3.0)],
)
def test_the_share_of_points_nearer_to_another_centre_equals_the_bayes_error(
    kind: str, components: int, snr: float
):
    rng = np.random.default_rng(0)
    labels = rng.integers(components, size=DRAWS)
    centres = snr / math.sqrt(2) * np.eye(components)
    points = centres[labels] + rng.standard_normal((DRAWS, components))
    wrong = (points @ centres.T).argmax(1) != labels
    assert_agrees(wrong, value(kind, snr=snr, **({"components": components} if kind == "gmm_bayes" else {})))


@pytest.mark.parametrize("snr", [1.0, 2.0, 4.0])
def test_an_estimated_centre_has_the_plugin_error_in_large_dimensions(snr: float):
    rng, dim, n, theta = np.random.default_rng(1), 200, 500, snr / 2
    mean = rng.standard_normal((4000, dim)) / math.sqrt(n)
    mean[:, 0] += theta
    errors = ndtr(-theta * mean[:, 0] / np.linalg.norm(mean, axis=1))
    limit = value("gmm2_plugin", dim=dim, points=n, snr=snr)
    assert errors.mean() == pytest.approx(limit, rel=0.01)
    assert limit > 1.05 * value("gmm2_bayes", snr=snr)


def test_the_plugin_error_ranges_from_the_bayes_error_to_chance():
    for n, limit in ((10**9, value("gmm2_bayes")), (1, 0.5)):
        assert value("gmm2_plugin", dim=10**4, points=n) == pytest.approx(limit, abs=0.01)


@pytest.mark.parametrize(("dim", "points"), [(20, 50), (2000, 50), (5, 1000)])
def test_at_exact_recovery_the_plugin_error_is_about_one_in_n_points(dim: int, points: int):
    theta = math.sqrt(value("exact_recovery", dim=dim, points=points))
    error = value("gmm2_plugin", dim=dim, points=points, snr=2 * theta)
    assert error == pytest.approx(ndtr(-math.sqrt(2 * math.log(points))))


@pytest.mark.parametrize("snr", [1.0, 3.0])
def test_the_cross_entropy_of_the_posterior_equals_the_floor(snr: float):
    x = np.random.default_rng(2).standard_normal(DRAWS) + snr / 2
    assert_agrees(np.logaddexp(0, -snr * x), value("gmm_ce_floor", snr=snr))


def test_the_cross_entropy_floor_is_ln_2_without_signal_and_0_with_a_strong_signal():
    assert value("gmm_ce_floor", snr=0) == pytest.approx(math.log(2))
    assert value("gmm_ce_floor", snr=30) < 1e-20


@pytest.mark.parametrize("error", [0.0, 0.05, 0.3, 0.5])
def test_agreement_indices_of_sampled_errors_match_the_formulas(error: float):
    half = 5000
    truth = np.repeat([0, 1], half)
    predicted = np.where(np.tile(np.arange(half) < error * half, 2), 1 - truth, truth)
    assert value("ari_of_error", error=error) == pytest.approx(
        adjusted_rand_score(truth, predicted), abs=2e-4
    )
    measured = normalized_mutual_info_score(truth, predicted)
    assert value("nmi_of_error", error=error) == pytest.approx(measured, abs=1e-9)


def test_the_default_agreement_follows_from_the_bayes_error():
    for kind in ("ari_of_error", "nmi_of_error"):
        assert value(kind, snr=3) == value(kind, error=value("gmm2_bayes", snr=3))


def test_the_minimax_rate_is_above_the_bayes_error_and_falls_more_slowly():
    for snr, steepness in ((1, -0.285), (2, -0.191), (4, -0.148)):
        assert value("gmm_minimax", snr=snr) > value("gmm2_bayes", snr=snr)
        assert slope("gmm2_bayes", "snr", snr=float(snr)) / (2 * snr**2) == pytest.approx(steepness, abs=6e-4)
        assert slope("gmm_minimax", "snr", snr=float(snr)) / (2 * snr**2) == pytest.approx(-0.125, abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "settings", "condition"),
    [("gmm2_plugin", {"snr": 0}, "snr > 0"), ("exact_recovery", {"points": 1}, "points >= 2")],
)
def test_an_error_names_the_violated_condition(kind: str, settings: dict, condition: str):
    assert_refused(kind, settings, condition)
