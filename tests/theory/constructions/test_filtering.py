"""The next state of a chain of thought, held against descent on the level at which the chain stops."""

import math

import pytest
import torch
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.models.base import Net
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.filtering import Filtering, chains, successors

EXACT = 1e-12


def drawn(dim: int, samples: int, levels: int, slope: float) -> Tensor:
    """x, s^1, .., s^L of the samples and of the test, [prompts, samples + 1, levels + 1, dim]."""
    return chains(torch.Generator().manual_seed(100 * dim + samples), dim, samples, levels, slope, prompts=2)


def posed(states: Tensor, stop: int) -> Tensor:
    """All chains but the last whole, and that up to level `stop`."""
    short = states.shape[2] - 1 - stop
    return states.flatten(1, 2)[:, : states.shape[1] * states.shape[2] - short]


def made(dim: int, samples: int, levels: int, **settings) -> Net:
    length = (samples + 1) * (levels + 1) - 1
    return Filtering.model_validate({"levels": levels} | settings).net(Prompt(length, dim, dim))


def distance(
    net: Net, states: Tensor, stop: int, slope: float = 0.2, rate: float = 0.1, steps: int = 30
) -> float:
    said = net(posed(states, stop), steps)[:, :, -1]
    expected = successors(states[:, :, stop : stop + 2], slope, rate, steps)
    assert expected[-1].abs().max() > 3e-3, "a state of 0 tests nothing"
    return (said - expected).abs().max().item()


@pytest.mark.parametrize(
    ("dim", "samples", "levels", "slope"), [(1, 1, 1, 0.5), (4, 24, 4, 0.2), (3, 6, 5, 0.05)]
)
def test_one_relu_net_descends_on_every_level(dim: int, samples: int, levels: int, slope: float):
    net = made(dim, samples, levels, variant="relu", slope=slope)
    states = drawn(dim, samples, levels, slope)
    assert max(distance(net, states, stop, slope) for stop in range(levels)) < EXACT


def test_one_softmax_net_descends_on_every_level_for_long():
    net, states = made(4, 24, 4, rate=0.2), drawn(4, 24, 4, 0.2)
    assert max(distance(net, states, stop, rate=0.2, steps=100) for stop in range(4)) < 1e-9


@pytest.mark.parametrize("stop", [0, 2])
@pytest.mark.parametrize(
    ("expansion", "scales", "atol"),
    [(1, (1e-2, 1e-4), 0.1), (2, (1e-2, 1e-3), 0.1), (4, (1e-2, 3e-3), 0.2)],
)
def test_softmax_nears_descent_with_the_order_of_its_expansion(
    expansion: int, scales: tuple[float, float], atol: float, stop: int
):
    states = drawn(4, 12, 3, 0.2)
    nets = (made(4, 12, 3, expansion=expansion, scale=scale) for scale in scales)
    near, far = (distance(net, states, stop, steps=5) for net in nets)
    assert math.log(near / far) / math.log(scales[0] / scales[1]) == pytest.approx(expansion, abs=atol)
    limit = Filtering.model_validate({"expansion": expansion}).limit
    assert limit is not None
    assert limit.order == expansion


def test_looped_long_it_says_the_next_state():
    net, states = made(3, 30, 3, variant="relu", rate=0.5), drawn(3, 30, 3, 0.2)
    said = net(posed(states, 0), 400, first=400)[0, :, -1]
    torch.testing.assert_close(said, states[:, -1, 1], rtol=0, atol=1e-6)


def test_only_the_level_asked_for_matters():
    net, states = made(3, 8, 4), drawn(3, 8, 4, 0.2)
    changed = states.clone()
    changed[:, :, 0] += 1
    changed[:, :-1, 3:] += 1
    said, other = (net(posed(chosen, 1), 10)[:, :, -1] for chosen in (states, changed))
    assert (said == other).all()


def test_it_has_two_layers_before_the_loop_two_heads_in_it_and_none_after():
    net = made(3, 8, 4, expansion=2)
    heads = [block.attention.out.weight.chunk(block.attention.heads, 1) for block in blocks(net)]
    assert [sum(bool((head != 0).any()) for head in layer) for layer in heads] == [1, 2, 2, 0]


@pytest.mark.parametrize(
    ("prompt", "condition"),
    [
        (Prompt(8, 2, 2), "5 tokens for each of N samples and 4 more"),
        (Prompt(4, 2, 2), "5 tokens for each of N samples"),
        (Prompt(9, 2, 1), "as many coordinates as their successors"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction filtering is for .*{condition}"):
        Filtering().net(prompt)
