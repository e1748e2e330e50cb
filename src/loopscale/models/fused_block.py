"""A transformer block with softmax attention as one function, whose gradient is written by hand.

torch's own gradient starts about twice as many operations, copies queries, keys and values one by one, and calls
Python for every product in oneDNN. At width 32 such calls take as long as the products. Shapes: B batch, L length,
M positions of queries, H heads, D width, K width of a head, I = H K, J = 3 I,
F hidden width of the MLP, P parts (of queries, keys and values), G = B H, C = P I.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from loopscale.models.attention import Positions, later
from loopscale.models.linear import (
    activated_product,
    head_products,
    in_onednn,
    product,
    product_plus,
    weight_gradient,
)

aten = torch.ops.aten


@dataclass(frozen=True)
class BlockSettings:
    """The settings of a block that are no weights."""

    heads: int
    scale: float
    """Factor of the scores q . k."""
    causal: bool
    activation: Literal["gelu", "relu"]
    epsilon: float = 1e-5
    """Added to the variances of both LayerNorms; torch's default."""


class BlockWeights(NamedTuple):
    """The weights of a block, in the order of the arguments of `fused_block`."""

    norm: Float[Tensor, " D"]
    norm_bias: Float[Tensor, " D"]
    qkv: Float[Tensor, "J D"]
    qkv_bias: Float[Tensor, " J"]
    out: Float[Tensor, "D I"]
    out_bias: Float[Tensor, " D"]
    mlp_norm: Float[Tensor, " D"]
    mlp_norm_bias: Float[Tensor, " D"]
    hidden: Float[Tensor, "F D"]
    hidden_bias: Float[Tensor, " F"]
    mlp_out: Float[Tensor, "D F"]
    mlp_out_bias: Float[Tensor, " D"]


def fused_block(
    x: Float[Tensor, "B L D"], at: Positions | None, settings: BlockSettings, weights: tuple[Tensor, ...]
) -> Float[Tensor, "B M D"]:
    """The states after the block at the positions `at`; `None` for all positions.

    Parameters
    ----------
    weights
        In the order of `BlockWeights`. All are float32 or float64 tensors on one device.
    """
    if torch.is_grad_enabled():
        return _FusedBlock.apply(x, at, settings, *weights)
    return _states(x, at, settings, BlockWeights(*weights), None)


class _Kept(NamedTuple):
    """The values of the forward pass that the backward pass reads."""

    x: Float[Tensor, "B L D"]
    normed: Float[Tensor, "B L D"]
    mean: Float[Tensor, "B L 1"]
    rstd: Float[Tensor, "B L 1"]
    normed_asked: Float[Tensor, "B M D"]
    q: Float[Tensor, "G M K"]
    k: Float[Tensor, "G L K"]
    v: Float[Tensor, "G L K"]
    shares: Float[Tensor, "G M L"]
    heads: Float[Tensor, "B M I"]
    state: Float[Tensor, "B M D"]
    mlp_normed: Float[Tensor, "B M D"]
    mlp_mean: Float[Tensor, "B M 1"]
    mlp_rstd: Float[Tensor, "B M 1"]
    before: Float[Tensor, "B M F"]
    after: Float[Tensor, "B M F"]


def _states(
    x: Float[Tensor, "B L D"],
    at: Positions | None,
    settings: BlockSettings,
    w: BlockWeights,
    kept: list[Tensor] | None,
) -> Float[Tensor, "B M D"]:
    """The states after the block. The values of `_Kept` are appended to `kept`."""
    shape = (x.shape[-1],)
    normed, mean, rstd = torch.native_layer_norm(x, shape, w.norm, w.norm_bias, settings.epsilon)
    if at is None:
        asked, normed_asked = x, normed
        q, k, v = _to_heads(normed, w.qkv, w.qkv_bias, 3, settings.heads)
    else:
        inner = w.out.shape[1]
        asked, normed_asked = x.index_select(1, at), normed.index_select(1, at)
        (q,) = _to_heads(normed_asked, w.qkv[:inner], w.qkv_bias[:inner], 1, settings.heads)
        k, v = _to_heads(normed, w.qkv[inner:], w.qkv_bias[inner:], 2, settings.heads)
    hidden = _hidden_keys(x.shape[1], settings.causal, x.dtype, x.device)
    if at is not None:
        hidden = hidden.index_select(0, at)
    scores = torch.bmm(q, k.transpose(1, 2))
    # Added here, because a product that adds first copies `hidden` for every prompt and head.
    shares = torch.add(hidden, scores, alpha=settings.scale, out=scores).softmax(-1)
    heads = _merge(torch.bmm(shares, v).unsqueeze(0), settings.heads)
    state = product_plus(heads, w.out, w.out_bias, asked)
    mlp_normed, mlp_mean, mlp_rstd = torch.native_layer_norm(
        state, shape, w.mlp_norm, w.mlp_norm_bias, settings.epsilon
    )
    if kept is None:
        after = activated_product(mlp_normed, w.hidden, w.hidden_bias, settings.activation)
    else:
        before = product(mlp_normed, w.hidden, w.hidden_bias)
        after = F.relu(before) if settings.activation == "relu" else F.gelu(before)
        attention = (x, normed, mean, rstd, normed_asked, q, k, v, shares, heads)
        kept += _Kept(*attention, state, mlp_normed, mlp_mean, mlp_rstd, before, after)
    return product_plus(after, w.mlp_out, w.mlp_out_bias, state)


class _FusedBlock(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "B L D"],
        at: Positions | None,
        settings: BlockSettings,
        *weights: Tensor,
    ) -> Float[Tensor, "B M D"]:
        kept = list[Tensor]()
        states = _states(x, at, settings, BlockWeights(*weights), kept)
        ctx.settings, ctx.at = settings, at
        ctx.save_for_backward(*kept, *weights)
        return states

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  # the decorator loses the names of parameters
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        (gradient,), settings, at, saved = grad_outputs, ctx.settings, ctx.at, ctx.saved_tensors
        kept, w = _Kept(*saved[: len(_Kept._fields)]), BlockWeights(*saved[len(_Kept._fields) :])
        shape, heads, scale = (gradient.shape[-1],), settings.heads, settings.scale

        d_before = product(gradient, w.mlp_out.t())
        if settings.activation == "relu":
            d_before = aten.threshold_backward(d_before, kept.before, 0)
        else:
            d_before = aten.gelu_backward(d_before, kept.before)
        d_state, d_mlp_norm, d_mlp_norm_bias = aten.native_layer_norm_backward(
            product(d_before, w.hidden.t()),
            kept.state,
            shape,
            kept.mlp_mean,
            kept.mlp_rstd,
            w.mlp_norm,
            w.mlp_norm_bias,
            [True, True, True],
        )
        d_state += gradient

        (d_heads,) = _to_heads(d_state, w.out.t(), None, 1, heads)
        q, k, v, shares = kept.q, kept.k, kept.v, kept.shares
        d_scores = aten._softmax_backward_data(
            torch.bmm(d_heads, v.transpose(1, 2)), shares, -1, shares.dtype
        )
        # The products write into one tensor, which `_merge` copies once.
        if at is None:
            d_qkv = q.new_empty(3, *q.shape)
            d_q, d_k, d_v = d_qkv
        else:
            d_q, d_qkv = torch.empty_like(q), k.new_empty(2, *k.shape)
            d_k, d_v = d_qkv
        torch.baddbmm(d_q, d_scores, k, beta=0, alpha=scale, out=d_q)
        torch.baddbmm(d_k, d_scores.transpose(1, 2), q, beta=0, alpha=scale, out=d_k)
        torch.bmm(shares.transpose(1, 2), d_heads, out=d_v)
        d_qkv = _merge(d_qkv, heads)
        if at is None:
            d_normed = product(d_qkv, w.qkv.t())
            d_weights, d_biases = weight_gradient(d_qkv, kept.normed), _sum(d_qkv)
        else:
            inner = w.out.shape[1]
            d_q = _merge(d_q.unsqueeze(0), heads)
            d_normed = product(d_qkv, w.qkv[inner:].t())
            d_normed.index_add_(1, at, product(d_q, w.qkv[:inner].t()))
            d_weights = torch.cat(
                [weight_gradient(d_q, kept.normed_asked), weight_gradient(d_qkv, kept.normed)]
            )
            d_biases = torch.cat([_sum(d_q), _sum(d_qkv)])
        d_x, d_norm, d_norm_bias = aten.native_layer_norm_backward(
            d_normed, kept.x, shape, kept.mean, kept.rstd, w.norm, w.norm_bias, [True, True, True]
        )
        if at is None:
            d_x += d_state
        else:
            d_x.index_add_(1, at, d_state)
        return (
            d_x,
            None,
            None,
            d_norm,
            d_norm_bias,
            d_weights,
            d_biases,
            weight_gradient(d_state, kept.heads),
            _sum(d_state),
            d_mlp_norm,
            d_mlp_norm_bias,
            weight_gradient(d_before, kept.mlp_normed),
            _sum(d_before),
            weight_gradient(gradient, kept.after),
            _sum(gradient),
        )


def _to_heads(
    x: Float[Tensor, "B L D"],
    weight: Float[Tensor, "C D"],
    bias: Float[Tensor, " C"] | None,
    parts: int,
    heads: int,
) -> Float[Tensor, "P G L K"]:
    """The product x weightᵀ + bias, with its parts (queries, keys, values) and heads apart.

    G counts heads of prompts with oneDNN, and prompts of heads with MKL.
    """
    batch, length, _ = x.shape
    if not in_onednn(x):
        return head_products(x, weight, bias, parts * heads).view(parts, heads * batch, length, -1)
    apart = product(x, weight, bias).view(batch, length, parts, heads, -1)
    return apart.permute(2, 0, 3, 1, 4).reshape(parts, batch * heads, length, -1)  # one copy for all parts


def _merge(x: Float[Tensor, "P G L K"], heads: int) -> Float[Tensor, "B L C"]:
    """The parts and heads of `_to_heads` side by side, as columns."""
    parts, _, length, width = x.shape
    if in_onednn(x):
        together = x.view(parts, -1, heads, length, width).permute(1, 3, 0, 2, 4)
    else:
        together = x.view(parts, heads, -1, length, width).permute(2, 3, 0, 1, 4)
    return together.reshape(-1, length, parts * heads * width)


def _sum(gradient: Float[Tensor, "B L N"]) -> Float[Tensor, " N"]:
    """The gradient of a bias. The sum over one dimension takes half the time of the sum over two."""
    return gradient.reshape(-1, gradient.shape[-1]).sum(0)


@cache
def _hidden_keys(length: int, causal: bool, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "L L"]:
    """Added to the scores: -inf where a key comes after the query, else 0."""
    bias = torch.zeros(length, length, dtype=dtype, device=device)
    if causal:
        bias.masked_fill_(later(torch.arange(length, device=device), length), -torch.inf)
    return bias
