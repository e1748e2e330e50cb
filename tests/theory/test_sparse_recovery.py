"""Sparse recovery: learned iterations, l1 minimisation and an oracle on sampled problems, compared with the bounds."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from tests.theory.checks import assert_agrees, assert_refused, bound, slope, value


def test_the_rate_of_a_layer_matches_the_catalogue():
    assert -math.log(value("lista_vm", layers=1)) == pytest.approx(0.9589, abs=5e-5)
    assert -math.log(value("lista_vm", layers=1, point=10**14)) == pytest.approx(1.0986, abs=5e-5)


def test_the_rate_approaches_its_limit_as_the_inverse_root_of_the_pairs():
    differences = [value("lista_vm", layers=1, point=n) - 1 / 3 for n in (10**6, 10**8)]
    assert differences[0] / differences[1] == pytest.approx(10)


def test_at_the_smallest_number_of_pairs_a_layer_still_reduces_the_error():
    """The printed formula lacks γ before the last root and gives 1.019 for γ = .01."""
    assert value("lista_vm", layers=1, point=6960, gamma=0.01) == pytest.approx(0.9952, abs=5e-5)


def test_the_error_is_geometric_in_the_layers():
    values = bound("lista_vm").along("layers", range(1, 6))
    np.testing.assert_allclose(values[1:] / values[:-1], values[0], rtol=1e-12)


def test_the_extra_term_of_a_linear_read_out_also_decays_in_the_layers():
    linear = [value("lista_readout", layers=k, point=10**6) for k in (10, 11)]
    clean = [(1 / 3) ** k for k in (10, 11)]
    drift = np.array(linear) - clean
    assert drift[1] / drift[0] == pytest.approx(11 / 30)
    assert value("lista_readout", layers=9, readout="query") == value("lista_vm", layers=9)


def sampled_problem(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """Columns of norm 1, a sparse β with coordinates up to 1, and the coherence of the columns."""
    x = rng.standard_normal((2000, 30))
    x /= np.linalg.norm(x, axis=0)
    w = np.zeros(30)
    w[:3] = rng.choice([-1, 1], 3) * rng.uniform(0.5, 1, 3)
    return x, w, np.abs(x.T @ x - np.eye(30)).max()


@pytest.mark.parametrize("noise_norm", [0.0, 0.3])
def test_lista_cp_stays_within_its_bound(noise_norm: float):
    """The thresholds are those of the proof, which keeps all coordinates outside the support at 0."""
    closest = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, w, mu = sampled_problem(rng)
        noise = rng.laplace(size=2000) * (np.arange(2000) < 2)
        noise *= noise_norm / np.abs(noise).sum()
        settings = {"coherence": mu, "noise_norm": noise_norm, "weight": np.abs(x).max()}
        estimate = np.zeros(30)
        for k in range(8):
            threshold = mu * value("lista_cp", layers=k, **settings) + settings["weight"] * noise_norm
            step = estimate - x.T @ (x @ estimate - x @ w - noise)
            estimate = np.sign(step) * np.maximum(np.abs(step) - threshold, 0)
            limit = value("lista_cp", layers=k + 1, **settings)
            assert np.linalg.norm(estimate - w) <= limit
            assert not estimate[3:].any()
            closest.append(np.linalg.norm(estimate - w) / limit)
    assert max(closest) > 0.2, "a bound far above all errors tests nothing"


def smallest_l1(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The β of smallest l1 norm with xβ = y: a linear programme in the positive and negative parts of β."""
    dim = x.shape[1]
    solution = linprog(np.ones(2 * dim), A_eq=np.hstack([x, -x]), b_eq=y, bounds=(0, None), method="highs")
    return solution.x[:dim] - solution.x[dim:]


@pytest.mark.slow
def test_l1_minimisation_succeeds_from_the_threshold_on():
    dim, nonzero, rng = 40, 4, np.random.default_rng(0)
    edge = value("l1_threshold", dim=dim, nonzero=nonzero)
    success = {}
    for pairs in (round(edge) - 6, round(edge), round(edge) + 7):
        hits = 0
        for _ in range(40):
            x = rng.standard_normal((pairs, dim))
            w = np.append(rng.standard_normal(nonzero), np.zeros(dim - nonzero))
            hits += np.abs(smallest_l1(x, x @ w) - w).max() < 1e-6
        success[pairs] = hits / 40
    below, at_edge, above = success.values()
    assert below < 0.2 < at_edge < 0.9 < above


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("dim", "nonzero"), [(100, 10), (20, 3), (7, 7)])
def test_the_threshold_is_the_smallest_mean_squared_distance_to_the_cone(dim: int, nonzero: int):
    """The smallest sample mean of |g - t ∂|β|₁|² over a grid of t."""
    g = np.random.default_rng(1).standard_normal((20_000, dim))

    def distances(t: float) -> np.ndarray:
        inside, outside = g[:, :nonzero] - t, np.maximum(np.abs(g[:, nonzero:]) - t, 0)
        return (inside**2).sum(1) + (outside**2).sum(1)

    best = min(np.linspace(0, 3, 61), key=lambda t: distances(t).mean())
    assert_agrees(distances(best), value("l1_threshold", dim=dim, nonzero=nonzero))


def test_the_oracle_has_the_excess_of_least_squares_on_the_support():
    rng = np.random.default_rng(2)
    x, query = rng.standard_normal((40_000, 14, 3)), rng.standard_normal((40_000, 1, 3))
    errors = np.linalg.solve(x.mT @ x, x.mT @ rng.standard_normal((40_000, 14, 1)) * 0.7)
    assert_agrees((query @ errors)[:, 0, 0] ** 2, value("sparse_oracle", point=14, noise=0.7))


@pytest.mark.parametrize(
    ("kind", "setting", "over", "settings", "expected"),
    [
        ("sparse_oracle", "noise", (1.0, 2.0), {"noise": 1.0}, 2),
        ("sparse_oracle", "point", (10**5, 10**6), {"noise": 1.0}, -1),
        ("lista_cp", "noise_norm", (10.0, 20.0), {"noise_norm": 1.0, "layers": 60}, 1),
    ],
)
def test_the_slope_matches_the_catalogue(kind, setting, over, settings, expected):
    assert slope(kind, setting, over, **settings) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "settings", "condition"),
    [
        ("lista_vm", {"point": 6959}, "N >= 6959.6"),
        ("lista_readout", {"point": 6959}, "N >= 6959.6"),
        ("lista_vm", {"nonzero": 101}, "nonzero <= dim"),
        ("lista_cp", {"coherence": 0.2}, "nonzero < "),
        ("l1_threshold", {"nonzero": 101}, "nonzero <= dim"),
        ("sparse_oracle", {"point": 2}, "N >= nonzero"),
    ],
)
def test_an_error_names_the_violated_condition(kind: str, settings: dict, condition: str):
    assert_refused(kind, settings, condition)
