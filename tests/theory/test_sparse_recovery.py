"""Sparse recovery: learned iterations, l1 and an oracle on drawn problems, against what is said of them."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from loopscale.theory.bounds.base import Bound
from tests.theory.sampled import assert_agrees, assert_refused, slope, value


def test_the_rate_of_a_layer_is_the_catalogued_one():
    assert -math.log(value("lista_vm", layers=1)) == pytest.approx(0.9589, abs=5e-5)
    assert -math.log(value("lista_vm", layers=1, point=10**14)) == pytest.approx(1.0986, abs=5e-5)


def test_the_rate_nears_its_limit_as_the_root_of_the_pairs():
    apart = [value("lista_vm", layers=1, point=n) - 1 / 3 for n in (10**6, 10**8)]
    assert apart[0] / apart[1] == pytest.approx(10)


def test_at_the_fewest_pairs_every_step_still_gains():
    """As printed, without γ before the last root, γ = .01 gives 1.019."""
    assert value("lista_vm", layers=1, point=6960, gamma=0.01) == pytest.approx(0.9952, abs=5e-5)


def test_the_error_is_geometric_in_the_layers():
    values = Bound.model_validate({"kind": "lista_vm"}).along("layers", range(1, 6))
    np.testing.assert_allclose(values[1:] / values[:-1], values[0], rtol=1e-12)


def test_a_linear_read_out_adds_a_term_that_decays_in_the_layers_too():
    linear = [value("lista_readout", layers=k, point=10**6) for k in (10, 11)]
    clean = [(1 / 3) ** k for k in (10, 11)]
    drift = np.array(linear) - clean
    assert drift[1] / drift[0] == pytest.approx(11 / 30)
    assert value("lista_readout", layers=9, readout="query") == value("lista_vm", layers=9)


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """Columns of length 1, a sparse β with coordinates up to 1, and the columns' coherence."""
    x = rng.standard_normal((2000, 30))
    x /= np.linalg.norm(x, axis=0)
    w = np.zeros(30)
    w[:3] = rng.choice([-1, 1], 3) * rng.uniform(0.5, 1, 3)
    return x, w, np.abs(x.T @ x - np.eye(30)).max()


@pytest.mark.parametrize("noise_norm", [0.0, 0.3])
def test_lista_cp_stays_within_its_bound(noise_norm: float):
    """With the thresholds of the proof, which promise no coordinate outside the support."""
    closest = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, w, mu = drawn(rng)
        noise = rng.laplace(size=2000) * (np.arange(2000) < 2)
        noise *= noise_norm / np.abs(noise).sum()
        settings = {"coherence": mu, "noise_norm": noise_norm, "weight": np.abs(x).max()}
        now = np.zeros(30)
        for k in range(8):
            threshold = mu * value("lista_cp", layers=k, **settings) + settings["weight"] * noise_norm
            step = now - x.T @ (x @ now - x @ w - noise)
            now = np.sign(step) * np.maximum(np.abs(step) - threshold, 0)
            limit = value("lista_cp", layers=k + 1, **settings)
            assert np.linalg.norm(now - w) <= limit
            assert not now[3:].any()
            closest.append(np.linalg.norm(now - w) / limit)
    assert max(closest) > 0.2, "a bound that is never approached tests nothing"


def smallest_l1(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of all β with xβ = y, as a linear programme in its two signs."""
    dim = x.shape[1]
    found = linprog(np.ones(2 * dim), A_eq=np.hstack([x, -x]), b_eq=y, bounds=(0, None), method="highs")
    return found.x[:dim] - found.x[dim:]


def test_the_smallest_l1_norm_finds_the_coefficients_from_the_threshold_on():
    dim, nonzero, rng = 40, 4, np.random.default_rng(0)
    edge = value("l1_threshold", dim=dim, nonzero=nonzero)
    found = {}
    for pairs in (round(edge) - 6, round(edge), round(edge) + 7):
        hits = 0
        for _ in range(40):
            x = rng.standard_normal((pairs, dim))
            w = np.append(rng.standard_normal(nonzero), np.zeros(dim - nonzero))
            hits += np.abs(smallest_l1(x, x @ w) - w).max() < 1e-6
        found[pairs] = hits / 40
    fails, turns, succeeds = found.values()
    assert fails < 0.2 < turns < 0.9 < succeeds


@pytest.mark.parametrize(("dim", "nonzero"), [(100, 10), (20, 3), (7, 7)])
def test_the_threshold_is_the_least_mean_distance_to_the_cone(dim: int, nonzero: int):
    """E |g - t ∂|β|₁|², by sampling, at the best of many t."""
    g = np.random.default_rng(1).standard_normal((20_000, dim))

    def distances(t: float) -> np.ndarray:
        on, off = g[:, :nonzero] - t, np.maximum(np.abs(g[:, nonzero:]) - t, 0)
        return (on**2).sum(1) + (off**2).sum(1)

    best = min(np.linspace(0, 3, 61), key=lambda t: distances(t).mean())
    assert_agrees(distances(best), value("l1_threshold", dim=dim, nonzero=nonzero))


def test_an_oracle_errs_as_least_squares_on_the_support():
    rng = np.random.default_rng(2)
    x, query = rng.standard_normal((40_000, 14, 3)), rng.standard_normal((40_000, 1, 3))
    off = np.linalg.solve(x.mT @ x, x.mT @ rng.standard_normal((40_000, 14, 1)) * 0.7)
    assert_agrees((query @ off)[:, 0, 0] ** 2, value("sparse_oracle", point=14, noise=0.7))


@pytest.mark.parametrize(
    ("kind", "setting", "over", "settings", "expected"),
    [
        ("sparse_oracle", "noise", (1.0, 2.0), {"noise": 1.0}, 2),
        ("sparse_oracle", "point", (10**5, 10**6), {"noise": 1.0}, -1),
        ("lista_cp", "noise_norm", (10.0, 20.0), {"noise_norm": 1.0, "layers": 60}, 1),
    ],
)
def test_its_slope_is_the_catalogued_one(kind, setting, over, settings, expected):
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
def test_outside_its_conditions_it_names_them(kind: str, settings: dict, condition: str):
    assert_refused(kind, settings, condition)
