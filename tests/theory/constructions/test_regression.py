"""Gradient descent with full attention, on x and on a representation, compared with gradient descent."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.tasks.representation_regression import RepresentationRegression
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.regression import GradientDescent, RepresentationDescent

EXACT = 1e-10


def problem(dim: int, pairs: int, targets: int = 1, prompts: int = 3) -> tuple[Tensor, Tensor]:
    """xs [prompts, pairs + 1, dim] and ys [prompts, pairs + 1, targets], float64."""
    rng = torch.Generator().manual_seed(1000 * dim + pairs)
    xs = torch.randn(prompts, pairs + 1, dim, generator=rng, dtype=torch.float64)
    w = torch.randn(prompts, dim, targets, generator=rng, dtype=torch.float64)
    return xs, xs @ w


def tokens(xs: Tensor, ys: Tensor) -> Tensor:
    """x_1, y_1, ..., x_N, y_N, x_test."""
    dim, targets = xs.shape[-1], ys.shape[-1]
    x, y = torch.nn.functional.pad(xs, (0, targets)), torch.nn.functional.pad(ys, (dim, 0))
    return torch.stack([x, y], 2).flatten(1, 2)[:, :-1]


def descended(features: Tensor, ys: Tensor, rate: float, steps: int) -> Tensor:
    """The prediction of descent from 0 at the last x, [steps, prompts, targets]."""
    pairs, weights, guesses = (
        features[:, :-1],
        torch.zeros(features.shape[0], features.shape[2], ys.shape[2]),
        [],
    )
    weights = weights.double()
    for _ in range(steps):
        residuals = pairs @ weights - ys[:, :-1]
        weights = weights - rate / pairs.shape[1] * pairs.transpose(1, 2) @ residuals
        guesses.append((features[:, -1:] @ weights)[:, 0])
    return torch.stack(guesses)


def distance(dim: int = 5, pairs: int = 12, targets: int = 1, steps: int = 50, **settings) -> float:
    xs, ys = problem(dim, pairs, targets)
    net = GradientDescent.model_validate({"rate": 0.1} | settings).net(
        Prompt(2 * pairs + 1, dim + targets, targets)
    )
    guesses = net(tokens(xs, ys), steps)[:, :, -1]
    return (guesses - descended(xs, ys, settings.get("rate", 0.1), steps)).abs().max().item()


@pytest.mark.parametrize(("dim", "pairs", "targets"), [(1, 1, 1), (5, 12, 1), (4, 9, 3), (20, 40, 1)])
@pytest.mark.parametrize(
    "settings", [{"variant": "relu"}, {"variant": "linear"}, {}], ids=["relu", "linear", "softmax"]
)
def test_loops_are_steps_of_descent(settings: dict, dim: int, pairs: int, targets: int):
    assert distance(dim, pairs, targets, **settings) < EXACT


@pytest.mark.parametrize(
    ("settings", "scales"),
    [
        ({"variant": "sink", "expansion": 1}, (1e-3, 1e-5)),
        ({"variant": "sink", "expansion": 2}, (1e-2, 1e-3)),
        ({"variant": "sink", "expansion": 4}, (3e-2, 1e-2)),
        ({"variant": "mirrored", "expansion": 2}, (1e-2, 1e-4)),
        ({"variant": "mirrored", "expansion": 4}, (1e-2, 1e-3)),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_softmax_error_has_the_order_of_the_expansion(settings: dict, scales: tuple[float, float]):
    near, far = (distance(steps=5, scale=scale, **settings) for scale in scales)
    slope = math.log(near / far) / math.log(scales[0] / scales[1])
    construction = GradientDescent.model_validate(settings)
    assert construction.order is not None
    assert slope == pytest.approx(construction.order, abs=0.1 if construction.order < 4 else 0.2)


def test_error_falls_exponentially_with_the_depth_of_the_sink():
    depths = np.array([8.0, 10.0, 12.0, 14.0])
    errors = [distance(steps=1, variant="sink", depth=depth, scale=1e-3) for depth in depths]
    assert np.polyfit(depths, np.log(errors), 1)[0] == pytest.approx(-1, abs=0.05)


def test_mirrored_weights_do_not_depend_on_the_number_of_pairs():
    large, small = (GradientDescent().net(Prompt(2 * pairs + 1, 6, 1)) for pairs in (20, 7))
    loops = [blocks(net)[1].state_dict() for net in (large, small)]
    assert all((loops[0][name] == loops[1][name]).all() for name in loops[0])


def test_copies_of_pairs_are_bitwise_exact():
    xs, ys = problem(3, 6)
    net = GradientDescent(variant="relu", rate=1e-300).net(Prompt(13, 4, 1))
    state = net(tokens(xs, ys), 1)[0, ..., 0]
    assert (state[:, 0:-1:2] == -ys[:, :-1, 0]).all(), "the residual of weights 0 is -y"
    assert (state[:, 1::2] == 0).all()
    assert (state[:, -1].abs() < 1e-290).all()


def test_descent_on_a_representation_is_descent_on_its_features():
    dim, pairs, steps = 6, 15, 40
    task = RepresentationRegression(dim=dim, points=pairs, width=8, layers=3, slope=0.1)
    xs, _ = problem(dim, pairs)
    features = xs
    for weight in task.representation.weights:
        features = torch.nn.functional.leaky_relu(features @ weight.double(), task.slope)
    ys = features @ torch.randn(3, 8, 1, generator=torch.Generator().manual_seed(0)).double()
    for variant in ("relu", "linear", "mirrored"):
        construction = RepresentationDescent(rate=0.2, variant=variant, width=8, slope=0.1)
        guesses = construction.net(Prompt(2 * pairs + 1, dim + 1, 1))(tokens(xs, ys), steps)[:, :, -1]
        assert (guesses - descended(features, ys, 0.2, steps)).abs().max() < EXACT, variant


@pytest.mark.parametrize(
    ("settings", "prompt", "condition"),
    [
        ({}, Prompt(12, 4, 1), "an odd number of tokens"),
        ({}, Prompt(13, 1, 1), "tokens that hold x's coordinates"),
        ({"expansion": 1}, Prompt(13, 4, 1), "expansion 2 or 4"),
    ],
)
def test_unsuitable_prompts_raise(settings: dict, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction gradient_descent requires .*{condition}"):
        GradientDescent.model_validate(settings).net(prompt)
