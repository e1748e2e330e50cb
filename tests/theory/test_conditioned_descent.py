"""First-order methods at any condition number, compared with sampled matrices and with the isotropic formulas."""

import numpy as np
import pytest

from loopscale.analysis.laws.law import predict
from loopscale.tasks.spectrum import level_spectrum
from loopscale.theory.bounds.sample_spectrum import SampleSpectrum, sample_spectrum
from tests.theory.checks import bound, value


def sampled(dim: int, seen: int, condition: float, draws: int = 12) -> SampleSpectrum:
    """Eigenvalues of sampled covariances, weighted by the covariance of x."""
    rng, spectrum = np.random.default_rng(0), np.array(level_spectrum(dim, condition))
    nodes, weights = list[np.ndarray](), list[np.ndarray]()
    for _ in range(draws):
        x = rng.standard_normal((seen, dim)) * np.sqrt(spectrum)
        eigenvalues, vectors = np.linalg.eigh(x.T @ x / seen)
        nodes.append(eigenvalues)
        weights.append((vectors**2 * spectrum[:, None]).sum(0) / dim / draws)
    return SampleSpectrum((), np.concatenate(nodes), np.concatenate(weights))


@pytest.mark.slow
@pytest.mark.parametrize("seen", [100, 400, 600])
@pytest.mark.parametrize("condition", [1.0, 4.0, 16.0, 256.0])
def test_the_least_excess_equals_the_excess_of_sampled_matrices(condition: float, seen: int):
    limit, samples = sample_spectrum(200, seen, condition), sampled(200, seen, condition)
    for steps in (1, 2, 3, 5):
        assert limit.least_square(steps) == pytest.approx(samples.least_square(steps), rel=0.02 * steps)
    assert limit.nodes @ limit.weights == pytest.approx(samples.nodes @ samples.weights, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("seen", [100, 400, 600])
@pytest.mark.parametrize("condition", [4.0, 256.0])
def test_the_ends_of_the_spectrum_equal_the_ends_of_sampled_matrices(condition: float, seen: int):
    limit, samples = sample_spectrum(200, seen, condition), sampled(200, seen, condition)
    positive = samples.nodes[samples.nodes > 1e-9]
    assert limit.ends[-1][1] == pytest.approx(positive.max(), rel=0.06)
    assert limit.ends[0][0] == pytest.approx(positive.min(), rel=0.25)
    assert not [
        node for node in positive if not any(0.8 * low < node < 1.1 * high for low, high in limit.ends)
    ]


def test_the_spectrum_splits_at_a_large_condition_number_and_enough_samples():
    assert len(sample_spectrum(200, 600, 16.0).ends) == 2
    assert len(sample_spectrum(200, 600, 1.0).ends) == len(sample_spectrum(200, 100, 16.0).ends) == 1


@pytest.mark.parametrize("point", [10, 20, 39, 80])
def test_isotropic_inputs_give_the_isotropic_formula(point: int):
    for loops in (1, 2, 5, 12):
        exact = value("first_order_best", point=point, loops=loops)
        assert value("first_order_spectrum", point=point, loops=loops) == pytest.approx(exact, rel=1e-6)


def test_isotropic_gradient_descent_has_one_best_size_for_every_window():
    expected = value("gd_risk_mp", point=40, rate=2 / 3, loops=5)
    for window in (1, 3, 5):
        assert value("tied_descent", point=40, loops=5, window=window) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("condition", [1.0, 16.0])
def test_tied_steps_are_no_better_than_free_steps_and_a_window_costs_little(condition: float):
    for loops in (1, 2, 5, 10):
        free = value("first_order_spectrum", loops=loops, condition=condition)
        alone = value("tied_descent", loops=loops, condition=condition)
        windowed = value("tied_descent", loops=loops, window=loops, condition=condition)
        assert free <= alone * (1 + 1e-9)
        assert alone <= windowed * (1 + 1e-9)
        assert windowed <= 1.05 * alone


def test_layers_and_loops_multiply():
    assert value("first_order_spectrum", loops=2, layers=3) == value("first_order_spectrum", loops=6)


@pytest.mark.parametrize("kind", ["gd_contraction", "chebyshev"])
def test_worst_case_rates_apply_at_every_condition_number(kind: str):
    slower = [value(kind, condition=condition, loops=10) for condition in (1, 4, 16, 64)]
    assert slower == sorted(slower)
    assert value(kind, condition=1 + 1e-9) == pytest.approx(value(kind), rel=1e-4)


def test_laws_along_loops_window_layers_and_condition_have_a_theory():
    trial = {
        "task.dim": 4,
        "task.points": 12,
        "task.condition": 16.0,
        "training.loops": 4,
        "training.window": 2,
    }
    for axis, kind, x in (
        ("training.loops", "first_order_spectrum", (1, 2, 4, 8)),
        ("training.loops", "chebyshev", (1, 2, 4, 8)),
        ("training.window", "tied_descent", (1, 2, 3, 4)),
        ("model.layers", "first_order_spectrum", (1, 2, 4)),
        ("task.condition", "first_order_spectrum", (1, 4, 16)),
    ):
        name = axis.rpartition(".")[2]
        settings = {field: trial[f"task.{field}"] for field in ("dim", "points", "condition")}
        settings |= {"loops": 4} | ({"window": 2} if kind == "tied_descent" else {})
        expected = bound(kind, **settings).along(name, x)
        places = [float(value) for value in x]
        power = 2 if kind == "chebyshev" else 1
        assert predict(kind, trial | {"model.layers": 1}, axis, places, "error") == pytest.approx(
            expected**power
        )
