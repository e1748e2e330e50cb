import pytest
import torch

from loopscale.core.seeds import stream
from loopscale.models.attention import Attention, fast_length
from loopscale.models.base import Model


@pytest.mark.parametrize(
    ("needed", "length", "computed"),
    [(15, 16, 16), (21, 22, 21), (31, 32, 32), (79, 82, 80), (8, 8, 8), (9, 40, 16)],
)
def test_tokens_up_to_a_multiple_of_sixteen_are_computed_if_there_are_so_many(needed, length, computed):
    assert fast_length(needed, length) == computed


@pytest.mark.parametrize("length", [7, 15, 16, 21, 64, 65])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_and_its_gradient_equal_the_formula_at_every_length(length: int, causal: bool):
    settings = Model.model_validate({"kind": "gpt2", "width": 12, "heads": 2, "causal": causal})
    rng = stream("attention")
    attention = Attention(settings, "softmax")
    for weight in attention.parameters():
        torch.nn.init.normal_(weight, std=0.3, generator=rng)
    x = torch.randn(3, length, 12, generator=rng, requires_grad=True)
    at = torch.arange(0, length, 2)

    q, k, v = (part.unflatten(-1, (2, 6)).transpose(1, 2) for part in attention.qkv(x).chunk(3, -1))
    scores = q @ k.transpose(-2, -1) * 6**-0.5
    if causal:
        scores = scores + torch.full((length, length), -torch.inf).triu(1)
    expected = attention.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
    weights = torch.randn(expected.shape, generator=rng)
    (wanted,) = torch.autograd.grad((expected * weights)[:, at].sum(), x)
    for computed, picked in ((attention(x)[:, at], weights[:, at]), (attention(x, at), weights[:, at])):
        torch.testing.assert_close(computed, expected[:, at], rtol=1e-4, atol=1e-5)
        (gradient,) = torch.autograd.grad((computed * picked).sum(), x)
        torch.testing.assert_close(gradient, wanted, rtol=1e-3, atol=1e-4)
