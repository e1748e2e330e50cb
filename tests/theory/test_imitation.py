"""Constructed weights, and layers that suffice, against the algorithms that they imitate."""

import math

import numpy as np
import pytest

from loopscale.theory.bounds.base import Bound


def bound(kind: str, **settings) -> Bound:
    return Bound.model_validate({"kind": kind} | settings)


def value(kind: str, **settings) -> float:
    return bound(kind, **settings).value()


# Constructed weights.


def test_what_a_softmax_adds_to_a_score_stays_within_its_bound_and_comes_near_it():
    rng = np.random.default_rng(0)
    small, score = 10 ** rng.uniform(-3, 0.5, 400), rng.uniform(-5, 5, 400)
    error = np.abs(np.expm1(small * score) / small - score)
    limit = [
        value("softmax_linear", small=c, score=z) for c, z in zip(small.tolist(), score.tolist(), strict=True)
    ]
    ratio = error / np.array(limit)
    assert 0.99 < ratio.max() <= 1 + 1e-9


def softmax_heads(keys: np.ndarray, values: np.ndarray, query: np.ndarray, small: float, sink: float):
    """Two heads of lemma A.2 at one query, as printed, over c: the scores c <key, query>, and none."""
    heads = []
    for scores in (small * keys @ query, np.zeros(len(keys))):
        scores = np.append(scores, sink)
        weights = np.exp(scores - scores.max())
        heads.append(math.exp(sink) * (weights / weights.sum())[:-1] @ values)
    return (heads[0] - heads[1]) / small


def gradient_step_error(small: float, sink: float, x: np.ndarray, u: np.ndarray) -> tuple[float, float]:
    """The largest error over queries, and its bound. x and u: the pairs', and at the end the query's own."""
    pairs = len(x) - 1
    blank = np.zeros((pairs + 1, x.shape[1]))  # The labels' keys, and the test token's.
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
def test_no_gradient_step_of_two_softmax_heads_is_off_by_more_than_its_bound(sink: float):
    rng = np.random.default_rng(1)
    for small in (1e-3, 1e-2, 0.1, 1.0):
        for pairs, dim in ((3, 2), (12, 5), (40, 20)):
            x, u = rng.standard_normal((pairs + 1, dim)), rng.standard_normal(pairs + 1)
            error, limit = gradient_step_error(small, sink, x, u)
            assert error <= limit + 1e-15 * math.exp(min(sink, 30)) / small


def test_pairs_that_are_all_alike_attain_the_bound_of_a_gradient_step():
    """The c-term with a far sink, and within a factor of 2 the sink's with a near one."""
    for small, sink, least in ((1e-2, 30.0, 0.99), (1e-7, 8.0, 0.5)):
        error, limit = gradient_step_error(small, sink, np.full((11, 1), 1.5), np.ones(11))
        assert least < error / limit <= 1 + 1e-3


def test_a_gradient_step_is_off_by_order_c_and_then_by_the_sink():
    made = {"point": 12, "score": 10.0}
    assert bound("lemma_a2_error", small=1e-3, sink=40, **made).slope("small") == pytest.approx(1, abs=0.01)
    for sink in (4.0, 10.0):
        deeper = value("lemma_a2_error", small=1e-9, sink=sink + 1, **made)
        assert value("lemma_a2_error", small=1e-9, sink=sink, **made) / deeper == pytest.approx(math.e)
    rng = np.random.default_rng(2)
    x, u = rng.standard_normal((13, 5)), rng.standard_normal(13)
    coarse, fine = (gradient_step_error(small, 30, x, u)[0] for small in (1e-2, 1e-3))
    assert math.log10(coarse / fine) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("loops", [1, 3, 6])
def test_softmax_loops_leave_what_as_many_newton_steps_do(loops: int):
    """Lemma A.4: attention adds -M S M x / 2 to M x, by two heads and a sink, and the MLP doubles the sum."""
    kappa, small, sink = 5.0, 1e-5, 28.0
    x = np.diag(np.sqrt([1.0, kappa]))
    s = x.T @ x
    state = x @ s / kappa**2  # Rows M x, of M_0 = S/λmax².
    for _ in range(loops):
        added = np.stack([softmax_heads(x, state, row, small, sink) for row in state])
        state = 2 * (state - added / 2)
    left = np.eye(2) - np.linalg.solve(x, state).T @ s
    steps = int(value("newton_loops", loops=loops))
    exact = value("newton_residual", kappa=kappa, loops=steps, start="spectral")
    assert np.abs(left).max() == pytest.approx(exact, abs=1e-4)
    assert exact - value("newton_residual", kappa=kappa, loops=steps + 1, start="spectral") > 1e-2


# Layers that suffice.


@pytest.mark.parametrize("kappa", [5.0, 10.0, 100.0])
def test_ridge_is_reached_by_as_many_descent_steps_as_there_are_layers_but_one(kappa: float):
    """On a prompt of the two ends of the spectrum alone, the query and the solution along the flat one."""
    accuracy, penalty, x_norm, w_norm = 1e-3, 0.5, 2.0, 0.75
    curvature = np.array([1.0, kappa])  # Of X'X/N + λ.
    correlation = curvature * [w_norm, 0.0]  # X'y/N.
    layers = value("bai_ridge_layers", kappa=kappa, accuracy=accuracy, product=x_norm * 2 * w_norm)
    left, w = [], np.zeros(2)
    for _ in range(int(layers) - 1):
        gradient = (curvature - penalty) * w - correlation + penalty * w
        w = w - gradient / kappa
        left.append(abs(x_norm * (w[0] - w_norm)))
    assert left[-1] <= accuracy < left[len(left) // 3], "a depth that is far from needed tests nothing"


def test_descent_pushed_uphill_at_every_step_attains_the_distance():
    """On -β w²/2, from its top: exact descent stays, and every error of ηε grows by 1 + ηβ a step."""
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
def test_its_slope_is_that_of_its_formula(kind: str, settings: dict, setting: str, slope: float):
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
def test_outside_its_conditions_it_names_them(kind: str, settings: dict, condition: str):
    with pytest.raises(ValueError, match=f"{kind} requires .*{condition}"):
        value(kind, **settings)
