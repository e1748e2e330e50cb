"""The next state of a chain of thought, compared with descent on the level at which the chain stops."""

import math

import pytest
import torch
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.models.base import Net
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.filtering import Filtering, next_states, random_chains

EXACT = 1e-12


def drawn(dim: int, samples: int, levels: int, slope: float) -> Tensor:
    """x, s^1, ..., s^L of the samples and of the test chain, [prompts, samples + 1, levels + 1, dim]."""
    return random_chains(
        torch.Generator().manual_seed(100 * dim + samples), dim, samples, levels, slope, prompts=2
    )


def prompt_tokens(states: Tensor, stop: int) -> Tensor:
    """All chains. The last chain ends at level `stop`."""
    short = states.shape[2] - 1 - stop
    return states.flatten(1, 2)[:, : states.shape[1] * states.shape[2] - short]


def built(dim: int, samples: int, levels: int, **settings) -> Net:
    length = (samples + 1) * (levels + 1) - 1
    return Filtering.model_validate({"levels": levels} | settings).net(Prompt(length, dim, dim))


def distance(
    net: Net, states: Tensor, stop: int, slope: float = 0.2, rate: float = 0.1, steps: int = 30
) -> float:
    predictions = net(prompt_tokens(states, stop), steps)[:, :, -1]
    expected = next_states(states[:, :, stop : stop + 2], slope, rate, steps)
    assert expected[-1].abs().max() > 3e-3, "a state of 0 would test nothing"
    return (predictions - expected).abs().max().item()


@pytest.mark.parametrize(
    ("dim", "samples", "levels", "slope"), [(1, 1, 1, 0.5), (4, 24, 4, 0.2), (3, 6, 5, 0.05)]
)
def test_one_relu_net_descends_on_every_level(dim: int, samples: int, levels: int, slope: float):
    net = built(dim, samples, levels, variant="relu", slope=slope)
    states = drawn(dim, samples, levels, slope)
    assert max(distance(net, states, stop, slope) for stop in range(levels)) < EXACT


def test_one_softmax_net_descends_on_every_level_for_100_loops():
    net, states = built(4, 24, 4, rate=0.2), drawn(4, 24, 4, 0.2)
    assert max(distance(net, states, stop, rate=0.2, steps=100) for stop in range(4)) < 1e-9


@pytest.mark.parametrize("stop", [0, 2])
@pytest.mark.parametrize(
    ("expansion", "scales", "atol"), [(1, (1e-2, 1e-4), 0.1), (2, (1e-2, 1e-3), 0.1), (4, (1e-2, 3e-3), 0.2)]
)
def test_softmax_error_has_the_order_of_the_expansion(
    expansion: int, scales: tuple[float, float], atol: float, stop: int
):
    states = drawn(4, 12, 3, 0.2)
    nets = (built(4, 12, 3, expansion=expansion, scale=scale) for scale in scales)
    near, far = (distance(net, states, stop, steps=5) for net in nets)
    assert math.log(near / far) / math.log(scales[0] / scales[1]) == pytest.approx(expansion, abs=atol)
    limit = Filtering.model_validate({"expansion": expansion}).limit
    assert limit is not None
    assert limit.order == expansion


def test_many_loops_predict_the_next_state():
    net, states = built(3, 30, 3, variant="relu", rate=0.5), drawn(3, 30, 3, 0.2)
    predictions = net(prompt_tokens(states, 0), 400, first=400)[0, :, -1]
    torch.testing.assert_close(predictions, states[:, -1, 1], rtol=0, atol=1e-6)


def test_other_levels_do_not_affect_the_prediction():
    net, states = built(3, 8, 4), drawn(3, 8, 4, 0.2)
    changed = states.clone()
    changed[:, :, 0] += 1
    changed[:, :-1, 3:] += 1
    predictions, changed_predictions = (
        net(prompt_tokens(chosen, 1), 10)[:, :, -1] for chosen in (states, changed)
    )
    assert (predictions == changed_predictions).all()


def test_the_net_has_two_layers_before_the_loop_two_heads_inside_and_no_layer_after():
    net = built(3, 8, 4, expansion=2)
    heads = [block.attention.out.weight.chunk(block.attention.heads, 1) for block in blocks(net)]
    assert [sum(bool((head != 0).any()) for head in layer) for layer in heads] == [1, 2, 2, 0]


@pytest.mark.parametrize(
    ("prompt", "condition"),
    [
        (Prompt(8, 2, 2), "5 tokens for each of N samples and 4 more"),
        (Prompt(4, 2, 2), "5 tokens for each of N samples"),
        (Prompt(9, 2, 1), "as many coordinates as a state"),
    ],
)
def test_unsuitable_prompts_raise(prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction filtering requires .*{condition}"):
        Filtering().net(prompt)
