"""Copies of the last q tokens: bitwise exact with softmax, and without large weights with relu."""

import pytest
import torch
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.models.layered import LayeredNet
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.copying import Copying, lagged

SIZES = pytest.mark.parametrize(("dim", "length", "lags"), [(1, 1, 1), (3, 20, 4), (2, 5, 8), (4, 150, 3)])


def random_tokens(dim: int, length: int) -> Tensor:
    rng = torch.Generator().manual_seed(100 * dim + length)
    return torch.randn(3, length, dim, generator=rng, dtype=torch.float64)


@SIZES
@pytest.mark.parametrize("causal", [True, False])
def test_softmax_copies_are_bitwise_exact(dim: int, length: int, lags: int, causal: bool):
    xs = random_tokens(dim, length)
    net = Copying(lags=lags, causal=causal).net(Prompt(length, dim, (lags + 1) * dim))
    assert (net(xs, 1)[0] == lagged(xs, lags)).all()


@SIZES
@pytest.mark.parametrize("causal", [True, False])
def test_relu_copies_exactly_with_scores_of_one(dim: int, length: int, lags: int, causal: bool):
    xs = random_tokens(dim, length)
    net = Copying(lags=lags, causal=causal, attention="relu").net(Prompt(length, dim, (lags + 1) * dim))
    torch.testing.assert_close(net(xs, 1)[0], lagged(xs, lags), rtol=0, atol=1e-14)
    assert isinstance(net, LayeredNet)
    large = 2 * lags**2 + length + 2
    assert max(weight.abs().max().item() for weight in net.stack.blocks.parameters()) <= large


def test_the_construction_is_one_layer_of_q_heads_without_an_mlp():
    net = Copying(lags=5).net(Prompt(9, 2, 12))
    (block,) = blocks(net)
    assert (net.depth, block.attention.heads, block.mlp) == (1, 5, None)


def test_unsuitable_prompts_raise():
    with pytest.raises(
        ValueError, match="construction copying requires 8 outputs: 4 times the 2 coordinates of x"
    ):
        Copying().net(Prompt(9, 2, 6))
