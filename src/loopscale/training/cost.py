"""The cost of a trial, counted before training on the meta device: tensors with shapes and without values."""

import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.models.base import Net
from loopscale.training.device import dtype
from loopscale.training.live_memory import LiveMemory
from loopscale.training.loop import Learner
from loopscale.training.objective import objective
from loopscale.training.optimiser import without_compiler
from loopscale.training.trial import Training, Trial

IRRELEVANT = {
    name: Training.model_fields[name].default
    for name in ("lr", "steps", "warmup", "schedule", "decay", "decay_every", "clip", "curriculum")
}
"""Settings of `training` that do not change the cost of a step, at their defaults. Many of them are tuned."""

HEADER_BYTES = 4096
"""Bytes of a checkpoint besides its tensors. Each report in the history adds about 120."""


@dataclass(frozen=True)
class Cost:
    """The cost of training on prompts of full size. Validation is not counted. A curriculum costs less."""

    parameters: int
    """Weights that receive a gradient."""
    flops_forward: int
    """FLOPs of one forward pass: T loops, and the read-out of ΔT loops. A multiply-add is two FLOPs."""
    flops_step: int
    """FLOPs of one step: T loops forward and, with `truncate`, ΔT loops backward."""
    flops_total: int
    """FLOPs of all steps."""
    memory_bytes: int
    """Tensors at the peak of a step: weights, gradients, Adam, the batch, tensors saved for the backward pass. The
    process itself (Python, torch) adds about 300 MiB on a CPU. An upper bound for bf16, because autocast is not
    counted."""
    checkpoint_bytes: int
    """Size of the checkpoint file."""


@dataclass(frozen=True)
class Count:
    """FLOPs of the forward pass and of the whole step, and bytes saved for the backward pass.

    With `recompute` the bytes are those of all tensors at the peak of the step, except weights and gradients.
    """

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
    """The exact FLOPs of all matrix products (other operations are not counted) and an estimate of memory."""
    options = trial.training
    net = _on_meta(trial)
    batch = _prompts(trial)
    count, names = _by_loops(trial)
    trained = [weight for name, weight in net.named_parameters() if name in names]
    weights, trained_bytes = _bytes(net.parameters()), _bytes(trained)
    saved = round(count.saved * trial.model.kept_factor)
    return Cost(
        parameters=sum(weight.numel() for weight in trained),
        flops_forward=count.forward,
        flops_step=count.step,
        flops_total=count.step * options.steps,
        memory_bytes=weights + 3 * trained_bytes + _bytes([batch.tokens, batch.targets]) + saved,
        checkpoint_bytes=weights
        + 2 * trained_bytes
        + HEADER_BYTES
        + 120 * -(-options.steps // options.eval_every),
    )


def training_flops(trial: Trial) -> float:
    """`cost(trial).flops_total`, faster: trials of equal shape are counted once."""
    alike = trial.model_copy(update={"seed": 0, "training": trial.training.model_copy(update=IRRELEVANT)})
    return _step_flops(alike.model_dump_json()) * trial.training.steps


@cache
def _step_flops(trial: str) -> float:
    return float(_by_loops(Trial.model_validate_json(trial))[0].step)


def count(trial: Trial, net: Net, batch: Batch) -> Count:
    """The cost of one training step of `net`, counted operation by operation on the meta device."""
    saved, live = _SavedTensors(net), LiveMemory()
    recompute = trial.training.recompute
    with without_compiler(), FlopCounterMode(display=False) as counter, live if recompute else nullcontext():
        with saved_tensors_hooks(saved.see, lambda tensor: tensor):
            loss = objective(net, trial, batch)
        forward = counter.get_total_flops()
        loss.backward()
    gradients = _bytes(weight.grad for weight in net.parameters() if weight.grad is not None)
    return Count(forward, counter.get_total_flops(), live.peak - gradients if recompute else saved.bytes)


def _by_loops(trial: Trial) -> tuple[Count, set[str]]:
    """The result of `count` and the names of the weights that receive a gradient.

    Only steps of two or three loops are counted, because counting 30 loops takes seconds and a plan asks for hundreds
    of trials. All further loops cost the same as the last counted loop. A test compares the result with `count`.
    """
    options, trained = trial.training, set[str]()
    before, window = options.loops - options.window, options.window

    def small(before: int, window: int) -> Count:
        few = options.model_copy(update={"loops": before + window, "window": window} | IRRELEVANT)
        counted, names = _count_once(trial.model_copy(update={"training": few, "seed": 0}))
        trained.update(names)
        return counted

    if options.recompute:  # the peak of memory is not linear in the loops
        return small(before, window), trained
    if trial.model.depth is not None:
        return small(0, 1), trained
    start = min(before, 1)
    total = base = small(start, 1)
    if window > 1:
        total += (window - 1) * (small(start, 2) - base)
    if before > 1:
        total += (before - 1) * (small(2, 1) - base)
    return total, trained


def _count_once(trial: Trial) -> tuple[Count, frozenset[str]]:
    """As `_by_loops`, for few loops, and counted once for all trials that share this result. One count takes 0.1 s.

    The cost is linear in the batch size from 2 on: two sizes are counted, other sizes lie on the line through them. A
    batch of one prompt is counted by itself, because torch copies less for it. A test compares with `count`.
    """
    size = trial.training.batch_size
    shape = trial.model_copy(update={"training": trial.training.model_copy(update={"batch_size": 1})})
    known, names = _known(shape.model_dump_json())
    if size not in known:
        counted = [(other, count) for other, count in known.items() if other > 1][:2]
        if size > 1 and len(counted) == 2 and (between := _on_line(size, *counted)):
            return between, frozenset(names)
        net = _on_meta(trial)
        known[size] = count(trial, net, _prompts(trial))
        names.update(name for name, weight in net.named_parameters() if weight.grad is not None)
    return known[size], frozenset(names)


@cache
def _known(shape: str) -> tuple[dict[int, Count], set[str]]:
    """The counts of a shape by batch size, and the names of the weights that receive a gradient. Callers fill both."""
    return {}, set()


def _on_line(size: int, first: tuple[int, Count], second: tuple[int, Count]) -> Count | None:
    """The count at `size` on the straight line through two counts; `None` if the result is no whole number."""
    (base_size, base), (other_size, other) = first, second
    rise, run = other - base, other_size - base_size
    if any(part % run for part in (rise.forward, rise.step, rise.saved)):
        return None
    slope = Count(rise.forward // run, rise.step // run, rise.saved // run)
    return base + (size - base_size) * slope


def _prompts(trial: Trial) -> Batch:
    precision = dtype(trial.training.precision)
    return trial.task.sample(trial.training.batch_size, stream(0)).to("meta", precision)


def measure(trial: Trial, steps: int = 5, device: str = "cpu") -> float:
    """Seconds per training step on this machine: the median of `steps` steps, after two steps of warm-up.

    Uses torch's current number of threads. The trained weights are thrown away.
    """
    times = list[float]()
    learner = Learner(trial, device)
    for step in range(1, steps + 3):
        start = time.perf_counter()
        learner.learn(step).item()  # .item() waits for the device
        times.append(time.perf_counter() - start)
    return sorted(times[2:])[steps // 2]


def _on_meta(trial: Trial) -> Net:
    with torch.device("meta"):
        net = trial.model.build(trial.task.prompt, stream(0)).to(dtype(trial.training.precision))
    if trial.training.recompute:
        net.recompute()
    return net


class _SavedTensors:
    """Counts the bytes that autograd saves for the backward pass: each storage once, without the net's weights."""

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
