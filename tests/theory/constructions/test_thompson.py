"""Roots of matrices by Newton-Schulz, and Thompson sampling, held against eigendecompositions."""

import math

import numpy as np
import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.thompson import MatrixRoot, Sampling, ThompsonDraw, ThompsonSampling

ATTENTION = pytest.mark.parametrize("attention", ["linear", "relu"])


def power(v: np.ndarray, exponent: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(v)
    return vectors * values[..., None, :] ** exponent @ np.swapaxes(vectors, -1, -2)


def positive(dim: int, condition: float, prompts: int = 3) -> np.ndarray:
    """Matrices with eigenvalues from 1 to this."""
    rng = np.random.default_rng(dim)
    vectors = np.linalg.qr(rng.standard_normal((prompts, dim, dim)))[0]
    v = vectors * np.geomspace(1, condition, dim) @ np.swapaxes(vectors, -1, -2)
    return (v + np.swapaxes(v, -1, -2)) / 2


def steps_for(condition: float) -> int:
    return math.ceil(math.log(condition) / (2 * math.log(1.5))) + 5


@ATTENTION
@pytest.mark.parametrize(("dim", "condition"), [(1, 1.0), (3, 30.0), (6, 1000.0)])
def test_loops_are_steps_of_newton_schulz_and_reach_the_roots(attention: str, dim: int, condition: float):
    v, top = positive(dim, condition), 1.3 * condition
    net = MatrixRoot.model_validate({"attention": attention, "top": top}).net(Prompt(dim, dim, 2 * dim))
    steps = steps_for(top)
    columns = net(torch.from_numpy(np.swapaxes(v, 1, 2).copy()), steps).numpy()
    roots, inverses = np.swapaxes(columns, 2, 3)[:, :, :dim], np.swapaxes(columns, 2, 3)[:, :, dim:]
    y, z = v / top, np.eye(dim)
    for t in range(steps):
        y, z = (3 * y - y @ z @ y) / 2, (3 * z - z @ y @ z) / 2
        assert np.abs(roots[t] / top**0.5 - y).max() < 1e-13 * condition
        assert np.abs(inverses[t] * top**0.5 - z).max() < 1e-13 * condition
    assert np.abs(roots[-1] - power(v, 0.5)).max() < 1e-12 * condition
    assert np.abs(inverses[-1] - power(v, -0.5)).max() < 1e-12 * condition


def test_more_steps_than_needed_spoil_nothing():
    v = positive(4, 50.0)
    net = MatrixRoot(top=60.0).net(Prompt(4, 4, 8))
    late = net(torch.from_numpy(v), 60)[-1, ..., 4:].numpy()
    assert np.abs(late - power(v, -0.5)).max() < 1e-12 * 50


def bandit(dim: int, pairs: int, arms: int, prompts: int = 4) -> tuple[np.ndarray, ...]:
    """x, y, arms and ξ; contexts of length at most 2."""
    rng = np.random.default_rng(1000 * dim + 10 * pairs + arms)
    x = rng.standard_normal((prompts, pairs, dim))
    x *= np.minimum(1, 2 / np.linalg.norm(x, axis=-1, keepdims=True))
    y = (x * rng.standard_normal((prompts, 1, dim))).sum(-1)
    return x, y, rng.standard_normal((prompts, arms, dim)), rng.standard_normal((prompts, dim))


def tokens(x: np.ndarray, y: np.ndarray, a: np.ndarray, xi: np.ndarray) -> torch.Tensor:
    (prompts, pairs, dim), arms = x.shape, a.shape[1]
    whole = np.zeros((prompts, pairs + arms + 1, 2 * dim + 1))
    whole[:, :pairs, :dim], whole[:, :pairs, dim] = x, y
    whole[:, pairs:, dim + 1 :] = np.concatenate([a, xi[:, None]], 1)
    return torch.from_numpy(whole)


def drawn(made: Sampling, x: np.ndarray, y: np.ndarray, xi: np.ndarray) -> np.ndarray:
    v = made.penalty * np.eye(x.shape[2]) + np.swapaxes(x, 1, 2) @ x
    mean = np.linalg.solve(v, np.einsum("pji,pj->pi", x, y)[..., None])[..., 0]
    return mean + made.spread * np.einsum("pij,pj->pi", power(v, -0.5), xi)


@ATTENTION
@pytest.mark.parametrize(("dim", "pairs", "penalty"), [(1, 3, 1.0), (4, 25, 0.5), (5, 2, 0.1), (3, 0, 1.0)])
def test_the_weights_drawn_are_those_of_the_posterior(attention: str, dim: int, pairs: int, penalty: float):
    made = ThompsonDraw.model_validate(
        {"attention": attention, "penalty": penalty, "bound": 2.0, "spread": 0.7}
    )
    condition = made.largest(pairs) / penalty
    x, y, _, xi = bandit(dim, pairs, 0)
    net = made.net(Prompt(pairs + 1, 2 * dim + 1, dim))
    found = net(tokens(x, y, np.zeros((4, 0, dim)), xi), steps_for(condition))[-1, :, -1].numpy()
    assert np.abs(found - drawn(made, x, y, xi)).max() < 1e-12 * condition


@ATTENTION
@pytest.mark.parametrize(("dim", "pairs", "arms"), [(1, 4, 2), (4, 20, 6)])
def test_the_arm_played_is_the_best_for_the_weights_drawn(attention: str, dim: int, pairs: int, arms: int):
    made = ThompsonSampling.model_validate({"attention": attention, "bound": 2.0})
    x, y, a, xi = bandit(dim, pairs, arms, prompts=12)
    net = made.net(Prompt(pairs + arms + 1, 2 * dim + 1, arms))
    played = net(tokens(x, y, a, xi), steps_for(made.largest(pairs)))[-1, :, -1].numpy()
    best = np.einsum("pai,pi->pa", a, drawn(made, x, y, xi)).argmax(-1)
    assert (played == np.eye(arms)[best]).all()
    assert len(set(best)) > 1, "the same arm everywhere would test little"


def test_before_and_after_the_steps_are_one_layer_and_two_or_three():
    nets = ThompsonDraw().net(Prompt(7, 7, 3)), ThompsonSampling().net(Prompt(7, 7, 2))
    for net, after in zip(nets, (2, 3), strict=True):
        assert (len(net.pre.blocks), len(net.loop.stack.blocks), len(net.post.blocks)) == (1, 1, after)


@pytest.mark.parametrize(
    ("made", "prompt", "condition"),
    [
        (MatrixRoot(), Prompt(4, 3, 6), "the columns of a square matrix"),
        (ThompsonDraw(), Prompt(5, 4, 2), r"tokens \(x, y, ξ\)"),
        (ThompsonSampling(), Prompt(5, 4, 2), r"tokens \(x, y, a or ξ\)"),
        (ThompsonSampling(), Prompt(2, 5, 2), "prompts that end with a token for each arm, and one more"),
    ],
)
def test_what_does_not_fit_is_refused(made, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction {made.kind} is for {condition}"):
        made.net(prompt)
