"""EM with gradient M-steps for mixtures of regressions, iteration by iteration, held against the same in numpy."""

import numpy as np
import pytest
import torch
from scipy.special import softmax

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.mixtures_of_regressions import (
    MixtureOfRegressions,
    RegressionsEM,
    RegressionsEMByKnots,
)


def problem(
    dim: int, count: int, components: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y and coefficients to start from."""
    rng = np.random.default_rng(1000 * seed + 100 * dim + count)
    truth, x = rng.standard_normal((components, dim)), rng.standard_normal((count, dim))
    y = (x * truth[rng.integers(components, size=count)]).sum(1) + 0.3 * rng.standard_normal(count)
    return x, y, rng.standard_normal((components, dim))


def em(x, y, beta, steps: int, noise: float, rate: float, gradient_steps: int) -> np.ndarray:
    found = []
    for _ in range(steps):
        r = softmax(-((y[:, None] - x @ beta.T) ** 2) / (2 * noise**2), axis=1)
        for _ in range(gradient_steps):
            beta = beta + rate / len(x) * (r * (y[:, None] - x @ beta.T)).T @ x
        found.append(beta)
    return np.stack(found)


def distance(made: MixtureOfRegressions, dim: int, count: int, steps: int, seed: int = 0) -> float:
    x, y, beta = problem(dim, count, made.components, seed)
    tokens = np.concatenate([np.pad(beta, ((0, 0), (0, 1))), np.column_stack([x, y])])
    net = made.net(Prompt(len(tokens), dim + 1, dim))
    found = net(torch.tensor(tokens)[None], steps)[:, 0, : made.components].numpy()
    wanted = em(x, y, beta, steps, made.noise, made.rate, made.gradient_steps)
    assert np.abs(wanted[-1] - beta).max() > 0.01, "an algorithm that does not move tests nothing"
    return np.abs(found - wanted).max()


@pytest.mark.parametrize(("dim", "count", "components"), [(3, 60, 3), (1, 12, 2), (6, 40, 2), (2, 9, 1)])
@pytest.mark.parametrize("gradient_steps", [1, 3])
def test_loops_are_iterations_of_em(dim: int, count: int, components: int, gradient_steps: int):
    made = RegressionsEM(components=components, noise=0.5, gradient_steps=gradient_steps, rate=0.3)
    assert distance(made, dim, count, 10) < 1e-12


def test_nothing_is_left_behind_by_a_loop_that_adds_up():
    assert distance(RegressionsEM(components=3), 3, 60, 60) < 1e-11


@pytest.mark.parametrize("gradient_steps", [1, 3])
def test_a_loop_has_the_layers_that_are_counted(gradient_steps: int):
    prompt = Prompt(20, 4, 3)
    exact = RegressionsEM(gradient_steps=gradient_steps).net(prompt)
    knots = RegressionsEMByKnots(gradient_steps=gradient_steps, pieces=8).net(prompt)
    assert len(blocks(exact)) == 1 + 5 + 3 * (gradient_steps - 1)
    assert len(blocks(knots)) == 1 + 3 + 2 * (gradient_steps - 1)


@pytest.mark.parametrize("gradient_steps", [1, 2])
def test_squares_by_knots_near_em_with_the_square_of_the_pieces(gradient_steps: int):
    pieces, errors = (64, 256, 1024), []
    for number in pieces:
        made = RegressionsEMByKnots(components=3, pieces=number, gradient_steps=gradient_steps)
        errors.append(np.mean([np.log(distance(made, 3, 60, 5, seed)) for seed in range(3)]))
    assert errors[-1] < np.log(1e-3)
    assert np.polyfit(np.log(pieces), errors, 1)[0] == pytest.approx(-2, abs=0.3)


def test_a_mask_smaller_than_the_residuals_is_too_small():
    assert distance(RegressionsEM(largest=4.0), 3, 60, 3) < 1e-12, "the largest in this problem"
    assert distance(RegressionsEM(largest=0.4), 3, 60, 3) > 1e-3


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
