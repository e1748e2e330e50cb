"""What a trial will cost, counted beforehand on the meta device, where shapes are real and nothing else."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from loopscale.core.seeds import stream
from loopscale.training.device import dtype
from loopscale.training.loop import Learner
from loopscale.training.objective import objective
from loopscale.training.trial import Trial

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


def cost(trial: Trial) -> Cost:
    """Exact FLOPs of matrix products (the only ones counted), and an estimate of memory."""
    options, shape = trial.training, dtype(trial.training.precision)
    with torch.device("meta"):
        net = trial.model.build(trial.task.prompt, stream(0)).to(shape)
    batch = trial.task.sample(options.batch_size, stream(0)).to("meta", shape)
    kept = _Kept(net)
    with FlopCounterMode(display=False) as counter:
        with saved_tensors_hooks(kept.see, lambda tensor: tensor):
            loss = objective(net, trial, batch)
        forward = counter.get_total_flops()
        loss.backward()
        step = counter.get_total_flops()
    trained = [weight for weight in net.parameters() if weight.grad is not None]
    weights, moving = _bytes(net.parameters()), _bytes(trained)
    return Cost(
        parameters=sum(weight.numel() for weight in trained),
        flops_forward=forward,
        flops_step=step,
        flops_total=step * options.steps,
        memory_bytes=weights + 3 * moving + _bytes([batch.tokens, batch.targets]) + kept.bytes,
        checkpoint_bytes=weights + 2 * moving + HEADER_BYTES + 120 * -(-options.steps // options.eval_every),
    )


def measure(trial: Trial, steps: int = 5, device: str = "cpu") -> float:
    """Seconds that a training step takes here and now: the median of `steps`, after two that warm up.

    On the threads that torch has. The trial is trained for so many steps, and what it learns is thrown away.
    """
    learner, times = Learner(trial, device), list[float]()
    for step in range(1, steps + 3):
        start = time.perf_counter()
        learner.learn(step).item()  # .item() waits for the device
        times.append(time.perf_counter() - start)
    return sorted(times[2:])[steps // 2]


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
