"""The contract of the costs of every model: counted work, weights and memory equal the measured values."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from loopscale.contracts.members import under_test
from loopscale.core.seeds import stream
from loopscale.models.base import Model
from loopscale.training import cost
from loopscale.training.loop import Learner, objective
from loopscale.training.trial import Trial

EVERY = pytest.mark.parametrize("kind", under_test(Model))


def small_trial(kind: str, width: int = 8, **training: object) -> Trial:
    """A small trial of a model on linear regression."""
    fields = Model.choices()[kind].model_fields
    small = {name: value for name, value in {"width": width, "heads": 2}.items() if name in fields}
    looks_ahead = Model.model_validate({"kind": kind} | small).looks_ahead
    task = {"kind": "linear_regression", "dim": 10, "points": 30} | (
        {"format": "encoder"} if looks_ahead else {}
    )
    steps = {"steps": 4, "batch_size": 8, "loops": 3, "window": 2, "truncate": False}
    return Trial.model_validate({"task": task, "model": {"kind": kind} | small, "training": steps | training})


@EVERY
def test_counted_flops_equal_the_flops_of_torch(kind: str):
    trial = small_trial(kind)
    batch = trial.task.sample(8, stream(0)).to("meta")
    with FlopCounterMode(display=False) as counter:
        objective(cost._on_meta(trial), trial, batch).backward()
    assert cost.count(trial, cost._on_meta(trial), batch).step.flops == counter.get_total_flops()


@EVERY
def test_the_number_of_parameters_counts_the_weights_with_a_gradient(kind: str):
    learner = Learner(small_trial(kind))
    learner.learn(1)
    trained = sum(weight.numel() for weight in learner.net.parameters() if weight.grad is not None)
    assert cost.cost(small_trial(kind)).parameters == trained


@pytest.mark.slow
@EVERY
def test_memory_is_within_a_factor_of_two_of_what_torch_allocates(kind: str):
    """If this fails, the model's `kept_factor` is wrong."""
    trial = small_trial(kind, width=64, loops=8, window=5, batch_size=64)
    measured = allocated(trial)
    assert measured / 2 < cost.cost(trial).memory_bytes < measured * 2


def allocated(trial: Trial) -> int:
    """Bytes at the peak of a step: the profiler's sum of live allocations, with weights, Adam and batch."""
    learner = Learner(trial)
    learner.learn(1)
    weights = sum(weight.numel() * 4 for weight in learner.net.parameters())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        learner.learn(2)
    live = peak = 0
    assert profiler.profiler
    for event in profiler.profiler.kineto_results.events():  # pyright: ignore
        if event.name() == "[memory]":
            live += event.nbytes()  # pyright: ignore[reportAttributeAccessIssue]
            peak = max(peak, live)
    return peak + 3 * weights


@EVERY
def test_training_for_some_steps_gives_finite_weights_and_the_same_weights_again(kind: str):
    ends = []
    for _ in range(2):
        learner = Learner(small_trial(kind))
        for step in range(1, 5):
            learner.learn(step)
        ends.append([weight.detach().clone() for weight in learner.net.parameters()])
    assert all(weight.isfinite().all() for weight in ends[0])
    assert all(torch.equal(once, again) for once, again in zip(*ends, strict=True))
