from typing import Any

import pytest
import torch

from loopscale.optimizers.base import Optimizer
from loopscale.tasks.base import Task
from loopscale.training.device import execution, pick, prepare
from loopscale.training.loop import Learner, train
from loopscale.training.prompts import Prompts, drawn_there
from loopscale.training.trial import Trial

pytestmark = pytest.mark.cuda


def test_the_first_loss_equals_the_loss_on_the_cpu(make):
    losses = [Learner(make(), device).learn(1).item() for device in ("cpu", "cuda")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_training_resumes_from_a_state(make):
    whole = list(train(make(), device="cuda"))
    start = next(train(make(), device="cuda")).state()
    assert {tensor.device.type for tensor in start.net.values()} == {"cpu"}
    rest = list(train(make(), start, "cuda"))
    assert [progress.step for progress in rest] == [8, 12]
    assert rest[-1].metrics["error"] == pytest.approx(whole[-1].metrics["error"], rel=1e-2)


def test_bf16_trains(make):
    *_, last = train(make(precision="bf16"), device="cuda")
    assert last.metrics["error"] < 2


def test_tf32_rounds_the_products_of_a_step_and_of_nothing_else(make):
    prepare(1)
    settings = {"width": 64, "batch_size": 64, "task": {"dim": 5, "points": 20}}
    exact, rounded = (Learner(make(precision=name, **settings), "cuda") for name in ("float32", "tf32"))
    losses = [learner.learn(1).item() for learner in (exact, rounded)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    assert execution(rounded.trial.training, "cuda") == "tf32 on cuda"
    assert torch.get_float32_matmul_precision() == "highest"


def test_out_of_memory_raises_the_error_of_torch(make):
    torch.cuda.set_per_process_memory_fraction(0.005)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            list(train(make(width=512, batch_size=4096, task={"points": 60}), device="cuda"))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


def test_a_share_of_a_gpu_selects_the_gpu():
    assert pick(0.25) == "cuda"
    assert pick("auto") == "cuda"
    assert pick(0.0) == "cpu"


def test_prompts_drawn_ahead_equal_the_prompts_of_the_cpu(make):
    trial = make()
    there, here = Prompts(trial, "cuda", torch.float32), Prompts(trial, "cpu", torch.float32)
    for step in (1, 2, 3, 7):
        ahead, drawn = there.take(step), here.take(step)
        assert ahead.tokens.device.type == "cuda"
        assert torch.equal(ahead.tokens.cpu(), drawn.tokens)
        assert torch.equal(ahead.targets.cpu(), drawn.targets)
    there.close()


GRADED = [kind for kind, choice in Task.choices().items() if "dim" in choice.model_fields]
"""Tasks that draw random prompts, of any size."""


@pytest.mark.parametrize("kind", GRADED)
def test_every_task_draws_on_the_gpu(kind: str):
    task = Task.model_validate({"kind": kind, "dim": 4, "points": 6})
    found = drawn_there(task, 4096, torch.Generator("cuda").manual_seed(1), torch.float32)
    cost = task.error(torch.zeros_like(found.targets), found).mean(1)
    assert cost.mean().item() == pytest.approx(1, abs=5 * cost.std().item() / 64 + 0.004)


@pytest.mark.parametrize("kind", Task.choices())
def test_a_step_never_waits_for_the_gpu(kind: str):
    sizes = {"dim": 4, "points": 6} if kind in GRADED else {}
    task = Task.model_validate({"kind": kind} | sizes)
    model = {"kind": "encoder" if task.whole else "looped"}
    never_waits(Trial.model_validate({"task": task, "model": model, "training": {"clip": 1.0}}))


@pytest.mark.parametrize("kind", Optimizer.choices())
def test_an_optimizer_never_waits_for_the_gpu(make, kind: str):
    never_waits(make(optimizer=kind, width=16))


def never_waits(trial: Trial) -> None:
    """torch raises an error at every call that waits, also inside kernels."""
    learner = Learner(trial, "cuda")
    learner.learn(1)
    torch.cuda.set_sync_debug_mode("error")
    try:
        learner.learn(2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
        learner.prompts.close()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"clip": 1.0, "schedule": "cosine", "warmup": 2},
        {"precision": "bf16"},
        {"width": 16, "schedule": "cosine", "warmup": 2, "optimizer": {"kind": "muon", "weight_decay": 0.1}},
        {"optimizer": {"kind": "sgd", "momentum": 0.9}},
        {"optimizer": "adamw"},
    ],
)
def test_a_graph_takes_the_steps_of_single_kernels(make, settings: dict[str, Any]):
    """Beyond the capture, and also when a curriculum changes the shape of the prompts."""
    task, curriculum = {"dim": 4, "points": 8}, {"dim": 4, "points": 6, "every": 8}
    options = settings | {"steps": 24, "task": task, "curriculum": curriculum}
    single, graphed = (Learner(make(graph=graph, **options), "cuda") for graph in ("off", "auto"))
    losses = [[learner.learn(step).item() for step in range(1, 21)] for learner in (single, graphed)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    for learner in (single, graphed):
        learner.prompts.close()


@pytest.mark.parametrize("graph", ["off", "auto"])
@pytest.mark.parametrize("kind", ["looped", "gpt2", "algoformer"])
def test_a_compiled_net_takes_the_steps_of_single_kernels(make, kind: str, graph: str):
    options = {"steps": 24, "width": 16, "task": {"dim": 4, "points": 8}}
    plain = Learner(make(kind, **options), "cuda")
    compiled = Learner(make(kind, graph=graph, compile="on", **options), "cuda", compiled=True)
    losses = [[learner.learn(step).item() for step in range(1, 21)] for learner in (plain, compiled)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    for learner in (plain, compiled):
        learner.prompts.close()


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_graphed_training_resumes_from_a_state_and_on_a_cpu(make, optimizer: str):
    trial = make(graph="auto", optimizer=optimizer, width=16)
    whole = list(train(trial, device="cuda"))
    start = next(train(trial, device="cuda")).state()
    for device in ("cuda", "cpu"):
        rest = list(train(trial, start, device))
        assert [progress.step for progress in rest] == [8, 12]
        assert rest[-1].metrics["error"] == pytest.approx(whole[-1].metrics["error"], rel=1e-2)
