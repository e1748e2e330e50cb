"""Descent on an autoregression with full attention, compared with descent on the same past."""

import math

import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.autoregression import Autoregression, lagged_regression, random_series
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.regression import least_squares_descent

EXACT = 1e-10
DEEP = {"layers": 3, "width": 7, "slope": 0.2}


def distance(dim: int = 3, length: int = 25, steps: int = 30, **settings) -> float:
    xs = random_series(torch.Generator().manual_seed(100 * dim + length), dim, length, prompts=2)
    construction = Autoregression.model_validate({"rate": 0.2} | settings)
    outputs = construction.net(Prompt(length, dim, dim))(xs, steps)[:, :, -1]
    expected = least_squares_descent(
        *lagged_regression(xs, construction.lags, construction.representation(dim), construction.padded),
        construction.rate,
        steps,
    )
    assert expected.abs().max() > 0.01, "a forecast of 0 would test nothing"
    return (outputs - expected).abs().max().item()


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
    ("expansion", "scales", "atol"), [(1, (1e-2, 1e-4), 0.1), (2, (1e-1, 1e-2), 0.1), (4, (3e-2, 1e-2), 0.2)]
)
def test_softmax_error_has_the_order_of_the_expansion(
    expansion: int, scales: tuple[float, float], atol: float, padded: bool
):
    near, far = (
        distance(steps=5, expansion=expansion, scale=scale, padded=padded, **DEEP) for scale in scales
    )
    assert math.log(near / far) / math.log(scales[0] / scales[1]) == pytest.approx(expansion, abs=atol)
    construction = Autoregression.model_validate({"expansion": expansion})
    assert construction.limit is not None
    assert construction.limit.order == expansion


def test_default_softmax_stays_close_to_descent_for_100_loops():
    assert distance(steps=100, dim=2, length=60) < 1e-9


def test_number_of_layers_and_heads():
    net = Autoregression.model_validate(DEEP | {"expansion": 2}).net(Prompt(20, 2, 2))
    assert len(blocks(net)) == 3 + 1 + 1
    heads = [block.attention.out.weight.chunk(block.attention.heads, 1) for block in blocks(net)]
    used = [sum(bool((head != 0).any()) for head in layer) for layer in heads]
    assert used == [3, 0, 0, 2, 1], "q heads, two heads in the loop as in the theorem, one after it"


@pytest.mark.parametrize(
    ("prompt", "condition"),
    [(Prompt(9, 2, 1), "forecasts with as many"), (Prompt(3, 2, 2), "more than 3 tokens")],
)
def test_unsuitable_prompts_raise(prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction autoregression requires .*{condition}"):
        Autoregression().net(prompt)
