"""EM with gradient M-steps for mixtures of regressions, iteration by iteration, held against the algorithm itself."""

import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.example import approach, distances, order
from loopscale.theory.constructions.mixtures_of_regressions import (
    MixtureOfRegressions,
    RegressionsEM,
    RegressionsEMByKnots,
)


def off(made: MixtureOfRegressions, dim: int = 3, count: int = 60, steps: int = 10) -> float:
    """The largest distance from the algorithm."""
    example = made.example(
        torch.Generator().manual_seed(100 * dim + count), dim, count, prompts=2, steps=steps
    )
    wanted, starts = example.expected[-1], example.tokens[..., :-1]
    assert (wanted - starts).abs().nan_to_num(0).max() > 0.01, "an algorithm that does not move tests nothing"
    return distances(made, example).max().item()


@pytest.mark.parametrize(("dim", "count", "components"), [(3, 60, 3), (1, 12, 2), (6, 40, 2), (2, 9, 1)])
@pytest.mark.parametrize("gradient_steps", [1, 3])
def test_loops_are_iterations_of_em(dim: int, count: int, components: int, gradient_steps: int):
    made = RegressionsEM(components=components, noise=0.5, gradient_steps=gradient_steps, rate=0.3)
    assert off(made, dim, count) < 1e-12


def test_nothing_is_left_behind_by_a_loop_that_adds_up():
    assert off(RegressionsEM(components=3), steps=60) < 1e-11


@pytest.mark.parametrize("gradient_steps", [1, 3])
def test_a_loop_has_the_layers_that_are_counted(gradient_steps: int):
    prompt = Prompt(20, 4, 3)
    exact = RegressionsEM(gradient_steps=gradient_steps).net(prompt)
    knots = RegressionsEMByKnots(gradient_steps=gradient_steps, pieces=8).net(prompt)
    assert len(blocks(exact)) == 1 + 5 + 3 * (gradient_steps - 1)
    assert len(blocks(knots)) == 1 + 3 + 2 * (gradient_steps - 1)


@pytest.mark.parametrize("gradient_steps", [1, 2])
def test_squares_by_knots_near_em_with_the_square_of_the_pieces(gradient_steps: int):
    made = RegressionsEMByKnots(components=3, gradient_steps=gradient_steps)
    found = approach(made, made.limit)
    assert found[-1] < 1e-3
    assert order(made.limit, found) == pytest.approx(2, abs=0.3)


def test_a_mask_smaller_than_the_residuals_is_too_small():
    example = RegressionsEM().example(torch.Generator().manual_seed(0))
    assert distances(RegressionsEM(largest=10.0), example).max() < 1e-12, "9.4 is the largest in this problem"
    assert distances(RegressionsEM(largest=8.0), example).max() > 1e-3


@pytest.mark.parametrize(
    ("prompt", "condition"),
    [
        (Prompt(2, 4, 3), "more tokens than components"),
        (Prompt(20, 4, 4), "tokens of x's coordinates and y's"),
    ],
)
@pytest.mark.parametrize("made", [RegressionsEM(), RegressionsEMByKnots()], ids=lambda made: made.kind)
def test_prompts_that_do_not_fit_are_refused(made: MixtureOfRegressions, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction {made.kind} is for .*{condition}"):
        made.net(prompt)
