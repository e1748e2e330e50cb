"""Ridge regression by plain, accelerated and Newton steps, held against the same steps and the exact solution."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.ridge import Curvature, RidgeAcceleration, RidgeDescent, RidgeNewton

EXACT = 1e-12


def problem(dim: int, pairs: int, prompts: int = 2, bound: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(100 * dim + pairs)
    x = rng.standard_normal((prompts, pairs, dim))
    x *= np.minimum(1, bound / np.linalg.norm(x, axis=-1, keepdims=True))
    y = (x * rng.standard_normal((prompts, 1, dim))).sum(-1) + 0.3 * rng.standard_normal((prompts, pairs))
    return x, y


def run(made: Curvature, x: np.ndarray, y: np.ndarray, steps: int) -> np.ndarray:
    """[steps, prompts, pairs, dim]"""
    net = made.net(Prompt(x.shape[1], x.shape[2] + 1, x.shape[2]))
    return net(torch.from_numpy(np.concatenate([x, y[..., None]], -1)), steps).numpy()


def descended(made, x: np.ndarray, y: np.ndarray, steps: int, accelerated: bool) -> np.ndarray:
    """The w of every prefix after every step."""
    _, pairs, dim = x.shape
    smallest, largest = made.penalty, made.penalty + pairs * made.bound**2
    share = np.ones((pairs, 1))
    if made.mean:
        smallest, largest = made.penalty / (dim + pairs), made.bound**2 + made.penalty / (dim + 1)
        share = np.arange(1, pairs + 1)[:, None] + dim
    momentum = (np.sqrt(largest) - np.sqrt(smallest)) / (np.sqrt(largest) + np.sqrt(smallest))
    a = made.penalty * np.eye(dim) + np.stack(
        [x[:, :i].transpose(0, 2, 1) @ x[:, :i] for i in range(1, pairs + 1)], 1
    )
    b = np.cumsum(x * y[..., None], 1)
    w = v = np.zeros_like(b)
    found = []
    for _ in range(steps):
        new = v - ((a @ v[..., None])[..., 0] - b) / share / largest
        w, v = new, new + (momentum if accelerated else 0.0) * (new - w)
        found.append(w)
    return np.stack(found)


def solved(x: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
    return np.stack([Ridge(penalty, fit_intercept=False).fit(*pair).coef_ for pair in zip(x, y, strict=True)])


@pytest.mark.parametrize(("dim", "pairs"), [(1, 3), (4, 11), (3, 24)])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("variant", ["linear", "relu"])
@pytest.mark.parametrize("kind", [RidgeDescent, RidgeAcceleration])
def test_loops_are_steps_on_every_prefix(kind: type, variant: str, mean: bool, dim: int, pairs: int):
    made = kind(variant=variant, mean=mean, penalty=0.7)
    x, y = problem(dim, pairs)
    expected = descended(made, x, y, 30, kind is RidgeAcceleration)
    assert np.abs(run(made, x, y, 30) - expected).max() < EXACT


@pytest.mark.parametrize("expansion", [1, 2, 4])
def test_softmax_nears_the_steps_with_the_order_of_its_expansion(expansion: int):
    x, y = problem(4, 11)
    scales = {1: (1e-3, 1e-4), 2: (1e-2, 1e-3), 4: (3e-2, 1e-2)}[expansion]
    errors = []
    for scale in scales:
        made = RidgeAcceleration(variant="sink", expansion=expansion, scale=scale, penalty=2.0)
        errors.append(np.abs(run(made, x, y, 5) - descended(made, x, y, 5, True)).max())
    slope = np.log(errors[0] / errors[1]) / np.log(scales[0] / scales[1])
    assert slope == pytest.approx(expansion, abs=0.1 if expansion < 4 else 0.2)
    assert made.order == expansion


@pytest.mark.parametrize("dim", [2, 4])
def test_acceleration_reaches_ridge_regression_and_keeps_its_bound_on_the_way(dim: int):
    x, y = problem(dim, 20, bound=2.0)
    made = RidgeAcceleration(bound=2.0, penalty=1.0)
    condition = 1 + 20 * 2.0**2
    found = run(made, x, y, 300)[:, :, -1]
    exact = solved(x, y, 1.0)
    errors = np.linalg.norm(found - exact, axis=-1).max(-1)
    steps = np.arange(1, 301)
    bound = (
        np.sqrt(condition + 1) * (1 - condition**-0.5) ** (steps / 2) * np.linalg.norm(exact, axis=-1).max()
    )
    assert errors[-1] < 1e-12
    assert (errors <= bound + 1e-13).all()


@pytest.mark.parametrize(("dim", "pairs", "penalty"), [(1, 4, 1.0), (4, 30, 0.5), (6, 3, 0.05)])
@pytest.mark.parametrize("attention", ["linear", "relu"])
def test_newtons_steps_are_those_for_the_inverse(attention: str, dim: int, pairs: int, penalty: float):
    x, y = problem(dim, pairs)
    made = RidgeNewton.model_validate({"attention": attention, "penalty": penalty})
    largest = penalty + pairs * made.bound**2
    steps = int(np.ceil(np.log2(largest / penalty))) + 5
    found = run(made, x, y, steps)
    s = penalty * np.eye(dim) + np.einsum("pij,pik->pjk", x, x)
    b = np.einsum("pij,pi->pj", x, y)
    m = np.eye(dim) / largest
    for t in range(steps):
        m = 2 * m - m @ s @ m
        assert np.abs(found[t] - (m @ b[..., None]).transpose(0, 2, 1)).max() < EXACT * largest / penalty
    assert np.abs(found[-1, :, 0] - solved(x, y, penalty)).max() < 1e-12 * largest / penalty


@pytest.mark.parametrize(
    ("made", "prompt", "condition"),
    [
        (RidgeDescent(), Prompt(5, 4, 2), "tokens of x's coordinates and then y"),
        (RidgeNewton(), Prompt(5, 4, 1), "tokens of x's coordinates and then y"),
        (RidgeDescent(variant="sink", mean=True), Prompt(5, 4, 3), "mean: false"),
    ],
)
def test_what_does_not_fit_is_refused(made: Curvature, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction {made.kind} is for {condition}"):
        made.net(prompt)
