"""Training that starts from the weights of a construction."""

import json

import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.models.base import Model
from loopscale.solvers.regression import GradientDescent
from loopscale.tasks.base import Task
from loopscale.theory.constructions.base import Construction
from loopscale.training.loop import train
from loopscale.training.trial import Trial

TASK = Task.model_validate({"kind": "linear_regression", "dim": 3, "points": 8})
START = {"kind": "causal_gradient_descent", "scale": 0.05, "rate": 0.2}


def trial(**training: object) -> Trial:
    model = Construction.model_validate(START).model(TASK.prompt)
    looped = {"loops": 10, "window": 10, "steps": 20, "eval_every": 10, "start": START}
    return Trial.model_validate({"task": TASK, "model": model, "training": looped | training})


def test_before_the_first_step_the_net_runs_the_algorithm():
    batch = TASK.sample(4, stream(0)).to("cpu", torch.float64)
    net = trial().net().double()
    expected = GradientDescent(rate=0.2).predict(batch, 10)
    torch.testing.assert_close(net.predict(batch, 10), expected, atol=2e-3, rtol=0)


def test_every_weight_is_trained_and_a_tiny_step_stays_near_the_algorithm():
    started = trial(lr=1e-9)
    assert all(weight.requires_grad for weight in started.net().parameters())
    *_, last = train(started)
    batch = TASK.sample(64, stream("validate")).to("cpu", torch.float64)
    errors = (
        GradientDescent(rate=0.2).predict(batch, 10)[-1] - batch.targets
    ).square().mean() / TASK.variance
    assert last.metrics["error"] == pytest.approx(errors.item(), rel=0.3)


def test_a_start_changes_the_key_and_its_absence_does_not():
    model = Construction.model_validate(START).model(TASK.prompt)
    random = Trial.model_validate({"task": TASK, "model": model, "training": {"loops": 10, "window": 10}})
    assert "start" not in random.settings["training"]
    assert trial().key != trial(start=START | {"rate": 0.1}).key
    text = json.dumps(trial().model_dump(mode="json"))
    assert Trial.model_validate_json(text) == trial()


@pytest.mark.parametrize(
    ("model", "start", "message"),
    [
        (
            {"kind": "looped"},
            START,
            r"differs from this model; write model: \{kind: algoformer, width: 24",
        ),
        (
            {"kind": "looped"},
            {"kind": "newton"},
            "does not answer every query of a prompt; write caus",
        ),
        ({"kind": "looped"}, {"kind": "causal"}, "no construction 'causal'; there is "),
    ],
)
def test_an_invalid_start_is_refused_with_a_remedy(model: dict, start: dict, message: str):
    with pytest.raises(ValueError, match=message):
        Trial.model_validate({"task": TASK, "model": model, "training": {"start": start}})


def test_the_settings_in_the_error_message_give_the_net_of_the_construction():
    start = Construction.model_validate(START)
    assert start.net(Prompt(16, 4, 1)).state_dict().keys() == trial().net().state_dict().keys()
    assert Model.model_validate(start.model(Prompt(16, 4, 1)).model_dump()) == start.model(Prompt(16, 4, 1))
