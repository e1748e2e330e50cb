"""The block as one function: values and gradients of torch's own operations, in every setting."""

import pytest
import torch

from loopscale.core.seeds import stream
from loopscale.models import linear
from loopscale.models.gpt2 import Gpt2
from loopscale.models.layers import Block


def block(activation: str, causal: bool, dtype: torch.dtype) -> Block:
    """A block with weights of order 1, so that every part matters."""
    settings = Gpt2(width=12, heads=3, layers=1, activation=activation, causal=causal)
    made, rng = Block(settings, "softmax").to(dtype), stream("weights")
    with torch.no_grad():
        for weight in made.parameters():
            weight.copy_(torch.randn(weight.shape, generator=rng, dtype=dtype) / weight.shape[-1] ** 0.5)
    return made


def values(made: Block, x: torch.Tensor, at: torch.Tensor | None) -> list[torch.Tensor]:
    """The states, and the gradients of the input and of all weights."""
    x = x.clone().requires_grad_()
    states = made(x, at)
    weights = torch.linspace(-1, 1, states.numel(), dtype=x.dtype).view(states.shape)
    return [states, *torch.autograd.grad((states * weights).sum(), [x, *made.parameters()])]


@pytest.mark.parametrize("library", ["mkl", "onednn"])
@pytest.mark.parametrize("at", [None, [0, 2, 17]], ids=["all", "queries"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)], ids=str)
def test_values_and_gradients_are_those_of_single_operations(
    activation: str,
    causal: bool,
    at: list[int] | None,
    library: linear.Library,
    dtype: torch.dtype,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(linear, "_chosen", library)
    made = block(activation, causal, dtype)
    x = torch.randn(4, 18, 12, generator=stream("states"), dtype=dtype)
    positions = None if at is None else torch.tensor(at)
    together = values(made, x, positions)
    monkeypatch.setattr(Block, "_fusible", lambda *_: False)
    apart = values(made, x, positions)
    for fused, single in zip(together, apart, strict=True):
        assert fused.shape == single.shape
        assert (fused - single).abs().max() <= tolerance * (1 + single.abs().max())


@pytest.mark.parametrize("library", ["mkl", "onednn"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_states_without_gradient_are_those_with_gradient(
    activation: str, library: linear.Library, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(linear, "_chosen", library)
    made = block(activation, True, torch.float32)
    x = torch.randn(4, 18, 12, generator=stream("states"))
    with torch.no_grad():
        without = made(x)
    assert not without.requires_grad
    assert (without - made(x)).abs().max() <= 2e-5
