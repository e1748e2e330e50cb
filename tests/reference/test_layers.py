"""Layers against torch's encoder layer, against explicit formulas, and against a gradient step."""

from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from loopscale.core.seeds import stream
from loopscale.models.attention import Attention
from loopscale.models.layers import Block
from loopscale.models.looped import Looped


def state(*shape: int, seed: str = "state") -> Tensor:
    return torch.randn(*shape, generator=stream(seed), dtype=torch.float64)


def with_large_weights(module: nn.Module) -> nn.Module:
    """The module with large weights, so that every part has a visible effect beside the residual."""
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.copy_(state(*parameter.shape, seed=f"weight {index}") * 0.3)
    return module


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_block_equals_the_encoder_layer_of_torch(activation: Literal["relu", "gelu"], causal: bool):
    settings = Looped(width=12, heads=3, mlp_width=20, activation=activation, causal=causal)
    block = with_large_weights(Block(settings, "softmax").double())
    assert isinstance(block, Block)
    assert block.mlp is not None
    layer = nn.TransformerEncoderLayer(
        12, 3, 20, 0.0, activation, batch_first=True, norm_first=True, dtype=torch.float64
    )
    pairs = [
        (layer.self_attn.in_proj_weight, block.attention.qkv.weight),
        (layer.self_attn.in_proj_bias, block.attention.qkv.bias),
        (layer.self_attn.out_proj.weight, block.attention.out.weight),
        (layer.self_attn.out_proj.bias, block.attention.out.bias),
        *zip(layer.linear1.parameters(), block.mlp[0].parameters(), strict=True),
        *zip(layer.linear2.parameters(), block.mlp[2].parameters(), strict=True),
        *zip(layer.norm1.parameters(), block.attention_norm.parameters(), strict=True),
        *zip(layer.norm2.parameters(), block.mlp_norm.parameters(), strict=True),
    ]
    with torch.no_grad():
        for reference, weight in pairs:
            reference.copy_(weight)
    x = state(2, 7, 12)
    mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64) if causal else None
    torch.testing.assert_close(block(x), layer(x, src_mask=mask, is_causal=causal))


def explicit_attention(attention: Attention, x: Tensor, settings: Looped, causal: bool) -> Tensor:
    """The result of attention, computed one query, head and key at a time."""
    width = settings.head_width
    (wq, wk, wv), (bq, bk, bv) = attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3)
    out = attention.out.bias.expand_as(x).clone()
    length = x.shape[1]
    for prompt in range(len(x)):
        for head in range(settings.heads):
            rows = slice(head * width, (head + 1) * width)
            q, k, v = (x[prompt] @ w[rows].T + b[rows] for w, b in ((wq, bq), (wk, bk), (wv, bv)))
            for i in range(length):
                keys = range(i + 1) if causal else range(length)
                scores = torch.stack([settings.scale * (q[i] @ k[j]) for j in keys])
                if settings.attention == "softmax":
                    scores = scores.exp() / scores.exp().sum()
                elif settings.attention == "relu":
                    scores = scores.clamp(min=0)
                divisor = {"none": 1, "length": length, "position": i + 1, None: 1}[settings.normaliser]
                y = sum(score / divisor * v[j] for score, j in zip(scores, keys, strict=True))
                out[prompt, i] += attention.out.weight[:, rows] @ y
    return out


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {"attention": "softmax"},
        {"attention": "softmax", "score_scale": 1.0, "head_dim": 6},
        *(
            {"attention": attention, "normaliser": normaliser, "head_dim": head_dim}
            for attention in ("relu", "linear")
            for normaliser in ("none", "length", "position")
            for head_dim in (None, 6)
        ),
    ],
    ids=lambda settings: "-".join(str(value) for value in settings.values()),
)
def test_attention_equals_its_formula(settings: dict[str, Any], causal: bool):
    tree = {"width": 6, "heads": 2, "causal": causal} | settings
    if settings.get("normaliser") == "position" and not causal:
        with pytest.raises(ValueError, match="needs a decoder; for an encoder"):
            Looped.model_validate(tree)
        return
    model = Looped.model_validate(tree)
    attention = with_large_weights(Attention(model, model.kinds[0]).double())
    assert isinstance(attention, Attention)
    x = state(2, 5, 6)
    torch.testing.assert_close(attention(x), explicit_attention(attention, x, model, causal))


@torch.no_grad()
def test_a_block_of_linear_attention_takes_gradient_steps():
    """Without norm and MLP, every loop computes u_i <- u_i - η/i Σ_{j<=i} u_j <x_j, x_i>.

    From u = -y, the first loop is a gradient step from 0 on every prefix (von Oswald et al. 2023).
    """
    dim, points, rate, loops = 3, 8, 0.1, 5
    settings = Looped(
        width=dim + 1,
        heads=1,
        head_dim=dim + 1,
        mlp_width=0,
        attention="linear",
        normaliser="position",
        norm="none",
        positions="none",
        injection="none",
        score_scale=1.0,
    )
    block = Block(settings, "linear").double()
    for parameter in block.parameters():
        parameter.zero_()
    queries, keys, values = block.attention.qkv.weight.chunk(3)
    queries[:dim, :dim] = keys[:dim, :dim] = torch.eye(dim)
    values[dim, dim] = 1
    block.attention.out.weight[dim, dim] = -rate

    x, u = state(4, points, dim), state(4, points, 1, seed="residual")
    token = torch.cat([x, u], -1)
    for _ in range(loops):
        token = block(token)
        u = u - rate * torch.stack(
            [
                sum(u[:, j] * (x[:, j] * x[:, i]).sum(-1, keepdim=True) for j in range(i + 1)) / (i + 1)
                for i in range(points)
            ],
            1,
        )
    torch.testing.assert_close(token, torch.cat([x, u], -1), atol=1e-14, rtol=1e-13)


@torch.no_grad()
def test_an_encoder_with_linear_attention_runs_gradient_descent_on_least_squares():
    """Lemma A.2 of AlgoFormer, with linear attention: the last coordinates are the residuals <w, x_i> - y_i."""
    dim, points, rate, loops = 3, 8, 0.1, 20
    settings = Looped(
        width=dim + 1,
        heads=1,
        head_dim=dim + 1,
        mlp_width=0,
        attention="linear",
        causal=False,
        normaliser="length",
        norm="none",
        positions="none",
        score_scale=1.0,
    )
    block = Block(settings, "linear").double()
    for parameter in block.parameters():
        parameter.zero_()
    queries, keys, values = block.attention.qkv.weight.chunk(3)
    queries[:dim, :dim] = keys[:dim, :dim] = torch.eye(dim)
    values[dim, dim] = 1
    block.attention.out.weight[dim, dim] = -rate

    x, y = state(4, points, dim), state(4, points, 1, seed="label")
    token, weights = torch.cat([x, -y], -1), torch.zeros(4, dim, 1, dtype=torch.float64)
    for _ in range(loops):
        token = block(token)
        weights = weights - rate / points * x.mT @ (x @ weights - y)
    torch.testing.assert_close(token[..., -1:], x @ weights - y)
