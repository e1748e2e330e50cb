"""Attention. Shapes: B batch, L length, M positions of queries, H heads, D width, K width of a head."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from typing_extensions import override

from loopscale.models.architecture import Architecture, Kind
from loopscale.models.key_values import KeyValues
from loopscale.models.linear import Linear

VECTOR = 16
"""Numbers in a register of AVX-512. A product with a side just below a multiple takes up to twice as long."""
SHORT = range(VECTOR, 4 * VECTOR + 1)
"""At these lengths, attention on a CPU is faster as plain products than as torch's fused kernel."""

Positions = Int[Tensor, " M"]
"""Positions of a prompt, with registers, in ascending order."""


class Attention(nn.Module):
    """Softmax, relu or linear attention: y_i = Σ_j A(q_i . k_j) v_j, over j <= i if causal.

    Head h reads rows [h K, (h+1) K) of each third of `qkv` (queries, keys, values) and writes through columns
    [h K, (h+1) K) of `out`. With K = D these are the full matrices of the theorems.
    """

    past: KeyValues | None = None
    """The keys and values of earlier tokens; None if the input has all tokens."""

    def __init__(self, settings: Architecture, kind: Kind) -> None:
        super().__init__()
        self.kind, self.heads, self.causal, self.scale = kind, settings.heads, settings.causal, settings.scale
        self.normaliser = settings.normaliser or ("position" if settings.causal else "length")
        inner = settings.heads * settings.head_width
        self.qkv = Linear(settings.width, 3 * inner, settings.biases)
        self.out = Linear(inner, settings.width, settings.biases)

    @override
    def forward(self, x: Float[Tensor, "B L D"], at: Positions | None = None) -> Float[Tensor, "B M D"]:
        """The outputs at the positions `at`; `None` for all positions."""
        if at is None:
            q, k, v = (self._heads(part) for part in self.qkv(x).chunk(3, -1))
            at = torch.arange(x.shape[1], device=x.device)
        else:
            inner = self.out.in_features
            q = self._heads(self.qkv.rows(x.index_select(1, at), 0, inner))
            k, v = (self._heads(part) for part in self.qkv.rows(x, inner, 3 * inner).chunk(2, -1))
        if self.past is not None:
            at = at + self.past.length
            k, v = self.past.extended(k, v)
        attend = self._softmax if self.kind == "softmax" else self._without_softmax
        y = attend(q, k, v, at)
        return self.out(y.transpose(1, 2).flatten(-2))

    @staticmethod
    def short(x: Float[Tensor, "... L D"]) -> bool:
        """True if attention over the L tokens is faster as plain products than as torch's fused kernel."""
        return x.shape[-2] in SHORT and not x.is_cuda and not torch.is_autocast_enabled("cpu")

    def _heads(self, x: Float[Tensor, "B L I"]) -> Float[Tensor, "B H L K"]:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _softmax(
        self,
        q: Float[Tensor, "B H M K"],
        k: Float[Tensor, "B H L K"],
        v: Float[Tensor, "B H L K"],
        at: Positions,
    ) -> Float[Tensor, "B H M K"]:
        length = k.shape[-2]
        if self.short(k):
            return _Plain.apply(q, k, v, later(at, length) if self.causal else None, self.scale)
        if len(at) == length:
            return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)
        mask = ~later(at, length) if self.causal else None
        return F.scaled_dot_product_attention(q, k, v, mask, scale=self.scale)

    def _without_softmax(
        self,
        q: Float[Tensor, "B H M K"],
        k: Float[Tensor, "B H L K"],
        v: Float[Tensor, "B H L K"],
        at: Positions,
    ) -> Float[Tensor, "B H M K"]:
        scores = (q * self.scale) @ k.transpose(-2, -1)
        if self.kind == "relu":
            scores = scores.relu()
        length = k.shape[-2]
        y = (scores.masked_fill(later(at, length), 0.0) if self.causal else scores) @ v
        if self.normaliser == "position":
            return y / (at + 1).to(y.dtype).unsqueeze(-1)
        return y / length if self.normaliser == "length" else y


def fast_length(needed: int, length: int) -> int:
    """How many of `length` tokens to compute if `needed` are enough: also those up to a multiple of `VECTOR`."""
    rounded = -(-needed // VECTOR) * VECTOR
    return rounded if rounded <= length else needed


def later(at: Positions, length: int) -> Bool[Tensor, "M L"]:
    """True where the key comes after the query, so that a causal query does not see the key."""
    return torch.arange(length, device=at.device) > at.unsqueeze(-1)


class _Plain(torch.autograd.Function):
    """Softmax attention and its gradient as products, with fewer copies than torch makes for the same formula."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Float[Tensor, "B H M K"],
        k: Float[Tensor, "B H L K"],
        v: Float[Tensor, "B H L K"],
        hidden: Bool[Tensor, "M L"] | None,
        scale: float,
    ) -> Float[Tensor, "B H M K"]:
        batch = q.shape[:2]
        q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        bias = q.new_zeros(q.shape[1], k.shape[1])
        if hidden is not None:
            bias.masked_fill_(hidden, -torch.inf)
        weights = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale).softmax(-1)
        ctx.save_for_backward(q, k, v, weights)
        ctx.scale = scale
        return (weights @ v).unflatten(0, batch)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  # the decorator loses the names of parameters
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        (gradient,), (q, k, v, weights) = grad_outputs, ctx.saved_tensors
        batch, gradient = gradient.shape[:2], gradient.flatten(0, 1)
        scores = torch.ops.aten._softmax_backward_data(
            gradient @ v.transpose(1, 2), weights, -1, weights.dtype
        )
        gradients = (
            torch.baddbmm(q, scores, k, beta=0, alpha=ctx.scale),
            torch.baddbmm(k, scores.transpose(1, 2), q, beta=0, alpha=ctx.scale),
            weights.transpose(1, 2) @ gradient,
        )
        return *(part.unflatten(0, batch) for part in gradients), None, None
