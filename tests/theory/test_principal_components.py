"""Angles to eigenvectors: sampled starts, power steps and sample covariances, compared with the bounds."""

import math

import numpy as np
import pytest

from tests.theory.checks import assert_agrees, assert_refused, slope, value


def sphere(draws: int, dim: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((draws, dim))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def basis(dim: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))[0]


def tangents(starts: np.ndarray, first: np.ndarray) -> np.ndarray:
    along = starts @ first
    return np.linalg.norm(starts - along[:, None] * first, axis=1) / np.abs(along)


def power_steps(eigenvalues: np.ndarray, starts: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Tangents before and after the steps, for a matrix with these eigenvalues in an arbitrary basis."""
    q = basis(len(eigenvalues), seed=0)
    matrix, iterates = q * eigenvalues @ q.T, starts
    for _ in range(steps):
        iterates = iterates @ matrix
        iterates /= np.linalg.norm(iterates, axis=1, keepdims=True)
    return tangents(starts, q[:, 0]), tangents(iterates, q[:, 0])


def test_the_power_method_attains_the_bound_if_all_other_eigenvalues_are_equal():
    before, after = power_steps(np.array([2.0] + 5 * [1.6]), sphere(20, 6, seed=1), 7)
    bounds = [value("power_tan", loops=7, ratio=0.8, start=t) for t in before]
    np.testing.assert_allclose(after, bounds, rtol=1e-10)


def test_the_power_method_is_below_the_bound_for_other_spectra():
    before, after = power_steps(np.array([2.0, 1.6, 1.0, 0.5]), sphere(200, 4, seed=1), 7)
    bounds = np.array([value("power_tan", loops=7, ratio=0.8, start=t) for t in before])
    assert (after < bounds).all()
    assert (after > 0.98 * bounds).any()


@pytest.mark.parametrize("loops", [0, 4])
def test_half_of_all_uniform_starts_are_below_the_median_tangent(loops: int):
    _, after = power_steps(np.array([1.0] + 19 * [0.8]), sphere(40_000, 20, seed=2), loops)
    median = value("power_tan_median", loops=loops)
    # 4 standard errors of the share are .01; a change of 5 % in the tangent would change the share by .021.
    assert np.mean(after < median) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("dim", [2, 6, 20])
@pytest.mark.parametrize("loops", [0, 4])
def test_the_mean_error_of_the_power_method_matches_sampled_starts(dim: int, loops: int):
    _, after = power_steps(np.array([1.0] + (dim - 1) * [0.7]), sphere(60_000, dim, seed=7), loops)
    assert_agrees(2 - 2 / np.sqrt(1 + after**2), value("power_error", dim=dim, loops=loops, gap=0.3))


@pytest.mark.parametrize("loops", [0, 1, 10, 100])
def test_in_three_dimensions_the_mean_error_has_a_closed_form(loops: int):
    a = 0.8**loops
    assert value("power_error", dim=3, loops=loops, gap=0.2) == pytest.approx(2 * a / (1 + a), rel=1e-8)


@pytest.mark.parametrize("dim", [2, 50])
def test_the_mean_error_falls_by_the_eigenvalue_ratio_per_step(dim: int):
    before, after = (value("power_error", dim=dim, loops=loops, gap=0.3) for loops in (60, 61))
    assert after / before == pytest.approx(0.7, rel=1e-3)


@pytest.mark.parametrize(("dim", "overlap"), [(20, 0.025), (20, 0.3), (3, 0.1)])
def test_the_share_of_starts_with_small_overlap_is_exact(dim: int, overlap: float):
    near = np.abs(sphere(200_000, dim, seed=3)[:, 0]) <= overlap
    assert_agrees(near, value("init_overlap", dim=dim, overlap=overlap))


def test_the_probability_of_a_small_overlap_is_proportional_to_the_overlap():
    assert slope("init_overlap", "overlap", overlap=0.001) == pytest.approx(1, abs=1e-3)
    for dim in (200, 2000):
        about = 1e-4 * math.sqrt(2 * dim / math.pi)
        assert value("init_overlap", dim=dim, overlap=1e-4) == pytest.approx(about, rel=1 / dim)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("dim", [2, 20])
def test_the_mean_cosine_of_a_uniform_guess_is_exact(dim: int, power: int):
    cosine = np.abs(sphere(100_000, dim, seed=4)[:, 0])
    assert_agrees(cosine**power, value("random_cosine", dim=dim, power=power))


def test_the_cosine_of_a_guess_falls_as_the_inverse_root_of_the_dimension():
    assert slope("random_cosine", "dim", (1000, 2000)) == pytest.approx(-0.5, abs=1e-3)


def sine(matrix: np.ndarray, error: np.ndarray) -> float:
    exact, perturbed = (np.linalg.eigh(m)[1][:, -1] for m in (matrix, matrix + error))
    return math.sqrt(max(1 - (exact @ perturbed) ** 2, 0))


def test_no_perturbation_exceeds_the_davis_kahan_bound():
    rng = np.random.default_rng(5)
    for _ in range(300):
        matrix, error = (m + m.T for m in rng.standard_normal((2, 4, 4)) * [[[1]], [[0.1]]])
        eigenvalues = np.linalg.eigvalsh(matrix)
        limit = value(
            "davis_kahan", perturbation=np.linalg.norm(error, 2), gap=eigenvalues[-1] - eigenvalues[-2]
        )
        assert sine(matrix, error) <= limit + 1e-12
    assert sine(np.diag([2.0, 1.0]), np.array([[0, 0.1], [0.1, 0]])) == pytest.approx(0.09854, abs=5e-6)


def test_a_perturbation_that_exchanges_two_eigenvectors_attains_the_davis_kahan_bound():
    """The factor 2 of the bound therefore cannot be smaller."""
    half = 0.5 + 1e-9
    assert sine(np.diag([1.0, 0.0]), np.diag([-half, half])) == pytest.approx(1)
    assert value("davis_kahan", perturbation=half) == pytest.approx(1)


def sampled_cosines(dim: int, points: int, spike: float, draws: int) -> np.ndarray:
    rng, cosines = np.random.default_rng(6), []
    for _ in range(draws):
        x = rng.standard_normal((points, dim))
        x[:, 0] *= math.sqrt(1 + spike)
        cosines.append(np.linalg.eigh(x.T @ x)[1][0, -1] ** 2)
    return np.array(cosines)


@pytest.mark.slow
@pytest.mark.parametrize("spike", [1.5, 4.0])
def test_the_sampled_cosine_of_a_spike_matches_the_limit_in_large_dimensions(spike: float):
    cosines = sampled_cosines(120, 240, spike, 200)
    assert cosines.std() / math.sqrt(200) < 0.007
    assert cosines.mean() == pytest.approx(
        value("spiked_cosine", dim=120, points=240, spike=spike), abs=0.025
    )


@pytest.mark.slow
def test_the_cosine_of_a_small_spike_is_0():
    assert value("spiked_cosine", dim=120, points=240, spike=0.7) == 0 < value("spiked_cosine", spike=0.71)
    assert sampled_cosines(120, 240, 0.4, 40).mean() < 0.06


@pytest.mark.parametrize("kind", ["power_tan_median", "init_overlap"])
def test_one_dimension_is_refused(kind: str):
    assert_refused(kind, {"dim": 1}, "dim >= 2")


@pytest.mark.parametrize("dim", [2, 5, 20, 100])
def test_the_first_display_of_lemma_8_lies_above_the_exact_probability(dim: int):
    for share in (0.99, 0.3, 0.01, 1e-4):
        overlap = share * 0.5 / dim
        exact = value("init_overlap", dim=dim, overlap=overlap)
        assert value("he_init", dim=dim, overlap=overlap) > exact


def test_lemma_8_falls_as_the_root_of_the_overlap_and_the_exact_probability_as_the_overlap():
    assert slope("he_init", "overlap", (1e-6, 1e-5)) == pytest.approx(1 / 2, abs=1e-6)
    assert slope("init_overlap", "overlap", (1e-6, 1e-5)) == pytest.approx(1, abs=1e-6)


def test_the_second_display_of_lemma_8_is_false_without_an_absolute_value():
    printed = value("he_init", dim=20, overlap=0.01, components=1)
    x = np.random.default_rng(0).standard_normal((10_000, 20))
    cosine = x[:, 0] / np.linalg.norm(x, axis=1)
    assert (cosine <= 0.01 / math.sqrt(20)).mean() > 0.48 > 8 * printed
    assert (np.abs(cosine) <= 0.01 / math.sqrt(20)).mean() < printed


def test_lemma_8_requires_a_small_overlap():
    assert_refused("he_init", {"dim": 20, "overlap": 0.03}, "overlap < 1")
