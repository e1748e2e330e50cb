import os
from pathlib import Path

import pytest
import torch

from loopscale.optimizers.base import Optimizer
from loopscale.training.device import execution
from loopscale.training.loop import Learner, learning_rate
from tests.pretend_device import pretend_device


def test_a_graph_changes_neither_the_key_nor_the_steps_on_a_cpu(make):
    plain, graphed = make(), make(graph="auto")
    assert plain.key == graphed.key
    assert "graph" not in graphed.settings["training"]
    here, there = Learner(plain), Learner(graphed)
    assert not there.capturable
    for step in range(1, 5):
        assert torch.equal(here.learn(step), there.learn(step))


def test_the_record_says_how_a_gpu_takes_its_steps(make):
    there = execution(make(graph="auto", data="device").training, "cuda")
    assert there == "float32 on cuda, prompts drawn there, a step is one CUDA graph"
    assert execution(make(graph="auto").training, "cpu") == "float32 on cpu"
    assert execution(make().training, "cuda") == "float32 on cuda"
    assert execution(make().training, "cuda", compiled=True) == "float32 on cuda, compiled"


def test_the_record_says_how_trials_share_a_gpu(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert execution(make().training, "cuda", gpu=0.1) == "float32 on cuda, 0.1 of a GPU by turns"
    os.mkfifo(tmp_path / "control")  # where NVIDIA's service listens
    assert execution(make().training, "cuda", gpu=0.1) == "float32 on cuda, 0.1 of a GPU through MPS"
    assert execution(make().training, "cuda", gpu=1.0) == "float32 on cuda"


CAPTURABLE = [kind for kind, member in Optimizer.choices().items() if member.capturable]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", CAPTURABLE)
def test_a_step_for_a_graph_has_its_rate_on_the_device_and_a_state_for_every_device(make, kind: str):
    """The tensors that a graph reads keep their memory from step to step."""
    optimizer = {"kind": kind} | ({"momentum": 0.9} if kind == "sgd" else {})
    settings = {"width": 16, "schedule": "cosine", "warmup": 3, "optimizer": optimizer}
    trial = make(graph="auto", **settings)
    with pretend_device() as device:
        learner = Learner(trial, device)
        groups = learner.optimizer.param_groups
        learner.learn(1)
        moments = [value for state in learner.optimizer.state.values() for value in state.values()]
        read = [*(group["lr"] for group in groups), *learner.net.parameters(), *moments]
        for step in (2, 3, 4, 5):
            learner.learn(step)
            after = [value for state in learner.optimizer.state.values() for value in state.values()]
            now = [*(group["lr"] for group in groups), *learner.net.parameters(), *after]
            assert [id(tensor) for tensor in now] == [id(tensor) for tensor in read]
            rate = torch.tensor(learning_rate(trial.training, step)).item()
            assert {group["lr"].item() for group in groups} == {rate}
        state = learner.state(5)
        resumed = Learner(trial, device)
        resumed.restore(state)
        assert all(group.get("capturable", True) for group in resumed.optimizer.param_groups)
        loss = resumed.learn(6).cpu()
        assert torch.equal(loss, learner.learn(6).cpu())
    on_cpu = Learner(make(**settings))
    types, of_cpu = (
        [{key: type(value) for key, value in group.items()} for group in found.optimizer["param_groups"]]
        for found in (state, on_cpu.state(0))
    )
    assert types == of_cpu
    on_cpu.restore(state)
    torch.testing.assert_close(on_cpu.learn(6), loss, rtol=1e-4, atol=1e-6)
