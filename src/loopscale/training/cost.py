"""What a trial will cost, counted beforehand on the meta device, where shapes are real and nothing else."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.models.base import Net
from loopscale.training.device import dtype
from loopscale.training.loop import Learner
from loopscale.training.objective import objective
from loopscale.training.trial import Trial

IRRELEVANT = {
    "lr": 1.0, "steps": 1, "warmup": 0, "schedule": "constant", "decay": None, "decay_every": 1, "clip": None,
    "curriculum": None,
}  # fmt: skip
"""Settings of `training` that leave the cost of a step as it is: what is tuned most often is among them."""

HEADER_BYTES = 4096
"""Of a checkpoint, besides its tensors; each report of the history adds some 120."""


@dataclass(frozen=True)
class Cost:
    """Of training alone, on prompts of full size: validation is not counted, and a curriculum costs less."""

    parameters: int
    """Weights that receive a gradient."""
    flops_forward: int
    """Of one step: T loops, of which ΔT are read out."""
    flops_step: int
    """Forward and backward: T loops forwards and, where `truncate`, ΔT backwards. A multiply-add is two."""
    flops_total: int
    memory_bytes: int
    """Of tensors at the peak of a step: weights, gradients, Adam, the batch, what is saved for the backward
    pass. The process (Python, torch) adds about 300 MiB on a CPU. For bf16 an upper bound, since autocast is
    not counted."""
    checkpoint_bytes: int


@dataclass(frozen=True)
class Count:
    """Of one step, on the meta device."""

    forward: int
    step: int
    saved: int

    def __add__(self, other: "Count") -> "Count":
        return Count(self.forward + other.forward, self.step + other.step, self.saved + other.saved)

    def __sub__(self, other: "Count") -> "Count":
        return self + -1 * other

    def __rmul__(self, times: int) -> "Count":
        return Count(times * self.forward, times * self.step, times * self.saved)


def cost(trial: Trial) -> Cost:
    """Exact FLOPs of matrix products (the only ones counted), and an estimate of memory."""
    options = trial.training
    net = _on_meta(trial)
    batch = _prompts(trial)
    count, names = _by_loops(trial)
    trained = [weight for name, weight in net.named_parameters() if name in names]
    weights, moving = _bytes(net.parameters()), _bytes(trained)
    kept = round(count.saved * trial.model.kept_factor)
    return Cost(
        parameters=sum(weight.numel() for weight in trained),
        flops_forward=count.forward,
        flops_step=count.step,
        flops_total=count.step * options.steps,
        memory_bytes=weights + 3 * moving + _bytes([batch.tokens, batch.targets]) + kept,
        checkpoint_bytes=weights + 2 * moving + HEADER_BYTES + 120 * -(-options.steps // options.eval_every),
    )


def training_flops(trial: Trial) -> float:
    """`cost(trial).flops_total`, and nothing that takes longer; trials of equal shape are counted once."""
    alike = trial.model_copy(update={"seed": 0, "training": trial.training.model_copy(update=IRRELEVANT)})
    return _step_flops(alike.model_dump_json()) * trial.training.steps


@cache
def _step_flops(trial: str) -> float:
    return float(_by_loops(Trial.model_validate_json(trial))[0].step)


def count(trial: Trial, net: Net, batch: Batch) -> Count:
    """One real training step of `net`, on the meta device, followed operation by operation."""
    kept = _Kept(net)
    with without_compiler(), FlopCounterMode(display=False) as counter:
        with saved_tensors_hooks(kept.see, lambda tensor: tensor):
            loss = objective(net, trial, batch)
        forward = counter.get_total_flops()
        loss.backward()
        return Count(forward, counter.get_total_flops(), kept.bytes)


def _by_loops(trial: Trial) -> tuple[Count, set[str]]:
    """`count`, and the names of the weights that get a gradient, from steps of two or three loops.

    A loop costs what the one before it did.

    Following 30 loops takes seconds, and a plan asks for hundreds of trials. A test holds it against `count`.
    """
    options, trained = trial.training, set[str]()
    before, window = options.loops - options.window, options.window

    def small(before: int, window: int) -> Count:
        few = options.model_copy(update={"loops": before + window, "window": window} | IRRELEVANT)
        found, names = _followed(trial.model_copy(update={"training": few, "seed": 0}))
        trained.update(names)
        return found

    if trial.model.depth is not None:
        return small(0, 1), trained
    start = min(before, 1)
    total = base = small(start, 1)
    if window > 1:
        total += (window - 1) * (small(start, 2) - base)
    if before > 1:
        total += (before - 1) * (small(2, 1) - base)
    return total, trained


def _followed(trial: Trial) -> tuple[Count, frozenset[str]]:
    """Once for all trials of a study that differ in loops, window and what costs nothing: it takes 0.1 s.

    A prompt costs what another does: of three batch sizes and more, two are followed, and a single prompt, of
    which torch copies less. A test holds it against `count`.
    """
    size = trial.training.batch_size
    shape = trial.model_copy(update={"training": trial.training.model_copy(update={"batch_size": 1})})
    known, names = _known(shape.model_dump_json())
    if size not in known:
        line = [each for each in known.items() if each[0] > 1][:2]
        if size > 1 and len(line) == 2 and (between := _between(size, *line)):
            return between, frozenset(names)
        net = _on_meta(trial)
        known[size] = count(trial, net, _prompts(trial))
        names.update(name for name, weight in net.named_parameters() if weight.grad is not None)
    return known[size], frozenset(names)


@cache
def _known(shape: str) -> tuple[dict[int, Count], set[str]]:
    """By batch size what has been followed of a shape; the names of weights that get a gradient."""
    return {}, set()


def _between(size: int, one: tuple[int, Count], other: tuple[int, Count]) -> Count | None:
    """On the straight line through two counts; None if no whole number lies there."""
    (first, base), (second, more) = one, other
    rise, run = more - base, second - first
    if any(each % run for each in (rise.forward, rise.step, rise.saved)):
        return None
    slope = Count(rise.forward // run, rise.step // run, rise.saved // run)
    return base + (size - first) * slope


def _prompts(trial: Trial) -> Batch:
    shape = dtype(trial.training.precision)
    return trial.task.sample(trial.training.batch_size, stream(0)).to("meta", shape)


def measure(trial: Trial, steps: int = 5, device: str = "cpu") -> float:
    """Seconds that a training step takes here and now: the median of `steps`, after two that warm up.

    On the threads that torch has. The trial is trained for so many steps, and what it learns is thrown away.
    """
    times = list[float]()
    with without_compiler():
        learner = Learner(trial, device)
        for step in range(1, steps + 3):
            start = time.perf_counter()
            learner.learn(step).item()  # .item() waits for the device
            times.append(time.perf_counter() - start)
    return sorted(times[2:])[steps // 2]


@contextmanager
def without_compiler() -> Iterator[None]:
    """Keep torch from importing `torch._dynamo`, which takes more than a second of processor time.

    Optimisers and kernels of the meta device import the module at their first call, to exclude themselves from
    `torch.compile`. This package compiles nothing, so a stand-in leaves these functions as they are. A test checks
    that the stand-in suffices for the installed torch.
    """
    name = "torch._dynamo"
    if name in sys.modules:
        yield
        return
    stand_in = ModuleType(name)
    vars(stand_in).update(disable=lambda function, *_, **__: function, graph_break=lambda *_, **__: None)
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]


def _on_meta(trial: Trial) -> Net:
    with torch.device("meta"):
        return trial.model.build(trial.task.prompt, stream(0)).to(dtype(trial.training.precision))


class _Kept:
    """What autograd keeps for the backward pass: each storage once, the net's own weights left out."""

    def __init__(self, net: nn.Module) -> None:
        self.storages = {weight.untyped_storage()._cdata for weight in net.parameters()}
        self.bytes = 0

    def see(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            self.storages.add(storage._cdata)
            self.bytes += storage.nbytes()
        return tensor


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
