"""Gradient descent on a network in context, held against torch's own."""

import numpy as np
import pytest
import torch
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.network_descent import NetworkDescent

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "softplus": torch.nn.functional.softplus}


def problem(dim: int, targets: int, pairs: int, prompts: int = 2) -> Tensor:
    """x_i and y_i, and a last x."""
    rng = torch.Generator().manual_seed(100 * dim + pairs)
    x = torch.randn(prompts, pairs + 1, dim, generator=rng, dtype=torch.float64)
    y = torch.sin(x @ torch.randn(prompts, dim, targets, generator=rng, dtype=torch.float64))
    y[:, -1] = 0
    return torch.cat([x, y], -1)


def trained(made: NetworkDescent, prompt: Prompt, tokens: Tensor, steps: int) -> Tensor:
    """What the network says of every token after every step, by autograd."""
    dim, outputs = prompt.dim_in - prompt.dim_out, []
    for x, y in zip(tokens[..., :dim], tokens[..., dim:], strict=True):
        weights = [w.clone().requires_grad_() for w in made.initial(prompt)]
        biases = [torch.zeros(len(w), dtype=torch.float64, requires_grad=True) for w in weights]
        found = []
        for _ in range(steps):
            off = network(made, x[:-1], weights, biases) - y[:-1]
            gradients = torch.autograd.grad(off.square().sum() / (2 * len(off)), weights + biases)
            with torch.no_grad():
                for parameter, gradient in zip(weights + biases, gradients, strict=True):
                    parameter -= made.rate * gradient
                found.append(network(made, x, weights, biases))
        outputs.append(torch.stack(found))
    return torch.stack(outputs, 1)


def network(made: NetworkDescent, x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True), 1):
        x = x @ weight.T + bias
        x = ACTIVATIONS[made.activation](x) if layer < len(weights) else x
    return x


def distance(
    made: NetworkDescent, dim: int = 3, targets: int = 1, pairs: int = 12, steps: int = 10
) -> tuple[float, float]:
    """To descent by autograd, and how far descent went."""
    prompt, tokens = Prompt(pairs + 1, dim + targets, targets), problem(dim, targets, pairs)
    expected = trained(made, prompt, tokens, steps)
    found = made.net(prompt)(tokens, steps)
    return (found - expected).abs().max().item(), (expected[-1] - expected[0]).abs().max().item()


@pytest.mark.parametrize("attention", ["linear", "relu"])
@pytest.mark.parametrize(
    ("hidden", "dim", "targets", "pairs"),
    [((), 3, 1, 8), ((5,), 2, 1, 10), ((4, 6), 3, 2, 12), ((5, 2, 4), 1, 1, 6), ((3,), 2, 4, 1)],
)
def test_loops_are_steps_of_descent_on_relu_networks(
    attention: str, hidden: tuple[int, ...], dim: int, targets: int, pairs: int
):
    made = NetworkDescent.model_validate(
        {"attention": attention, "hidden": hidden, "gain": 1.4, "rate": 0.05}
    )
    off, went = distance(made, dim, targets, pairs, steps=50)
    assert off < 1e-12
    assert went > 1e-2, "a network that learns nothing would test nothing"


def test_the_threshold_matters_only_where_an_activation_is_below_it():
    made = [NetworkDescent(hidden=(6,), gain=1.4, threshold=t) for t in (1.0, 0.1, 1e-6, 1e-8)]
    errors = [distance(each, pairs=30, steps=20)[0] for each in made]
    assert errors[0] > errors[1] > 1e-5
    assert max(errors[2:]) < 1e-12


@pytest.mark.parametrize("activation", ["tanh", "softplus"])
@pytest.mark.parametrize("hidden", [(4,), (4, 3)])
def test_smooth_activations_near_descent_with_the_square_of_their_pieces(
    activation: str, hidden: tuple[int, ...]
):
    pieces, errors = np.array([64, 128, 256, 512]), []
    for each in pieces:
        settings = {"hidden": hidden, "activation": activation, "pieces": int(each)}
        made = NetworkDescent.model_validate(settings)
        off, went = distance(made)
        errors.append(off)
        assert went > 1e-2
    assert made.order is not None
    assert np.polyfit(np.log(pieces), np.log(errors), 1)[0] == pytest.approx(-made.order, abs=0.3)
    assert errors[-1] < 1e-3


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("hidden", [(), (3,), (3, 4, 2)])
def test_a_step_is_two_blocks_a_layer_of_the_network(activation: str, hidden: tuple[int, ...]):
    net = NetworkDescent.model_validate({"activation": activation, "hidden": hidden}).net(Prompt(5, 3, 1))
    layers = len(hidden) + 1
    assert (len(net.loop.stack.blocks), len(net.post.blocks)) == (2 * layers, layers)


def test_the_last_token_is_not_trained_on():
    made, tokens = NetworkDescent(), problem(3, 1, 9)
    net, changed = made.net(Prompt(10, 4, 1)), tokens.clone()
    changed[:, -1] += 5
    torch.testing.assert_close(net(tokens, 3)[:, :, :-1], net(changed, 3)[:, :, :-1], rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("prompt", "condition"),
    [(Prompt(9, 2, 2), "tokens of x's coordinates and then y's"), (Prompt(1, 3, 1), "a pair or more")],
)
def test_what_does_not_fit_is_refused(prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction network_descent is for {condition}"):
        NetworkDescent().net(prompt)
