"""The loss of predictions that are too large to keep, such as the logits of a vocabulary.

128 tokens, 16,000 words, ten supervised loops and a batch of 64 are 5 GB of logits, and as much again for their
gradient. Here a part of the logits exists at a time: its gradient is taken at once, and the part is freed. Queries of
weight 0 (sources and padding) have no logits at all. Shapes: S supervised steps, B batch, P points, N queries with a
weight, D width.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from loopscale.core.prompt import Batch
from loopscale.models.layers import ReadOut
from loopscale.tasks.base import Task

PART_BYTES = 2**23
"""The largest logits of a part. The loss of 49 MB of logits and its gradient take .17 s in parts, and .21 s at once."""


def loss_in_parts(
    read_out: ReadOut, task: Task, states: Float[Tensor, "S B P D"], batch: Batch
) -> Float[Tensor, ""]:
    """The mean of `task.loss(read_out.predictions(states), batch)` over steps and prompts, for a batch with weights.

    The loss of a prompt must be the sum of the losses of its queries, as for every task with weights.
    """
    rows = batch.weighted
    assert batch.weights is not None
    assert rows is not None
    kept = states.flatten(1, 2).index_select(1, rows)
    targets, weights = (values.flatten().index_select(0, rows) for values in (batch.targets, batch.weights))
    one_query = kept.element_size() * len(kept) * task.prompt.dim_out
    size = max(1, PART_BYTES // one_query)
    share = 1 / (len(states) * len(batch.targets))

    def loss(part: Float[Tensor, "S n D"], start: int) -> Float[Tensor, ""]:
        end = start + part.shape[1]
        queries = torch.arange(end - start, device=targets.device)
        asked = Batch(batch.tokens[:1], targets[None, start:end], queries, None, weights[None, start:end])
        return share * task.loss(read_out.predictions(part).unsqueeze(1), asked).sum()

    return _InParts.apply(loss, size, kept, *read_out.parameters())


def _parts(length: int, size: int) -> Iterator[slice]:
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


class _InParts(torch.autograd.Function):
    """The sum of a loss over parts, with the gradients of each part taken in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        loss: Callable[[Tensor, int], Tensor],
        size: int,
        states: Float[Tensor, "S N D"],
        *weights: Tensor,
    ) -> Float[Tensor, ""]:
        total, into = states.new_zeros(()), torch.empty_like(states)
        gradients = [torch.zeros_like(weight) for weight in weights]
        for part in _parts(states.shape[1], size):
            piece = states[:, part].detach().requires_grad_()
            with torch.enable_grad():
                value = loss(piece, part.start)
            first, *others = torch.autograd.grad(value, [piece, *weights])
            total += value.detach()
            into[:, part] = first
            for gradient, more in zip(gradients, others, strict=True):
                gradient += more
        ctx.save_for_backward(into, *gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  # the decorator loses the names of parameters
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        return None, None, *(grad_outputs[0] * gradient for gradient in ctx.saved_tensors)
