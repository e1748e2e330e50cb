"""Constructed weights and sufficient numbers of layers, compared with the imitated algorithms."""

import math

import numpy as np
import pytest

from tests.theory.checks import assert_refused, bound, value

# Constructed weights


def test_the_linearisation_error_of_a_softmax_approaches_but_never_exceeds_its_bound():
    rng = np.random.default_rng(0)
    small, score = 10 ** rng.uniform(-3, 0.5, 400), rng.uniform(-5, 5, 400)
    error = np.abs(np.expm1(small * score) / small - score)
    limit = [
        value("softmax_linear", small=c, score=z) for c, z in zip(small.tolist(), score.tolist(), strict=True)
    ]
    ratio = error / np.array(limit)
    assert 0.99 < ratio.max() <= 1 + 1e-9


def softmax_heads(keys: np.ndarray, values: np.ndarray, query: np.ndarray, small: float, sink: float):
    """Difference of the two heads of lemma A.2 at one query, divided by c. The scores are c <key, query> and 0."""
    heads = []
    for scores in (small * keys @ query, np.zeros(len(keys))):
        scores = np.append(scores, sink)
        weights = np.exp(scores - scores.max())
        heads.append(math.exp(sink) * (weights / weights.sum())[:-1] @ values)
    return (heads[0] - heads[1]) / small


def gradient_step_error(small: float, sink: float, x: np.ndarray, u: np.ndarray) -> tuple[float, float]:
    """The largest error over queries, and its bound. x [pairs + 1, dim] and u [pairs + 1] end with the query."""
    pairs = len(x) - 1
    blank = np.zeros((pairs + 1, x.shape[1]))  # keys of the labels and of the test token
    keys = np.concatenate([x[:-1] / pairs, blank])
    values = np.concatenate([u[:-1], np.zeros(pairs), u[-1:]])
    errors = [
        abs(softmax_heads(keys, values, query, small, sink) - u[:-1] @ (x[:-1] @ query) / pairs)
        for query in x
    ]
    score, residual = np.abs(x[:-1] @ x.T).max().item(), np.abs(u).max().item()
    limit = value("lemma_a2_error", point=pairs, small=small, sink=sink, score=score, residual=residual)
    return max(errors), limit


@pytest.mark.parametrize("sink", [6.0, 14.0, 30.0])
def test_the_error_of_a_gradient_step_by_two_softmax_heads_is_below_its_bound(sink: float):
    rng = np.random.default_rng(1)
    for small in (1e-3, 1e-2, 0.1, 1.0):
        for pairs, dim in ((3, 2), (12, 5), (40, 20)):
            x, u = rng.standard_normal((pairs + 1, dim)), rng.standard_normal(pairs + 1)
            error, limit = gradient_step_error(small, sink, x, u)
            assert error <= limit + 1e-15 * math.exp(min(sink, 30)) / small


def test_identical_pairs_attain_the_bound_of_a_gradient_step():
    """A far sink attains the c-term. A near sink attains the sink term within a factor of 2."""
    for small, sink, least in ((1e-2, 30.0, 0.99), (1e-7, 8.0, 0.5)):
        error, limit = gradient_step_error(small, sink, np.full((11, 1), 1.5), np.ones(11))
        assert least < error / limit <= 1 + 1e-3


def test_the_error_of_a_gradient_step_falls_as_c_until_the_sink_term_dominates():
    settings = {"point": 12, "score": 10.0}
    assert bound("lemma_a2_error", small=1e-3, sink=40, **settings).slope("small") == pytest.approx(
        1, abs=0.01
    )
    for sink in (4.0, 10.0):
        next_sink = value("lemma_a2_error", small=1e-9, sink=sink + 1, **settings)
        assert value("lemma_a2_error", small=1e-9, sink=sink, **settings) / next_sink == pytest.approx(math.e)
    rng = np.random.default_rng(2)
    x, u = rng.standard_normal((13, 5)), rng.standard_normal(13)
    coarse, fine = (gradient_step_error(small, 30, x, u)[0] for small in (1e-2, 1e-3))
    assert math.log10(coarse / fine) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("loops", [1, 3, 6])
def test_softmax_loops_have_the_residual_of_newton_steps(loops: int):
    """Lemma A.4: attention with two heads and a sink adds -M S M x / 2 to M x, and the MLP doubles the sum."""
    kappa, small, sink = 5.0, 1e-5, 28.0
    x = np.diag(np.sqrt([1.0, kappa]))
    s = x.T @ x
    state = x @ s / kappa**2  # rows M x for M_0 = S/λmax²
    for _ in range(loops):
        added = np.stack([softmax_heads(x, state, row, small, sink) for row in state])
        state = 2 * (state - added / 2)
    left = np.eye(2) - np.linalg.solve(x, state).T @ s
    steps = int(value("newton_loops", loops=loops))
    exact = value("newton_residual", kappa=kappa, loops=steps, start="spectral")
    assert np.abs(left).max() == pytest.approx(exact, abs=1e-4)
    assert exact - value("newton_residual", kappa=kappa, loops=steps + 1, start="spectral") > 1e-2


# Sufficient numbers of layers


@pytest.mark.parametrize("kappa", [5.0, 10.0, 100.0])
def test_descent_reaches_ridge_with_one_step_per_layer_but_one(kappa: float):
    """The spectrum has only its two ends; query and solution lie in the direction of the smallest eigenvalue."""
    accuracy, penalty, x_norm, w_norm = 1e-3, 0.5, 2.0, 0.75
    curvature = np.array([1.0, kappa])  # eigenvalues of X'X/N + λ
    correlation = curvature * [w_norm, 0.0]  # X'y/N
    layers = value("bai_ridge_layers", kappa=kappa, accuracy=accuracy, product=x_norm * 2 * w_norm)
    left, w = [], np.zeros(2)
    for _ in range(int(layers) - 1):
        gradient = (curvature - penalty) * w - correlation + penalty * w
        w = w - gradient / kappa
        left.append(abs(x_norm * (w[0] - w_norm)))
    assert left[-1] <= accuracy < left[len(left) // 3], "a depth far above the necessary depth tests nothing"


def test_descent_with_the_worst_errors_attains_the_distance():
    """The loss is -β w²/2 and the start its maximum: exact descent stays, and an error grows by 1 + ηβ per step."""
    rate, smoothness, heads, w = 0.2, 1.7, 9, 0.0
    for steps in range(1, 8):
        w += rate * smoothness * w + rate * heads**-0.5
        exact = value("deep_icgd", rate=rate, smoothness=smoothness, heads=heads, loops=steps)
        assert w == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "settings", "setting", "slope"),
    [
        ("softmax_linear", {"small": 1e-4}, "small", 1),
        ("bai_ridge_layers", {"kappa": 1e6}, "kappa", 1),
        ("fu_newton", {"loops": 10**4}, "loops", 1),
        ("deep_icgd", {"heads": 1000}, "heads", -1 / 2),
        ("deep_icgd_layers", {}, "loops", 1),
    ],
)
def test_the_slope_matches_the_formula(kind: str, settings: dict, setting: str, slope: float):
    assert bound(kind, **settings).slope(setting) == pytest.approx(slope, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "settings", "condition"),
    [
        ("lemma_a2_error", {"point": 0}, "N >= 1"),
        ("bai_ridge_layers", {"accuracy": 1}, "accuracy < product / 2"),
        ("deep_icgd", {"attention": "softmax"}, "relu attention"),
        ("deep_icgd_layers", {"attention": "linear"}, "relu or softmax attention"),
    ],
)
def test_an_error_names_the_violated_condition(kind: str, settings: dict, condition: str):
    assert_refused(kind, settings, condition)
