"""Gradient descent on networks in a decoder, compared with the solver, and as the start of a training."""

from typing import Any

import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.evaluate import Evaluation, evaluate, validation_errors
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task
from loopscale.theory.constructions.base import Construction
from loopscale.theory.constructions.causal_network_descent import CausalNetworkDescent
from loopscale.training.loop import Learner, train
from loopscale.training.trial import Trial

TASK = {"kind": "network_regression", "dim": 2, "points": 5, "layers": 2, "width": 4}
START = {"kind": "causal_network_descent", "gain": 1.5, "rate": 0.05, "bound": 50, "steepness": 100}


def started(**training: Any) -> Trial:
    """A trial that starts from the construction."""
    architecture = Construction.model_validate(START).model(Task.model_validate(TASK).prompt)
    training = {"start": START, "loops": 4, "window": 4, "batch_size": 16, "clip": 1.0} | training
    return Trial.model_validate({"task": TASK, "model": architecture.model_dump(), "training": training})


@pytest.mark.parametrize(
    ("hidden", "dim", "points", "weights_seed"),
    [((4,), 2, 8, 0), ((4,), 1, 3, 1), ((5,), 3, 6, 2), ((4, 4), 2, 5, 0)],
)
def test_at_every_query_the_net_trains_the_network_of_the_solver(
    hidden: tuple[int, ...], dim: int, points: int, weights_seed: int
):
    layers, width = len(hidden) + 1, hidden[0]
    task = Task.model_validate(TASK | {"dim": dim, "points": points, "layers": layers, "gain": 1.2})
    batch = task.sample(6, stream("networks"))
    shared = {"rate": 0.02, "weights_seed": weights_seed}
    of_net = {"kind": "construction", "name": "causal_network_descent", "hidden": hidden, "gain": 1.2}
    net = Solver.model_validate(of_net | shared)
    solver = Solver.model_validate({"kind": "trained_network", "width": width} | shared)
    found, expected = net.predict(batch, 15), solver.predict(batch, 15)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)
    assert not found[:, :, 0].any(), "before the first pair nothing is trained"
    change = (expected[-1] - expected[0]).abs().amax((0, 2))
    assert (change[1:] > 1e-3).all(), "networks that learn nothing would test nothing"


@pytest.mark.parametrize("setting", [{"bound": 0.05}, {"steepness": 0.1}])
def test_a_too_small_bound_or_steepness_changes_the_predictions(setting: dict[str, float]):
    tokens = torch.randn(4, 10, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact, coarse = (
        CausalNetworkDescent.model_validate(settings).net(Prompt(10, 3, 1)) for settings in ({}, setting)
    )
    assert (exact(tokens, 5) - coarse(tokens, 5)).abs().max() > 1e-3


@pytest.mark.parametrize("hidden", [(), (3,), (3, 4, 2)])
def test_a_step_has_two_layers_per_layer_of_the_network(hidden: tuple[int, ...]):
    design = CausalNetworkDescent.model_validate({"hidden": hidden}).design(Prompt(6, 3, 1))
    layers = len(hidden) + 1
    assert (len(design.before), len(design.loop), len(design.after)) == (1, 2 * layers, layers)


def test_prompts_with_several_outputs_raise():
    with pytest.raises(ValueError, match="causal_network_descent requires tokens that hold x's coordinates"):
        CausalNetworkDescent.model_validate({}).net(Prompt(6, 4, 2))


def test_before_the_first_step_a_trial_has_the_errors_of_the_algorithm():
    trial = started()
    solver = Solver.model_validate({"kind": "trained_network", "rate": 0.05})
    settings = Evaluation(loops=8, prompts=64)
    found, expected = (evaluate(predictor, trial.task, settings) for predictor in (trial.net(), solver))
    torch.testing.assert_close(torch.tensor(found.error), torch.tensor(expected.error), rtol=1e-4, atol=0)
    assert expected.error[-1].mean() < 0.95 * expected.error[0].mean(), "the algorithm gains by its steps"


def test_training_from_the_algorithm_lowers_its_error():
    trial = started(steps=8, lr=1e-6, eval_every=8)
    before = validation_errors(Learner(trial).net, trial.task, 4).mean().item()
    (report,) = train(trial)
    assert report.metrics["error"] < before - 1e-3


def test_a_high_rate_of_training_destroys_the_algorithm():
    trial = started(steps=3, lr=1e-4, eval_every=3)
    before = validation_errors(Learner(trial).net, trial.task, 4).mean().item()
    (report,) = train(trial)
    assert report.metrics["error"] > before + 0.05
