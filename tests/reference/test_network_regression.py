"""Random networks and their solvers beside simulations, scikit-learn and torch's own optimisers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.solvers.network_regression import LEAST_NOISE, TrainedNetwork, network_kernel
from loopscale.tasks.base import Task
from loopscale.tasks.network_regression import ACTIVATIONS, Activation, NetworkRegression
from loopscale.training.trial import Trial

EVERY_ACTIVATION = pytest.mark.parametrize("activation", ACTIVATIONS)


def network_task(**settings: Any) -> NetworkRegression:
    task = Task.model_validate({"kind": "network_regression", "points": 12, **settings})
    assert isinstance(task, NetworkRegression)
    return task


def wide_outputs(xs: torch.Tensor, layers: int, activation: Activation, gain: float, networks: int):
    """Outputs [networks, points] of random networks with 256 neurons in each hidden layer."""
    rng, states = stream("wide networks"), xs.expand(networks, -1, -1)
    for layer in range(layers):
        size = 1 if layer == layers - 1 else 256
        weights = torch.randn(networks, states.shape[-1], size, generator=rng)
        states = gain / states.shape[-1] ** 0.5 * states @ weights
        states = states if size == 1 else ACTIVATIONS[activation](states)
    return states[..., 0]


@pytest.mark.slow
@EVERY_ACTIVATION
@pytest.mark.parametrize("layers", [2, 4])
def test_the_kernel_is_the_covariance_of_wide_networks(activation: Activation, layers: int):
    xs = torch.randn(4, 3, generator=stream("inputs"))
    outputs = wide_outputs(xs, layers, activation, 1.4, 2000).double()
    products = outputs[:, :, None] * outputs[:, None, :]
    kernel = network_kernel(xs.double(), layers, activation, 1.4)
    # The kernel of finite width differs by some 1/256 of its size per layer.
    scale = kernel.diagonal().sqrt()
    tolerance = 4 * products.std(0) / 2000**0.5 + 0.02 * scale[:, None] * scale
    assert ((products.mean(0) - kernel).abs() < tolerance).all()


@EVERY_ACTIVATION
def test_the_kernel_is_positive_definite_and_zero_inputs_are_finite(activation: Activation):
    xs = torch.randn(30, 2, generator=stream("inputs"), dtype=torch.float64)
    xs[3] = 0
    kernel = network_kernel(xs, 3, activation, 1.5)
    assert kernel.isfinite().all()
    assert torch.linalg.eigvalsh(kernel).min() > -1e-10 * kernel.diagonal().max()


@EVERY_ACTIVATION
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_kernel_ridge_equals_scikit_learn_on_every_prefix(activation: Activation, noise: float):
    task = network_task(activation=activation, noise=noise)
    batch = task.sample(2, stream("prompts"))
    guesses = Solver.model_validate({"kind": "kernel_ridge"}).predict(batch, 1)[0, :, :, 0]
    for prompt in range(2):
        xs = batch.problem.xs[prompt].double()
        kernel = network_kernel(xs, task.layers, activation, task.gain).numpy()
        many = torch.randn(256, task.dim, generator=stream("reference inputs of networks")).double()
        kernel = kernel / network_kernel(many, task.layers, activation, task.gain).diagonal().mean().item()
        for seen in (1, 5, 11):
            model = SklearnKernelRidge(alpha=max(noise**2, LEAST_NOISE), kernel="precomputed")
            model.fit(kernel[:seen, :seen], batch.problem.ys[prompt, :seen].double().numpy())
            expected = float(model.predict(kernel[seen : seen + 1, :seen])[0])
            assert float(guesses[prompt, seen]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("optimiser", ["gradient_descent", "adam"])
@EVERY_ACTIVATION
def test_trained_networks_equal_training_by_torch(optimiser: str, activation: Activation):
    task = network_task(activation=activation, layers=3, width=6)
    batch = task.sample(2, stream("prompts"))
    solver = TrainedNetwork.model_validate({"optimiser": optimiser, "rate": 0.02, "weights_seed": 3})
    guesses = solver.predict(batch, 6)
    prompt, seen = 1, 7
    assert guesses.shape == (6, 2, 12, 1)
    layers = [torch.nn.Linear(a, b, bias=False).double() for a, b in ((5, 6), (6, 6), (6, 1))]
    rng = stream(3, "first weights of a trained network")
    for number, layer in enumerate(layers):
        drawn = torch.randn(layer.in_features, layer.out_features, generator=rng, dtype=torch.float64)
        first = drawn.T * task.gain / layer.in_features**0.5 * (number < 2)
        layer.weight.data = first.contiguous()

    def outputs(xs: torch.Tensor) -> torch.Tensor:
        for layer in layers[:-1]:
            xs = ACTIVATIONS[activation](layer(xs))
        return layers[-1](xs)[..., 0]

    weights = [layer.weight for layer in layers]
    choices = {"gradient_descent": torch.optim.SGD, "adam": torch.optim.Adam}
    torch_optimiser = choices[optimiser](weights, lr=0.02)
    xs, ys = batch.problem.xs[prompt].double(), batch.problem.ys[prompt].double()
    for step in range(6):
        torch_optimiser.zero_grad()
        ((outputs(xs[:seen]) - ys[:seen]).square().mean() / 2).backward()
        torch_optimiser.step()
        expected = outputs(xs[seen]).item()
        assert guesses[step, prompt, seen, 0].item() == pytest.approx(expected, rel=1e-7, abs=1e-9)


def test_early_stopping_answers_with_the_step_of_least_held_out_error():
    task = network_task(points=10, width=8)
    batch = task.sample(3, stream("prompts"))
    solver = TrainedNetwork(optimiser="adam", rate=0.1, held_out=3)
    stopped = solver.predict(batch, 40)[..., 0]
    # The last query has seen nine pairs. A prompt of these pairs, whose query is a held-out x, gives its error.
    without = [_answers_at(batch, solver, place, 40) for place in (2, 5, 8)]
    target = batch.problem.ys.double()
    error = sum((without[n] - target[:, place]).square() for n, place in enumerate((2, 5, 8)))
    plain = _answers_at(batch, solver, 9, 40)
    for prompt in range(3):
        nothing = target[prompt, [2, 5, 8]].square().sum()
        candidates = [(float(nothing), 0.0)]
        for step in range(40):
            candidates.append((float(error[step, prompt]), float(plain[step, prompt])))
            expected = min(candidates, key=lambda pair: pair[0])[1]
            assert float(stopped[step, prompt, 9]) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def _answers_at(batch: Batch, solver: TrainedNetwork, place: int, steps: int) -> torch.Tensor:
    """The answers at the x of `place` by the networks that train on the pairs 0, 1, 3, 4, 6 and 7, without stopping."""
    used, problem = [0, 1, 3, 4, 6, 7], batch.problem
    order = torch.tensor([*used, place])
    smaller = replace(problem, xs=problem.xs[:, order], ys=problem.ys[:, order])
    plain = solver.model_copy(update={"held_out": None})
    return plain.predict(replace(batch, problem=smaller), steps)[:, :, -1, 0]


@EVERY_ACTIVATION
@pytest.mark.parametrize("layers", [2, 6])
def test_every_network_has_about_the_same_mean_square(activation: Activation, layers: int):
    targets = (
        network_task(activation=activation, layers=layers, points=200).sample(400, stream("prompts")).targets
    )
    sizes = targets.double().square().mean((1, 2))
    assert sizes.min() > 0.3
    assert sizes.max() < 4


def test_the_variance_agrees_with_fresh_networks():
    task = network_task(points=60, noise=0.5)
    targets = task.sample(4000, stream("fresh networks")).targets.double()
    sizes = targets.square().mean((1, 2))
    assert task.variance == pytest.approx(float(sizes.mean()), abs=4 * float(sizes.std()) / 4000**0.5 + 0.005)


def test_dead_networks_are_zero():
    """With one coordinate and six narrow layers some ReLU networks are 0 at all inputs."""
    task = network_task(dim=1, layers=6, width=4)
    targets = task.sample(2000, stream("prompts")).targets
    assert targets.isfinite().all()
    dead = (targets == 0).all(1).double().mean()
    assert 0 < dead < 0.5


@pytest.mark.slow
def test_the_kernel_of_the_right_depth_is_better_on_wide_networks():
    task = network_task(layers=2, width=256, points=16)
    batch = task.sample(400, stream("prompts"))
    errors = [
        task.error(
            Solver.model_validate({"kind": "kernel_ridge", "layers": layers}).predict(batch, 1)[0], batch
        )
        for layers in (2, 5)
    ]
    ahead = (errors[1] - errors[0]).mean(-1)
    assert float(ahead.mean()) > 3 * float(ahead.std()) / 400**0.5


def test_sizes_below_the_smallest_network_are_refused():
    for setting in ({"layers": 1}, {"width": 3}, {"activation": "sine"}, {"gain": 0}):
        with pytest.raises(ValueError, match=next(iter(setting))):
            network_task(**setting)
    assert np.isfinite(network_task(layers=2, width=4).variance)


def test_a_mixture_draws_every_number_of_layers_for_some_prompts():
    """Every network has a mean square of about 1, so a mixture has the variance of fresh prompts."""
    mixed, alone = network_task(layers=2, other_layers=[6], points=30), network_task(layers=2, points=30)
    batch = mixed.sample(2000, stream("prompts"))
    assert batch.problem.depths == (2, 6)
    assert alone.sample(2, stream("prompts")).problem.depths == (2,)
    sizes = batch.targets.double().square().mean((1, 2))
    assert mixed.variance == pytest.approx(
        float(sizes.mean()), abs=4 * float(sizes.std()) / 2000**0.5 + 0.005
    )
    again = mixed.sample(2000, stream("prompts"))
    assert torch.equal(batch.targets, again.targets)
    assert not torch.equal(batch.targets, alone.sample(2000, stream("prompts")).targets)


@pytest.mark.slow
def test_the_kernel_of_a_mixture_is_the_mean_of_its_kernels():
    """Networks of both depths are wide, so the prediction with the mean kernel is the best linear one."""
    task = network_task(layers=2, other_layers=[6], width=64, points=16)
    batch = task.sample(400, stream("prompts"))
    errors = {
        layers: task.error(
            Solver.model_validate({"kind": "kernel_ridge", "layers": layers}).predict(batch, 1)[0], batch
        ).mean()
        for layers in (None, 2, 6)
    }
    assert errors[None] < min(errors[2], errors[6])


def test_a_network_that_is_trained_has_the_most_layers_of_a_mixture():
    batch = network_task(layers=2, other_layers=[4], points=6).sample(3, stream("prompts"))
    mixed, deepest, other = (TrainedNetwork(layers=layers).predict(batch, 3) for layers in (None, 4, 2))
    assert torch.equal(mixed, deepest)
    assert not torch.equal(mixed, other)


def test_a_number_of_layers_stands_once_in_a_mixture():
    with pytest.raises(ValueError, match="3 layers stand twice in layers and other_layers"):
        network_task(layers=3, other_layers=[4, 3])
    with pytest.raises(ValueError, match="other_layers"):
        network_task(other_layers=[1])


def test_a_task_without_mixture_keeps_its_key():
    trial = {"model": {"kind": "looped"}, "task": {"kind": "network_regression"}}
    plain = Trial.model_validate(trial)
    assert "other_layers" not in plain.settings["task"]
    assert plain.key != Trial.model_validate(trial | {"task": trial["task"] | {"other_layers": [6]}}).key
