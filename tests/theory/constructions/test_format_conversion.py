"""Conversion of formats: every y receives the x of its pair, at every length, with the published sizes."""

import pytest
import torch
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.models.layered import LayeredNet
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.format_conversion import FormatConversion, with_repeated_x
from loopscale.theory.constructions.regression import interleaved_tokens

SIZES = [(1, 1, 1), (3, 10, 1), (5, 100, 1), (4, 7, 3)]


def drawn(dim: int, pairs: int, targets: int) -> Tensor:
    """x_1, y_1, ..., x_N, y_N, x_{N+1}, for 3 prompts."""
    rng = torch.Generator().manual_seed(100 * dim + pairs)
    return interleaved_tokens(
        *(torch.randn(3, pairs + 1, k, generator=rng, dtype=torch.float64) for k in (dim, targets))
    )


def converter(dim: int, pairs: int, targets: int) -> LayeredNet:
    width = dim + targets
    net = FormatConversion(targets=targets).net(Prompt(2 * pairs + 1, width, width))
    assert isinstance(net, LayeredNet)
    return net


@pytest.mark.parametrize(("dim", "pairs", "targets"), SIZES)
def test_every_y_gets_the_x_of_its_pair(dim: int, pairs: int, targets: int):
    tokens = drawn(dim, pairs, targets)
    out = converter(dim, pairs, targets)(tokens, 2)[-1]
    torch.testing.assert_close(out, with_repeated_x(tokens, targets), rtol=0, atol=1e-11)


def test_all_other_rows_are_unchanged():
    net = converter(3, 20, 1)
    before = net.stack.place(net.read_in(drawn(3, 20, 1)))
    after = net.stack.run(before)
    assert (after[..., 3:] == before[..., 3:]).all(), "y, the positions and the scratch rows"
    assert (after[:, 0::2] == before[:, 0::2]).all()


def test_outputs_do_not_depend_on_later_tokens():
    net, tokens = converter(3, 20, 1), drawn(3, 20, 1)
    changed = tokens.clone()
    changed[:, 20:] += 1
    assert (net(changed, 2)[-1, :, :20] == net(tokens, 2)[-1, :, :20]).all()


def spectral(matrix: Tensor) -> float:
    return torch.linalg.matrix_norm(matrix, 2).item()


@pytest.mark.parametrize(("dim", "pairs", "targets"), SIZES)
def test_norms_and_sizes_match_the_proposition(dim: int, pairs: int, targets: int):
    net = converter(dim, pairs, targets)
    sizes = []
    for block in blocks(net):
        attention = block.attention
        heads, inner = attention.heads, attention.out.in_features
        query, key, value = (third.chunk(heads) for third in attention.qkv.weight.split(inner))
        moves = [out @ v for out, v in zip(attention.out.weight.chunk(heads, 1), value, strict=True)]
        assert block.mlp is not None
        layers = [parameter for parameter in block.mlp.parameters() if parameter.ndim == 2]
        assert layers[0].shape[0] == 2, "hidden units"
        sizes.append(max(map(spectral, query + key)) + sum(map(spectral, moves + layers)))
        assert heads <= 3
    assert net.depth == 2
    assert sizes == pytest.approx([7.864, 6.236], abs=1e-3)
    assert net.read_in.out_features == dim + targets + 5


@pytest.mark.parametrize(
    ("prompt", "condition"),
    [(Prompt(9, 1, 1), "x's coordinates"), (Prompt(9, 4, 1), "of the same size as the tokens")],
)
def test_unsuitable_prompts_raise(prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=condition):
        FormatConversion().net(prompt)
