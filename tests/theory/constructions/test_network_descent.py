"""Gradient descent on a network in context, compared with autograd."""

import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.network_descent import NetworkDescent, pair_tokens, trained_outputs
from loopscale.theory.constructions.regression import random_linear_regression
from loopscale.theory.constructions.verification import approach, order


def distance(
    construction: NetworkDescent, dim: int = 3, targets: int = 1, pairs: int = 12, steps: int = 10
) -> tuple[float, float]:
    """The distance from descent by autograd, and the change of the outputs during descent."""
    xs, ys = random_linear_regression(
        torch.Generator().manual_seed(100 * dim + pairs), dim, pairs, targets, prompts=2
    )
    prompt = Prompt(pairs + 1, dim + targets, targets)
    activation = {"relu": torch.relu, "tanh": torch.tanh, "softplus": torch.nn.functional.softplus}
    expected = trained_outputs(
        construction.initial(prompt),
        xs,
        ys.sin(),
        activation[construction.activation],
        construction.rate,
        steps,
    )
    outputs = construction.net(prompt)(pair_tokens(xs, ys.sin()), steps)
    return (outputs - expected).abs().max().item(), (expected[-1] - expected[0]).abs().max().item()


def test_descent_on_a_network_without_hidden_layers_solves_least_squares_with_an_intercept():
    xs, ys = random_linear_regression(torch.Generator().manual_seed(0), dim=3, pairs=12, prompts=2)
    ones = torch.ones(2, 13, 1, dtype=torch.float64)
    design = torch.cat([xs, ones], -1)
    solved = design @ torch.linalg.lstsq(design[:, :-1], ys.sin()[:, :-1]).solution
    outputs = trained_outputs(
        [torch.zeros(1, 3, dtype=torch.float64)], xs, ys.sin(), torch.relu, rate=0.3, steps=2000
    )
    torch.testing.assert_close(outputs[-1], solved, rtol=0, atol=1e-10)


@pytest.mark.parametrize("attention", ["linear", "relu"])
@pytest.mark.parametrize(
    ("hidden", "dim", "targets", "pairs"),
    [((), 3, 1, 8), ((5,), 2, 1, 10), ((4, 6), 3, 2, 12), ((5, 2, 4), 1, 1, 6), ((3,), 2, 4, 1)],
)
def test_loops_are_steps_of_descent_on_relu_networks(
    attention: str, hidden: tuple[int, ...], dim: int, targets: int, pairs: int
):
    construction = NetworkDescent.model_validate(
        {"attention": attention, "hidden": hidden, "gain": 1.4, "rate": 0.05}
    )
    error, change = distance(construction, dim, targets, pairs, steps=50)
    assert error < 1e-12
    assert change > 1e-2, "a network that learns nothing would test nothing"


def test_threshold_only_affects_activations_below_it():
    constructions = [NetworkDescent(hidden=(6,), gain=1.4, threshold=t) for t in (1.0, 0.1, 1e-6, 1e-8)]
    errors = [distance(construction, pairs=30, steps=20)[0] for construction in constructions]
    assert errors[0] > errors[1] > 1e-5
    assert max(errors[2:]) < 1e-12


@pytest.mark.parametrize("activation", ["tanh", "softplus"])
@pytest.mark.parametrize("hidden", [(4,), (4, 3)])
def test_error_of_smooth_activations_has_order_two(activation: str, hidden: tuple[int, ...]):
    construction = NetworkDescent.model_validate({"hidden": hidden, "activation": activation})
    assert construction.limit is not None
    errors = approach(construction, construction.limit)
    assert order(construction.limit, errors).agrees(construction.limit)
    assert errors[-1].max() < 1e-3
    assert distance(construction)[1] > 1e-2


def test_without_hidden_layers_there_is_no_limit():
    construction = NetworkDescent(hidden=(), activation="tanh")
    assert construction.limit is None
    assert distance(construction)[0] < 1e-12


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("hidden", [(), (3,), (3, 4, 2)])
def test_a_step_has_two_blocks_per_layer_of_the_network(activation: str, hidden: tuple[int, ...]):
    net = NetworkDescent.model_validate({"activation": activation, "hidden": hidden}).net(Prompt(5, 3, 1))
    layers = len(hidden) + 1
    assert (len(net.loop.stack.blocks), len(net.post.blocks)) == (2 * layers, layers)


def test_the_last_token_is_not_trained_on():
    tokens = pair_tokens(*random_linear_regression(torch.Generator().manual_seed(0), dim=3, pairs=9))
    net, changed = NetworkDescent().net(Prompt(10, 4, 1)), tokens.clone()
    changed[:, -1] += 5
    torch.testing.assert_close(net(tokens, 3)[:, :, :-1], net(changed, 3)[:, :, :-1], rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("prompt", "condition"),
    [
        (Prompt(9, 2, 2), "tokens that hold x's coordinates and then y's"),
        (Prompt(1, 3, 1), "at least one pair"),
    ],
)
def test_unsuitable_prompts_raise(prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction network_descent requires {condition}"):
        NetworkDescent().net(prompt)
