import gc
import threading
import time
from collections.abc import Generator

import pytest
import torch
from pydantic import ValidationError

from loopscale.contracts.members import gradable
from loopscale.tasks.base import Task
from loopscale.training.device import execution
from loopscale.training.loop import train
from loopscale.training.prompts import Prompts
from loopscale.training.trial import Training, Trial


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prompts")]


def drawn(
    trial: Trial, steps: list[int], ahead: bool, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    prompts = Prompts(trial, "cpu", dtype, ahead)
    batches = [prompts.take(step) for step in steps]
    assert len(threads()) == ahead
    prompts.close()
    assert not threads()
    assert all(batch.problem is None for batch in batches)
    return [part for batch in batches for part in (batch.tokens, batch.targets, batch.queries)]


@pytest.mark.parametrize("kind", Task.choices())
def test_a_thread_draws_the_same_prompts(kind: str):
    """Also after a jump, as of a resumed trial, and beyond the last step."""
    graded = gradable(Task.model_validate({"kind": kind}))
    task = {"kind": kind} | ({"dim": 4, "points": 6} if graded else {})
    curriculum = {"dim": 3, "points": 4, "every": 2} if graded else None
    trial = Trial.model_validate(
        {
            "task": task,
            "model": {"kind": "looped"},
            "training": {"steps": 6, "batch_size": 4, "curriculum": curriculum},
        }
    )
    for steps, dtype in (([1, 2, 3, 4, 5, 6, 7], torch.float32), ([3, 1, 2, 5], torch.float64)):
        for there, here in zip(
            drawn(trial, steps, True, dtype), drawn(trial, steps, False, dtype), strict=True
        ):
            assert there.dtype == here.dtype
            assert torch.equal(there, here)


def test_no_thread_outlives_a_training_that_ends_or_breaks_off(make):
    expected = [progress.metrics for progress in train(make())]
    for reports in (3, 1):
        stream = train(make())
        first = next(stream)
        learner = first.learner
        learner.prompts = Prompts(learner.trial, "cpu", learner.dtype, ahead=True)
        found = [
            first.metrics,
            *(progress.metrics for progress, _ in zip(stream, range(reports - 1), strict=False)),
        ]
        assert found == expected[:reports]
        if reports == 1:
            learner.learn(5)
            assert threads()
            assert isinstance(stream, Generator)
            with pytest.raises(ArithmeticError):
                stream.throw(ArithmeticError())
        else:
            assert next(stream, None) is None
        assert not threads()


@pytest.mark.slow
def test_no_thread_outlives_its_owner(make):
    prompts = Prompts(make(), "cpu", torch.float32, ahead=True)
    prompts.take(1)
    assert threads()
    del prompts
    gc.collect()
    deadline = time.monotonic() + 30
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not threads()


def test_an_error_of_the_thread_reaches_the_training(make):
    prompts = Prompts(make(batch_size=10**12), "cpu", torch.float32, ahead=True)
    with pytest.raises(RuntimeError, match="memory"):
        prompts.take(1)
    prompts.close()


def test_prompts_of_the_device_have_their_own_stream_key_and_record(make):
    host, there = make(), make(data="device")
    assert host.key == make(data="host").key != there.key
    assert there.settings["training"]["data"] == "device"
    assert "data" not in host.settings["training"]
    assert execution(there.training, "cpu") == "float32 on cpu, prompts drawn there"
    ours = [progress.metrics for progress in train(there)]
    assert ours == [progress.metrics for progress in train(there)]
    assert ours != [progress.metrics for progress in train(host)]
    start = next(train(there)).state()
    assert [progress.metrics for progress in train(there, start)] == ours[1:]


def test_rows_of_tables_cannot_be_drawn_on_a_device(make):
    task = {"kind": "pca", "dim": 4, "points": 20, "data": "wine"}
    with pytest.raises(ValidationError, match="rows of wine are on the host; write data: host"):
        Trial.model_validate({"task": task, "model": {"kind": "encoder"}, "training": {"data": "device"}})


@pytest.mark.parametrize("data", ["host", "device"])
def test_a_pool_repeats_its_batches_and_begins_as_a_training_without_pool(make, data: str):
    fresh, pooled = make(batch_size=4, data=data), make(batch_size=4, data=data, pool=12)
    of_fresh, of_pool = (
        [
            Prompts(trial, "cpu", torch.float32, ahead=False).take(step).tokens.numpy().tobytes()
            for step in range(1, 8)
        ]
        for trial in (fresh, pooled)
    )
    assert of_pool[:3] == of_fresh[:3]
    assert of_pool == of_pool[:3] * 2 + of_pool[:1]
    assert len(set(of_fresh)) == 7
    assert pooled.key != fresh.key
    assert "pool" not in fresh.settings["training"]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"pool": 100, "batch_size": 64}, "pool 100 is no multiple of batch_size 64; write 128"),
        ({"pool": 1, "batch_size": 64}, "write 64, or another batch_size"),
        ({"pool": 64, "curriculum": {"dim": 1, "points": 2, "every": 5}}, "pool needs prompts of one size"),
    ],
)
def test_a_pool_that_cannot_be_drawn_is_a_mistake(settings: dict[str, object], complaint: str):
    with pytest.raises(ValidationError, match=complaint):
        Training.model_validate(settings)
