"""EM with gradient M-steps for mixtures of regressions, compared with the algorithm after every iteration."""

import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.mixtures_of_regressions import (
    MixtureOfRegressions,
    RegressionsEM,
    RegressionsEMByKnots,
)
from loopscale.theory.constructions.verification import approach, distances, order


def distance(construction: MixtureOfRegressions, dim: int = 3, count: int = 60, steps: int = 10) -> float:
    """The largest distance from the algorithm."""
    example = construction.example(
        torch.Generator().manual_seed(100 * dim + count), dim, count, prompts=2, steps=steps
    )
    wanted, starts = example.expected[-1], example.tokens[..., :-1]
    assert (wanted - starts).abs().nan_to_num(0).max() > 0.01, (
        "an algorithm that does not move would test nothing"
    )
    return distances(construction, example).max().item()


@pytest.mark.parametrize(("dim", "count", "components"), [(3, 60, 3), (1, 12, 2), (6, 40, 2), (2, 9, 1)])
@pytest.mark.parametrize("gradient_steps", [1, 3])
def test_loops_are_iterations_of_em(dim: int, count: int, components: int, gradient_steps: int):
    construction = RegressionsEM(components=components, noise=0.5, gradient_steps=gradient_steps, rate=0.3)
    assert distance(construction, dim, count) < 1e-12


def test_errors_do_not_accumulate_over_60_loops():
    assert distance(RegressionsEM(components=3), steps=60) < 1e-11


@pytest.mark.parametrize("gradient_steps", [1, 3])
def test_number_of_layers_per_loop(gradient_steps: int):
    prompt = Prompt(20, 4, 3)
    exact = RegressionsEM(gradient_steps=gradient_steps).net(prompt)
    knots = RegressionsEMByKnots(gradient_steps=gradient_steps, pieces=8).net(prompt)
    assert len(blocks(exact)) == 1 + 5 + 3 * (gradient_steps - 1)
    assert len(blocks(knots)) == 1 + 3 + 2 * (gradient_steps - 1)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("gradient_steps", [1, 2])
def test_error_of_piecewise_squares_has_order_two(gradient_steps: int):
    construction = RegressionsEMByKnots(components=3, gradient_steps=gradient_steps)
    errors = approach(construction, construction.limit)
    assert errors[-1].max() < 1e-3
    assert order(construction.limit, errors).value == pytest.approx(2, abs=0.3)


def test_a_bound_below_the_residuals_breaks_the_algorithm():
    example = RegressionsEM().example(torch.Generator().manual_seed(0))
    assert distances(RegressionsEM(largest=10.0), example).max() < 1e-12, (
        "9.4 is the largest residual in this problem"
    )
    assert distances(RegressionsEM(largest=8.0), example).max() > 1e-3


@pytest.mark.parametrize(
    ("prompt", "condition"),
    [
        (Prompt(2, 4, 3), "more tokens than components"),
        (Prompt(20, 4, 4), "tokens that hold x's coordinates and y"),
    ],
)
@pytest.mark.parametrize(
    "construction", [RegressionsEM(), RegressionsEMByKnots()], ids=lambda construction: construction.kind
)
def test_unsuitable_prompts_raise(construction: MixtureOfRegressions, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction {construction.kind} requires .*{condition}"):
        construction.net(prompt)
