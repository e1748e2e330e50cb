"""A training step never waits for the device: no value is read, and only the prompts are copied to the device."""

from typing import Any

import pytest
import torch

from loopscale.models.base import Model
from loopscale.tasks.base import Task
from loopscale.training.loop import Learner, train
from loopscale.training.prompts import drawn_there
from loopscale.training.trial import Trial
from tests.pretend_device import Generator, events, pretend_device

SMALL = {"loops": 3, "window": 2, "batch_size": 4, "steps": 8, "eval_every": 4}
PROMPTS = 2
"""Copies to the device in a step: tokens and targets."""
SENTENCES = 4
"""The same with a vocabulary: also the weights and the numbers of the queries with a weight."""

LINE = {"kind": "linear_regression", "dim": 2, "points": 5}
TASKS: list[dict[str, Any]] = [
    {"kind": kind} | ({"dim": 4, "points": 6} if "dim" in choice.model_fields else {}) | settings
    for kind, choice in Task.choices().items()
    for settings in (
        [{"format": name} for name in ("decoder", "encoder")] if "format" in choice.model_fields else [{}]
    )
] + [
    {"kind": "clustering", "components": 7, "dim": 6, "points": 8},
    {"kind": "mixture_regression", "target": "components", "components": 3, "dim": 3, "points": 5},
    {"kind": "mixture_regression", "target": "components", "symmetric": True, "dim": 3, "points": 5},
    {"kind": "sparse_recovery", "matrices": "fixed", "query": "drawn", "dim": 4, "points": 5},
    {"kind": "pca", "auxiliary": "start", "data": "wine", "dim": 4, "points": 6},
]
OBJECTIVES: list[dict[str, Any]] = [
    {"truncate": False},
    {"clip": 1.0},
    {"schedule": "cosine", "warmup": 2},
    {"precision": "float64"},
    {"graph": "auto"},
    {"recompute": True},
    {"graph": "auto", "clip": 1.0, "schedule": "cosine", "warmup": 2, "truncate": False},
    {"curriculum": {"dim": 2, "points": 3, "every": 100}},
]
"""Without bf16, because autocast knows no such device."""


def trial(task: dict[str, Any], model: str = "", training: dict[str, Any] | None = None) -> Trial:
    whole = Task.model_validate(task).whole
    choice = Model.model_validate({"kind": model or ("encoder" if whole else "looped")})
    if choice.looks_ahead and not whole:
        task = task | {"format": "encoder"}
    fields = type(choice).model_fields
    small = {name: value for name, value in {"width": 8, "heads": 2}.items() if name in fields}
    return Trial.model_validate(
        {"task": task, "model": {"kind": choice.kind} | small, "training": SMALL | (training or {})}
    )


def sent(trial: Trial) -> int:
    return SENTENCES if trial.task.prompt.vocabulary else PROMPTS


def named(settings: dict[str, Any]) -> str:
    return " ".join(f"{value}" for value in settings.values())


BY_TASK = [pytest.param(trial(task), id=named(task)) for task in TASKS]
BY_MODEL = [pytest.param(trial(LINE, model), id=model) for model in Model.choices()]
BY_OBJECTIVE = [pytest.param(trial(LINE, training=settings), id=str(settings)) for settings in OBJECTIVES]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("trial", BY_TASK + BY_MODEL + BY_OBJECTIVE)
def test_a_step_copies_only_the_prompts_and_computes_the_loss_of_the_cpu(trial: Trial):
    with pretend_device() as device:
        there = Learner(trial, device)
        # The first steps make the constants of the task on the device. The lengths of two batches of sentences differ.
        losses = [there.learn(1), there.learn(2)]
        events.clear()
        losses.append(there.learn(2))
        assert events == {"send": sent(trial)}
        on_device = [*losses, *there.net.parameters(), *(weight.grad for weight in there.net.parameters())]
        assert all(tensor is not None and tensor.device.type == device for tensor in on_device)
        losses = [loss.cpu() for loss in losses]
    here = Learner(trial)
    torch.testing.assert_close(losses, [here.learn(step) for step in (1, 2, 2)], rtol=1e-4, atol=1e-6)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("trial", BY_OBJECTIVE + BY_MODEL + BY_TASK)
def test_a_report_reads_from_the_device_once(trial: Trial):
    with pretend_device() as device:
        stream = train(trial, device=device)
        next(stream)
        events.clear()
        next(stream)
        assert events == {"send": 4 * sent(trial), "read": 1}


@pytest.mark.parametrize("task", [task for task in TASKS if "data" not in task and "dim" in task], ids=named)
def test_prompts_are_drawn_on_the_device_without_the_host(task: dict[str, Any]):
    """The seed decides the prompts, and the queries are those of the host."""
    posed = Task.model_validate(task)
    with pretend_device():
        for _ in range(2):  # the first draw makes the constants of the task
            events.clear()
            found = drawn_there(posed, 4, Generator().manual_seed(1), torch.float64)
        assert not events
        assert found.tokens.device == found.targets.device == found.queries.device == Generator().device
        tokens, targets, queries = (part.cpu() for part in (found.tokens, found.targets, found.queries))
    expected = posed.sample(4, torch.Generator().manual_seed(1))
    assert torch.equal(queries, expected.queries)
    assert found.asked == expected.asked
    torch.testing.assert_close(tokens, expected.tokens.double())
    torch.testing.assert_close(targets, expected.targets.double())


def test_the_device_refuses_tensors_and_generators_of_the_cpu():
    with pretend_device() as device:
        with pytest.raises(AssertionError, match="a tensor of the CPU"):
            torch.ones(3, device=device) + torch.ones(3)
        with pytest.raises(AssertionError, match="another device"):
            torch.randn(3, device=device, generator=torch.Generator())
        with pytest.raises(AssertionError, match="another device"):
            torch.randn(3, generator=Generator().manual_seed(3))


def test_the_device_counts_reads_and_copies():
    with pretend_device() as device:
        values = torch.ones(3, device=device)
        counted = {
            "item": lambda: values.sum().item(),
            "branch": lambda: bool(values.isfinite().all()),
            "cpu": lambda: values.cpu(),
            "sizes": lambda: values.nonzero(),
            "mask": lambda: values[values > 0],
            "tensor": lambda: torch.tensor([0, 1], device=device),
            "list": lambda: values[[0, 2]],
            "moved": lambda: torch.zeros(3).to(device),
            "filled": lambda: values.copy_(torch.zeros(3)),
        }
        found = {}
        for name, act in counted.items():
            events.clear()
            act()
            found[name] = dict(events)
        kernels = torch.arange(3, device=device) + 1
        assert kernels.device.type == device
    sends = ("tensor", "list", "moved", "filled")
    assert found == {name: {"send": 1} if name in sends else {"read": 1} for name in counted}
