"""Descent on an autoregression by full attention, held against descent itself on the same past."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, pad

from loopscale.core.prompt import Prompt
from loopscale.tasks.representation_regression import Representation
from loopscale.theory.constructions.autoregression import Autoregression
from loopscale.theory.constructions.base import blocks

EXACT = 1e-10
DEEP = {"layers": 3, "width": 7, "slope": 0.2}


def series(dim: int, length: int, prompts: int = 2) -> Tensor:
    """A stable autoregression of order 2, with noise."""
    rng = torch.Generator().manual_seed(100 * dim + length)
    noise = torch.randn(length, prompts, dim, generator=rng, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(prompts, dim, dim, generator=rng, dtype=torch.float64))[0]
    xs = [noise[0], noise[1]]
    for n in range(2, length):
        xs.append(0.6 * torch.einsum("pde,pe->pd", turn, xs[-1]) - 0.3 * xs[-2] + 0.3 * noise[n])
    return torch.stack(xs, 1)


def forecasts(xs: Tensor, made: Autoregression, steps: int) -> Tensor:
    """What descent from A = 0 says of the token after the last, [steps, prompts, dim]."""
    q, dim = made.lags, xs.shape[-1]
    known = pad(xs, (0, 0, q, 0))
    past = known.unfold(1, q, 1).transpose(2, 3).flatten(2)
    phi = Representation(q * dim, made.layers, made.width, made.slope, made.gain, made.representation_seed)
    for weight in phi.weights:
        past = leaky_relu(past @ weight.double(), made.slope)
    first = 0 if made.padded else q
    features, targets, query = past[:, first:-1], xs[:, first:], past[:, -1]
    a, said = torch.zeros(len(xs), dim, past.shape[-1], dtype=torch.float64), []
    for _ in range(steps):
        residuals = features @ a.mT - targets
        a = a - made.rate / features.shape[1] * residuals.mT @ features
        said.append((a @ query[:, :, None])[..., 0])
    return torch.stack(said)


def distance(dim: int = 3, length: int = 25, steps: int = 30, **settings) -> float:
    xs, made = series(dim, length), Autoregression.model_validate({"rate": 0.2} | settings)
    said = made.net(Prompt(length, dim, dim))(xs, steps)[:, :, -1]
    expected = forecasts(xs, made, steps)
    assert expected.abs().max() > 0.01, "a forecast of 0 tests nothing"
    return (said - expected).abs().max().item()


@pytest.mark.parametrize(("dim", "length", "lags"), [(1, 4, 1), (3, 25, 3), (2, 60, 5)])
@pytest.mark.parametrize("representation", [{}, DEEP], ids=["linear", "deep"])
@pytest.mark.parametrize("padded", [True, False])
def test_loops_are_steps_of_descent_with_relu(
    dim: int, length: int, lags: int, representation: dict, padded: bool
):
    settings = {"variant": "relu", "lags": lags, "padded": padded} | representation
    assert distance(dim, length, **settings) < EXACT / 100


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(
    ("expansion", "scales", "atol"),
    [(1, (1e-2, 1e-4), 0.1), (2, (1e-1, 1e-2), 0.1), (4, (3e-2, 1e-2), 0.2)],
)
def test_softmax_nears_descent_with_the_order_of_its_expansion(
    expansion: int, scales: tuple[float, float], atol: float, padded: bool
):
    near, far = (
        distance(steps=5, expansion=expansion, scale=scale, padded=padded, **DEEP) for scale in scales
    )
    assert math.log(near / far) / math.log(scales[0] / scales[1]) == pytest.approx(expansion, abs=atol)
    assert Autoregression.model_validate({"expansion": expansion}).order == expansion


def test_as_it_stands_softmax_is_near_descent_for_long():
    assert distance(steps=100, dim=2, length=60) < 1e-9


def test_its_layers_are_one_for_the_past_and_one_for_each_of_the_representation():
    net = Autoregression.model_validate(DEEP | {"expansion": 2}).net(Prompt(20, 2, 2))
    assert len(blocks(net)) == 3 + 1 + 1
    heads = [block.attention.out.weight.chunk(block.attention.heads, 1) for block in blocks(net)]
    used = [sum(bool((head != 0).any()) for head in layer) for layer in heads]
    assert used == [3, 0, 0, 2, 1], "q heads, the theorem's two in the loop, and one after it"


@pytest.mark.parametrize(
    ("prompt", "condition"),
    [(Prompt(9, 2, 1), "forecasts of as many"), (Prompt(3, 2, 2), "more than 3 tokens")],
)
def test_prompts_that_do_not_fit_are_refused(prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction autoregression is for .*{condition}"):
        Autoregression().net(prompt)
