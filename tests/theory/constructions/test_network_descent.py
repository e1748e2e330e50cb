"""Gradient descent on a network in context, compared with autograd."""

from typing import Any

import pytest
import torch
from scipy.optimize import lsq_linear

from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.tasks.network_regression import NetworkRegression
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
        construction.box,
    )
    outputs = construction.net(prompt)(pair_tokens(xs, ys.sin()), steps)
    return (outputs - expected).abs().max().item(), (expected[-1] - expected[0]).abs().max().item()


@pytest.mark.slow
def test_descent_on_a_network_without_hidden_layers_solves_least_squares_with_an_intercept():
    xs, ys = random_linear_regression(torch.Generator().manual_seed(0), dim=3, pairs=12, prompts=2)
    ones = torch.ones(2, 13, 1, dtype=torch.float64)
    design = torch.cat([xs, ones], -1)
    solved = design @ torch.linalg.lstsq(design[:, :-1], ys.sin()[:, :-1]).solution
    outputs = trained_outputs(
        [torch.zeros(1, 3, dtype=torch.float64)], xs, ys.sin(), torch.relu, rate=0.3, steps=2000
    )
    torch.testing.assert_close(outputs[-1], solved, rtol=0, atol=1e-10)


@pytest.mark.quick_cases(3)
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


def test_the_threshold_only_affects_activations_below_the_threshold():
    constructions = [NetworkDescent(hidden=(6,), gain=1.4, threshold=t) for t in (1.0, 0.1, 1e-6, 1e-8)]
    errors = [distance(construction, pairs=30, steps=20)[0] for construction in constructions]
    assert errors[0] > errors[1] > 1e-5
    assert max(errors[2:]) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["tanh", "softplus"])
@pytest.mark.parametrize("hidden", [(4,), (4, 3)])
def test_error_of_smooth_activations_has_order_two(activation: str, hidden: tuple[int, ...]):
    construction = NetworkDescent.model_validate({"hidden": hidden, "activation": activation})
    assert construction.limit is not None
    errors = approach(construction, construction.limit)
    assert order(construction.limit, errors).agrees(construction.limit)
    assert errors[-1].max() < 1e-3
    assert distance(construction)[1] > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
@pytest.mark.parametrize("expansion", [1, 2, 4])
def test_error_of_softmax_attention_has_the_order_of_the_expansion(hidden: tuple[int, ...], expansion: int):
    construction = NetworkDescent.model_validate(
        {"hidden": hidden, "attention": "softmax", "expansion": expansion, "gain": 1.4}
    )
    assert construction.limit is not None
    assert construction.limit.order == expansion
    assert order(construction.limit, approach(construction, construction.limit)).agrees(construction.limit)
    error, change = distance(construction)
    assert error < (1e-2 if expansion == 1 else 1e-6)
    assert change > 1e-2


@pytest.mark.parametrize("attention", ["linear", "relu"])
@pytest.mark.parametrize(("hidden", "dim", "targets"), [((), 3, 1), ((5,), 2, 1), ((4, 6), 3, 2)])
def test_every_step_ends_with_the_projection_onto_the_box(attention, hidden, dim: int, targets: int):
    free = NetworkDescent.model_validate({"attention": attention, "hidden": hidden, "gain": 0.5, "rate": 0.3})
    projected = free.model_copy(update={"box": 0.3})
    assert distance(projected, dim, targets, steps=30)[0] < 1e-12
    prompt = Prompt(13, dim + targets, targets)
    xs, ys = random_linear_regression(torch.Generator().manual_seed(0), dim, 12, targets, prompts=2)
    tokens = pair_tokens(xs, ys.sin())
    difference = (free.net(prompt)(tokens, 30) - projected.net(prompt)(tokens, 30)).abs().max()
    assert difference > 1e-2, "a box that no weight leaves would test nothing"


@pytest.mark.slow
def test_projected_descent_without_hidden_layers_solves_least_squares_in_the_box():
    xs, ys = random_linear_regression(torch.Generator().manual_seed(0), dim=2, pairs=12, prompts=1)
    zeros = [torch.zeros(1, 2, dtype=torch.float64)]
    outputs = trained_outputs(zeros, xs, ys, torch.relu, rate=0.3, steps=3000, box=0.4)[-1, 0, :, 0]
    design = torch.cat([xs[0], torch.ones(13, 1, dtype=torch.float64)], -1).numpy()
    solved = lsq_linear(design[:-1], ys[0, :-1, 0].numpy(), bounds=(-0.4, 0.4), tol=1e-14)
    assert solved.active_mask.any(), "the box binds"
    assert outputs.numpy() == pytest.approx(design @ solved.x, abs=1e-8)


def test_a_step_of_softmax_attention_has_four_layers_for_one_hidden_layer_as_in_theorem_6():
    for hidden, layers in (((3,), 4), ((3, 4), 6)):
        construction = NetworkDescent(hidden=hidden, attention="softmax")
        assert len(construction.net(Prompt(5, 3, 1)).loop.stack.blocks) == layers
        assert construction.stated(Prompt(5, 3, 1)).layers == "4 per step"


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


NETWORKS = {"kind": "network_regression", "dim": 2, "points": 5, "width": 4}
BASELINE = {"kind": "construction", "name": "network_descent", "start": "trained_network", "biases": False}


@pytest.mark.parametrize(
    ("layers", "activation", "weights_seed"),
    [(2, "relu", 0), (3, "relu", 1), pytest.param(2, "tanh", 0, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("form", ["decoder", "encoder"])
def test_as_a_baseline_the_net_trains_the_networks_of_the_solver(
    layers: int, activation: str, weights_seed: int, form: str
):
    """At every query, from the pairs before it. Smooth activations are piecewise linear in the net."""
    task = NetworkRegression.model_validate(
        NETWORKS | {"layers": layers, "activation": activation, "format": form}
    )
    batch = task.sample(4, stream("networks"))
    shared = {"rate": 0.1, "weights_seed": weights_seed}
    settings = {"hidden": [4] * (layers - 1), "activation": activation, "gain": 1.5, "box": 10.0}
    net = Solver.model_validate(BASELINE | settings | shared)
    solver = Solver.model_validate({"kind": "trained_network", "optimiser": "gradient_descent"} | shared)
    assert net.accepts(batch.problem)
    found, expected = net.predict(batch, 20), solver.predict(batch, 20)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 if activation == "relu" else 1e-3)
    change = (expected[-1] - expected[0]).abs().amax((0, 2))
    assert (change[-(task.points - 1) :] > 1e-4).all()
    assert change.max() > 0.1, "networks that learn nothing would test nothing"


@pytest.mark.parametrize("setting", [{"start": "normal"}, {"biases": True}])
def test_another_start_and_biases_give_other_predictions(setting: dict[str, Any]):
    batch = NetworkRegression.model_validate(NETWORKS).sample(4, stream("networks"))
    settings = BASELINE | {"hidden": [4, 4], "gain": 1.5}
    nets = [Solver.model_validate(settings | changed) for changed in ({}, setting)]
    found, other = (net.predict(batch, 8) for net in nets)
    assert not found[:, :, 0].any()
    assert not other[:, :, 0].any(), "before the first pair nothing is trained"
    assert ((found - other)[-1, :, 1:].abs().amax((0, 2)) > 1e-3).all()


def test_without_biases_the_example_is_that_of_a_network_without_biases():
    construction = NetworkDescent.model_validate({"biases": False})
    example = construction.example(torch.Generator().manual_seed(0))
    tokens = example.tokens
    net = construction.net(Prompt(tokens.shape[1], tokens.shape[2], 1))
    torch.testing.assert_close(net(tokens, 10), example.expected, rtol=0, atol=1e-12)
