"""Ridge regression by plain, accelerated and Newton steps, compared with the same steps and the exact solution."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.ridge import (
    Curvature,
    RidgeAcceleration,
    RidgeDescent,
    RidgeNewton,
    inverse_iterates,
    nesterov_descent,
    prefix_moments,
    random_bounded_regression,
)
from loopscale.theory.constructions.verification import approach, order

EXACT = 1e-12


def drawn(dim: int, pairs: int, bound: float = 3.0) -> tuple[Tensor, Tensor]:
    return random_bounded_regression(
        torch.Generator().manual_seed(100 * dim + pairs), dim, pairs, bound, prompts=2
    )


def run(construction: Curvature, x: Tensor, y: Tensor, steps: int) -> Tensor:
    """[steps, prompts, pairs, dim]"""
    return construction.net(Prompt(x.shape[1], x.shape[2] + 1, x.shape[2]))(
        torch.cat([x, y[..., None]], -1), steps
    )


def solved(x: Tensor, y: Tensor, penalty: float) -> np.ndarray:
    fits = [Ridge(penalty, fit_intercept=False).fit(*pair) for pair in zip(x.numpy(), y.numpy(), strict=True)]
    return np.stack([fit.coef_ for fit in fits])


@pytest.mark.parametrize(("dim", "pairs"), [(1, 3), (4, 11), (3, 24)])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("variant", ["linear", "relu"])
@pytest.mark.parametrize("kind", [RidgeDescent, RidgeAcceleration])
def test_loops_are_steps_on_every_prefix(kind: type, variant: str, mean: bool, dim: int, pairs: int):
    construction = kind(variant=variant, mean=mean, penalty=0.7)
    x, y = drawn(dim, pairs)
    smallest, largest = 0.7, 0.7 + pairs * 3.0**2
    if mean:
        smallest, largest = 0.7 / (dim + pairs), 3.0**2 + 0.7 / (dim + 1)
    momentum = (largest**0.5 - smallest**0.5) / (largest**0.5 + smallest**0.5)
    carried = momentum if kind is RidgeAcceleration else 0.0
    expected = nesterov_descent(*prefix_moments(x, y, 0.7, mean), largest, carried, 30)
    assert (run(construction, x, y, 30) - expected).abs().max() < EXACT


@pytest.mark.parametrize("expansion", [1, 2, 4])
def test_softmax_error_has_the_order_of_the_expansion(expansion: int):
    construction = RidgeAcceleration.model_validate(
        {"variant": "sink", "expansion": expansion, "penalty": 2.0}
    )
    limit = construction.limit
    assert limit is not None
    assert limit.order == expansion
    measured = order(limit, approach(construction, limit))
    assert measured.value == pytest.approx(expansion, abs=0.1 if expansion < 4 else 0.2)


@pytest.mark.parametrize("dim", [2, 4])
def test_acceleration_converges_to_ridge_regression_within_its_bound(dim: int):
    x, y = drawn(dim, 20, bound=2.0)
    construction = RidgeAcceleration(bound=2.0, penalty=1.0)
    condition = 1 + 20 * 2.0**2
    weights = run(construction, x, y, 300)[:, :, -1].numpy()
    exact = solved(x, y, 1.0)
    errors = np.linalg.norm(weights - exact, axis=-1).max(-1)
    shrinking = (1 - condition**-0.5) ** (np.arange(1, 301) / 2)
    assert errors[-1] < 1e-12
    assert (errors <= np.sqrt(condition + 1) * shrinking * np.linalg.norm(exact, axis=-1).max() + 1e-13).all()


@pytest.mark.parametrize(("dim", "pairs", "penalty"), [(1, 4, 1.0), (4, 30, 0.5), (6, 3, 0.05)])
@pytest.mark.parametrize("attention", ["linear", "relu"])
def test_newton_steps_match_the_iteration_for_the_inverse(
    attention: str, dim: int, pairs: int, penalty: float
):
    x, y = drawn(dim, pairs)
    largest = penalty + pairs * 3.0**2
    steps = int(np.ceil(np.log2(largest / penalty))) + 5
    weights = run(RidgeNewton.model_validate({"attention": attention, "penalty": penalty}), x, y, steps)
    second = penalty * torch.eye(dim, dtype=torch.float64) + x.mT @ x
    expected = inverse_iterates(second, largest, steps) @ (x.mT @ y[..., None])
    assert (weights - expected.mT).abs().max() < EXACT * largest / penalty
    assert np.abs(weights[-1, :, 0].numpy() - solved(x, y, penalty)).max() < 1e-12 * largest / penalty


@pytest.mark.parametrize(
    ("construction", "prompt", "condition"),
    [
        (RidgeDescent(), Prompt(5, 4, 2), "tokens that hold x's coordinates and then y"),
        (RidgeNewton(), Prompt(5, 4, 1), "tokens that hold x's coordinates and then y"),
        (RidgeDescent(variant="sink", mean=True), Prompt(5, 4, 3), "mean: false"),
    ],
)
def test_unsuitable_prompts_raise(construction: Curvature, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction {construction.kind} requires {condition}"):
        construction.net(prompt)
