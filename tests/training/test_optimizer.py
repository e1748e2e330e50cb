"""Optimizers without the import of torch's compiler, in processes of their own, because a test imports the compiler."""

import subprocess
import sys

import pytest

from loopscale.optimizers.base import Optimizer

SETUP = """
import sys, torch
from loopscale.training.loop import Learner
from loopscale.training.trial import Trial
trial = Trial.model_validate({
    "task": {"kind": "linear_regression", "dim": 2, "points": 4},
    "model": {"kind": "looped", "width": 16, "heads": 1},
    "training": {"steps": 9, "loops": 2, "window": 1, "batch_size": 8, "clip": 1.0, "optimizer": sys.argv[1]},
})
learner = Learner(trial)
loss = learner.learn(1).item()
"""


EVERY = pytest.mark.parametrize("optimizer", Optimizer.choices())


def run(code: str, optimizer: str = "adam") -> str:
    command = [sys.executable, "-c", SETUP + code, optimizer]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.slow
@EVERY
def test_no_call_of_the_optimizer_imports_the_compiler(optimizer: str):
    code = """
again = Learner(trial)
again.restore(learner.state(1))
again.learn(2)
print("torch._dynamo" in sys.modules)
"""
    assert run(code, optimizer) == "False"


@pytest.mark.slow
@EVERY
def test_a_net_can_be_compiled_after_and_during_training(optimizer: str):
    code = """
compiled = torch.compile(learner.net, backend="eager")
tokens = trial.task.sample(3, torch.Generator()).tokens
assert torch.equal(compiled(tokens, 2), learner.net(tokens, 2))
counters = sys.modules["torch._dynamo"].utils.counters
learner.learn(2)
assert torch.equal(compiled(tokens, 2), learner.net(tokens, 2))
print(counters["frames"]["ok"] > 0)
"""
    assert run(code, optimizer) == "True"


@pytest.mark.slow
def test_a_fitted_guess_does_not_import_the_compiler():
    code = """
from loopscale.tasks.clustering import Clustering
assert Clustering(dim=3, points=8).fixed_guess.abs().sum() > 0
print("torch._dynamo" in sys.modules)
"""
    assert run(code) == "False"
