"""What runs in a Ray actor: train one trial from wherever it stands, evaluate it, and say how it went.

Everything that the trial itself can do wrong is a report. What Ray sees fail is therefore the machine, or a process
that can no longer be trusted (a broken CUDA context), or storage that cannot be used: starting again,
in a new process and perhaps elsewhere, is the right answer.
"""

import socket
import time
import traceback
from collections.abc import Iterator
from typing import Any, TypedDict

import torch

from loopscale.evaluate import Curve, evaluate, summary
from loopscale.runner.machine.hardware import used
from loopscale.runner.messages import Order, Report
from loopscale.runner.on_ray.memory_limit import confined, full
from loopscale.tasks.base import Task
from loopscale.training import checkpoint
from loopscale.training.checkpoint import Checkpoint, CorruptCheckpoint
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.loop import Diverged, train
from loopscale.training.storage import CheckpointStore, StorageUnavailable
from loopscale.training.trial import Trial


def work(order: Order) -> Iterator[Report]:
    """Reports on an order, checkpointing before each: what has been said can always be said again."""
    try:
        with confined(order.memory, order.share):
            if order.kind == "train":
                yield from _train_to_the_end(order)
            yield _measured(order)
    except Diverged as problem:
        yield Report(outcome="diverged", detail=str(problem), **_where(order))
    except torch.OutOfMemoryError as problem:
        torch.cuda.empty_cache()
        yield Report(outcome="out_of_memory", detail=str(problem), **_where(order))
    except (torch.AcceleratorError, StorageUnavailable):
        raise
    except Exception as problem:
        outcome = "out_of_memory" if full(problem) else "failed"
        yield Report(outcome=outcome, detail=traceback.format_exc(), **_where(order))


def _train_to_the_end(order: Order) -> Iterator[Report]:
    """Train; and again from what is there, should that be older than what was saved here.

    Another worker had the trial, its host was cut off, and what it had not got rid of came through afterwards.
    """
    assert order.trial
    yield from _train(order)
    while 0 < checkpoint.reached(open_checkpoint_store(order.shelf), order.key) < order.trial.training.steps:
        yield from _train(order)


def _train(order: Order) -> Iterator[Report]:
    assert order.trial
    shelf, trial = open_checkpoint_store(order.shelf), order.trial
    saved = _saved(shelf, trial)
    history = list(saved.history) if saved else []
    if history:
        yield Report(tuple(history), saved=True)
        if history[-1][0] == trial.training.steps:
            return
    began = time.monotonic() - (saved.seconds if saved else 0.0)
    every = trial.training.checkpoint_every or 1
    due = (history[-1][0] if history else 0) + every
    for progress in train(trial, saved.state if saved else None, device=_device(order)):
        seconds = time.monotonic() - began
        history.append((progress.step, progress.metrics | {"seconds": seconds}))
        if save := progress.step >= due or progress.step == trial.training.steps:
            checkpoint.save(shelf, trial.key, Checkpoint(progress.state(), tuple(history), seconds))
            due = progress.step + every
        yield Report((history[-1],), saved=save)


def _saved(shelf: CheckpointStore, trial: Trial) -> Checkpoint | None:
    """The checkpoint to go on from. One that was stripped of its weights before the trial's end is none."""
    try:
        saved = checkpoint.load(shelf, trial.key)
    except CorruptCheckpoint:
        # The file was written whole once; a disk that broke it since costs the training, not the study.
        return None
    ended = saved and saved.history and saved.history[-1][0] == trial.training.steps
    return saved if saved and (saved.state or ended) else None


def _measured(order: Order) -> Report:
    """The curve of the trained net, from its reloaded checkpoint, or of the solver."""
    if order.baseline:
        task, steps = order.baseline.task, order.evaluation.loops
        curve = evaluate(order.baseline.solver, task, order.evaluation)
    else:
        assert order.trial
        task, steps = order.evaluation.posed(order.trial.task), order.trial.steps_per_prompt
        try:
            net = checkpoint.load_net(open_checkpoint_store(order.shelf), order.key, order.trial)
        except (FileNotFoundError, checkpoint.Stripped) as problem:
            return Report(outcome="finished", detail=f"not evaluated: {problem}", **_where(order))
        curve = evaluate(net, task, order.evaluation, _device(order))
    metrics = _evaluated(curve, task, steps)
    return Report(outcome="finished", metrics=metrics, curve=curve, **_where(order))


def _evaluated(curve: Curve, task: Task, steps: int) -> dict[str, float]:
    measured = summary(curve, task, min(steps, len(curve.error)))
    return {f"evaluate/{name}": value for name, value in measured.items()}


class Where(TypedDict):
    """On what it was worked, for the record."""

    host: str
    hardware: str


def _where(order: Order) -> Where:
    return {"host": socket.gethostname(), "hardware": used(order.gpu)}


def _device(order: Order) -> str:
    return "cuda" if order.gpu else "cpu"


def in_actor(config: dict[str, Any]) -> None:
    """Tune's trainable. Actors are reused and everything leaks from trial to trial, so it sets all that is global."""
    from ray import tune

    order = Order.model_validate_json(config["order"])
    torch.set_num_threads(order.threads)
    for report in work(order):
        tune.report({"report": report})
