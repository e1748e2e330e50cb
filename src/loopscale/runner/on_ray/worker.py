"""The work of a Ray actor: train a trial from its checkpoint, evaluate the net, and report.

All errors of the trial itself become reports. The exceptions that Ray sees therefore mean a broken machine, a process
that cannot go on (a broken CUDA context), or unusable storage. In each case a new process, perhaps on another
machine, is the right answer.
"""

import resource
import socket
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from loopscale.core.plugins import Plugin, load
from loopscale.core.prompt_sets import VALIDATION_PROMPTS, Purpose
from loopscale.evaluate import acting, evaluate, summary
from loopscale.records.model import EVALUATE
from loopscale.regret import Floor
from loopscale.runner.decide.job import Order, Report
from loopscale.runner.machine import is_out_of_memory, training_hardware
from loopscale.tasks.base import Task
from loopscale.training import checkpoint
from loopscale.training.checkpoint import Checkpoint, CorruptCheckpoint
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.compiler import compiles
from loopscale.training.device import NoGpu, execution, pick, prepare
from loopscale.training.learning import kept_floor, learning_metrics
from loopscale.training.loop import Diverged, train
from loopscale.training.output import RETRY_SECONDS, kept_output
from loopscale.training.storage import CheckpointStore, StorageUnavailable
from loopscale.training.trial import Trial

CUDA_CONTEXT_GIB = 0.5
"""GPU memory of a process besides its tensors. torch's limit does not count this memory."""


def work(order: Order) -> Iterator[Report]:
    """Carry out the order. Each report of saved progress follows its checkpoint, so it can be repeated.

    Raises StorageUnavailable or torch.AcceleratorError if the worker cannot go on. Ray then discards the process.
    """
    prepare(order.resources.threads)
    try:
        with memory_limit(order.resources.memory, order.resources.gpu):
            if order.kind == "train":
                yield from _train_to_end(order)
            yield _evaluate(order)
    except NoGpu as error:
        yield Report(outcome="failed", detail=str(error), host=socket.gethostname(), host_unfit=True)
    except Diverged as error:
        yield _with_place(order, Report(outcome="diverged", detail=str(error)))
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        yield _with_place(order, Report(outcome="out_of_memory", detail=str(error)))
    except (torch.AcceleratorError, StorageUnavailable):
        raise
    except Exception as error:
        outcome = "out_of_memory" if is_out_of_memory(error) else "failed"
        yield _with_place(order, Report(outcome=outcome, detail=traceback.format_exc()))


@contextmanager
def memory_limit(memory: float | None, gpu: float) -> Iterator[None]:
    """Limit the memory of this process inside the context. A larger trial ends as out_of_memory.

    Ray's `memory` only decides where a trial runs, and CUDA does not know shares of a GPU.

    Parameters
    ----------
    memory
        GiB of main memory, enforced by Linux (RLIMIT_DATA). Memory that the process holds at its start counts.
        None for no limit.
    gpu
        Share of the worker's GPU, enforced by torch until the next call. 0 without a GPU.

    Raises
    ------
    MemoryError
        If the process itself needs more than `memory`.
    """
    if 0 < gpu < 1 and torch.cuda.is_available():
        total = torch.cuda.get_device_properties(0).total_memory / 2**30
        torch.cuda.set_per_process_memory_fraction(max(0.01, gpu - CUDA_CONTEXT_GIB / total), 0)
    elif gpu and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
    if memory is None or not (initial := _initial_memory()):
        yield
        return
    data, resident = initial
    left = memory * 2**30 - resident
    if left <= 0:
        raise MemoryError(
            f"the process alone needs {resident / 2**30:.2g} GiB of the {memory:g} GiB of a trial's memory"
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(data + left)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@cache
def _initial_memory() -> tuple[int, int] | None:
    """Bytes that this process had mapped for data, and held, before its first trial. None if unknown.

    The value is cached, so every trial of a reused actor has the same limit.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmData", "VmRSS"))}
    return 1024 * int(sizes["VmData"]), 1024 * int(sizes["VmRSS"])


def _train_to_end(order: Order) -> Iterator[Report]:
    """Train the trial, and repeat while an older checkpoint has replaced the last one.

    A previous worker on a host without connection can do so: its delayed write arrives after the last checkpoint.
    """
    assert order.trial
    yield from _train(order)
    checkpoints, steps = open_checkpoint_store(order.checkpoints), order.trial.training.steps
    while 0 < checkpoint.reached(checkpoints, order.key) < steps:
        yield from _train(order)


def _train(order: Order) -> Iterator[Report]:
    assert order.trial
    checkpoints, trial = open_checkpoint_store(order.checkpoints), order.trial
    saved = _load_checkpoint(checkpoints, trial)
    history = list(saved.history) if saved else []
    if history:
        yield Report(tuple(history), saved=True)
        if history[-1][0] == trial.training.steps:
            return
    start = time.monotonic() - (saved.seconds if saved else 0.0)
    interval = trial.training.checkpoint_every or 1
    next_save = (history[-1][0] if history else 0) + interval
    state = saved.state if saved else None
    for progress in train(trial, state, pick(order.resources.gpu), _compiled(order)):
        seconds = time.monotonic() - start
        history.append((progress.step, progress.metrics | {"seconds": seconds}))
        if save := progress.step >= next_save or progress.step == trial.training.steps:
            checkpoint.save(checkpoints, trial.key, Checkpoint(progress.state(), tuple(history), seconds))
            next_save = progress.step + interval
        yield Report((history[-1],), saved=save, host=socket.gethostname())


def _load_checkpoint(checkpoints: CheckpointStore, trial: Trial) -> Checkpoint | None:
    """The checkpoint to resume from. A checkpoint without weights before the trial's end is useless."""
    try:
        saved = checkpoint.load(checkpoints, trial.key)
    except CorruptCheckpoint:
        # Files are replaced as a whole, so the disk broke the file later. Only the training is lost, not the study.
        return None
    ended = saved and saved.history and saved.history[-1][0] == trial.training.steps
    return saved if saved and (saved.state or ended) else None


def _evaluate(order: Order) -> Report:
    """The curve of the solver, or of the trained net after a reload of its checkpoint."""
    checkpoints, problems = open_checkpoint_store(order.checkpoints), list[str]()
    learning, similar = dict[str, float](), dict[str, float]()

    def known_floor(task: Task, purpose: Purpose, prompts: int) -> Floor | None:
        """The floor, or None after a problem: a trained net must not be lost because its floor is unknown."""
        try:
            return kept_floor(checkpoints, task, purpose, prompts)
        except StorageUnavailable:
            raise
        except Exception as error:
            problems.append(f"no regret: {str(error)[:500] or type(error).__name__}")
            return None

    if order.baseline:
        task, steps = order.baseline.task, order.evaluation.loops
        predictor, device = order.baseline.solver, "cpu"
    else:
        assert order.trial
        task, steps = order.evaluation.posed(order.trial.task), order.trial.steps_per_prompt
        try:
            predictor = checkpoint.load_net(checkpoints, order.key, order.trial)
            history = checkpoint.load_history(checkpoints, order.key)
        except (FileNotFoundError, checkpoint.Stripped) as error:
            return _with_place(order, Report(outcome="finished", detail=f"not evaluated: {error}"))
        device = pick(order.resources.gpu)
        last = history[-1][1] if history else {}
        similar = {name: last[name] for name in order.trial.similarity_measures if name in last}
        if floor := known_floor(order.trial.task, "validate", VALIDATION_PROMPTS):
            learning = learning_metrics(history, floor)
    floor = known_floor(task, "evaluate", order.evaluation.prompts)
    curve = evaluate(predictor, task, order.evaluation, device, floor)
    values = summary(curve, task, min(steps, len(curve.error)))
    acted = acting(predictor, task, steps, device)
    values |= acted.values | similar
    curve = replace(curve, play=acted.play)
    metrics = {EVALUATE + name: value for name, value in values.items()} | learning
    how = f"{floor.how} {floor.name}".strip() if floor and floor.known else ""
    report = Report(
        outcome="finished",
        detail="; ".join(dict.fromkeys(problems)),
        metrics=metrics,
        curve=curve,
        floor=how,
        examples=acted.examples,
    )
    return _with_place(order, report)


def _with_place(order: Order, report: Report) -> Report:
    """The report with the host, the hardware and the way of training, for the record."""
    gpu, compiled = float(order.resources.gpu), _compiled(order)
    device = "cuda" if gpu else "cpu"
    how = execution(order.trial.training, device, compiled, gpu) if order.trial else ""
    hardware = training_hardware(order.resources.gpu > 0)
    return replace(report, host=socket.gethostname(), hardware=hardware, execution=how)


def _compiled(order: Order) -> bool:
    """Whether a new training of the order's trial runs through torch's compiler."""
    if order.trial is None or order.trial.training.curriculum or order.trial.task.prompt.vocabulary:
        return False  # the shapes of prompts change
    setting = order.trial.training.compile
    if setting == "auto" and order.resources.gpu:
        return False  # the compiler has not been measured on a GPU
    return compiles(setting, order.flops)


def trainable(config: dict[str, Any], plugins: Sequence[Plugin] = ()) -> None:
    """Tune's trainable: carry out the order in `config`, whose members may come from the study's plugins."""
    from ray import tune  # Tune has imported it; `work` runs without Ray

    for plugin in plugins:
        load(plugin, members=False)
    order = Order.model_validate_json(config["order"])
    with kept_output(open_checkpoint_store(order.checkpoints, RETRY_SECONDS), order.key):
        for report in work(order):
            tune.report({"report": report})
