"""The power method with deflation, and for several vectors at once, held against the plain ones and against eigh."""

import numpy as np
import pytest
import torch
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.example import approach, order
from loopscale.theory.constructions.principal_components import (
    ParallelComponents,
    PowerMethod,
    PrincipalComponents,
    powers,
    simultaneous,
)

SPECTRUM = (4.0, 2.0, 1.0, 0.3, 0.2, 0.1)
RANGE = (0.1, 5.0)


def problems(dim: int, count: int, number: int = 1) -> np.ndarray:
    """[number, count, dim], whose covariances about 0 have the spectrum above."""
    return np.stack([points(dim, count, seed) for seed in range(number)])


def points(dim: int, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(1000 * seed + 10 * count + dim)
    rank = min(count, dim)
    left = np.linalg.qr(rng.standard_normal((count, rank)))[0]
    right = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    return left * np.sqrt(count * np.array(SPECTRUM[:rank])) @ right.T


def in_turn(xs: np.ndarray, components: int, **settings) -> tuple[Tensor, Tensor]:
    """What the net's last layer puts out of every problem, and what the power method finds."""
    made = PrincipalComponents.model_validate({"eigenvalues": RANGE} | settings)
    _, count, dim = xs.shape
    net = made.net(Prompt(count, dim, components * dim))
    assert net.depth == 1 + components * (2 * made.iterations + made.polish) + 3 * (components - 1)
    found = net(torch.tensor(xs), net.depth)[-1, :, 0].unflatten(1, (components, -1))
    return found, powers(torch.tensor(xs), made.starts(dim, components), made.iterations)


def at_once(xs: np.ndarray, components: int, steps: int, **settings) -> tuple[Tensor, Tensor]:
    """The same after every loop, [steps, problems, components, dim]."""
    made = ParallelComponents.model_validate({"eigenvalues": RANGE, "components": components} | settings)
    _, count, dim = xs.shape
    net = made.net(Prompt(count, dim, dim))
    assert len(blocks(net)) == 1 + 3 + made.polish
    expected = simultaneous(torch.tensor(xs), made.starts(dim, components), steps)
    return net(torch.tensor(xs), steps)[:, :, :components], expected


@pytest.mark.parametrize(
    ("dim", "count", "components", "iterations"),
    [(6, 30, 3, 20), (6, 30, 1, 7), (4, 9, 4, 5), (2, 2, 2, 3), (1, 5, 1, 1)],
)
def test_layers_are_the_power_method_with_deflation(dim: int, count: int, components: int, iterations: int):
    found, expected = in_turn(problems(dim, count), components, iterations=iterations, polish=3)
    assert (found - expected).abs().max() < 1e-11


def test_fewer_points_than_coordinates_are_made_up_for_by_registers():
    found, expected = in_turn(problems(6, 4), 2, iterations=10, polish=3)
    assert (found - expected).abs().max() < 1e-11


@pytest.mark.parametrize(("polish", "expected"), [(0, 2), (1, 4), (3, 16), (4, 32)])
def test_the_distance_shrinks_with_the_order_of_the_polish(polish: int, expected: int):
    made = PrincipalComponents(polish=polish, iterations=5)
    assert made.limit.order == expected
    assert order(made.limit, approach(made, made.limit)) == pytest.approx(expected, rel=0.15)


def test_a_direction_is_exact_for_any_number_of_pieces():
    for pieces in (4, 16):
        found, expected = (
            each[0, 0] for each in in_turn(problems(6, 30), 1, iterations=8, polish=0, pieces=pieces)
        )
        assert (found.norm() - 1).abs() > 1e-4, "its norm is what the knots put off"
        assert (found / found.norm() - expected).abs().max() < 1e-14


@pytest.mark.parametrize("components", [1, 3])
def test_components_are_eigenvectors_in_the_end(components: int):
    x = problems(6, 30, 3)
    vectors = torch.tensor(np.linalg.eigh(x.swapaxes(1, 2) @ x)[1].swapaxes(1, 2)[:, ::-1].copy())[
        :, :components
    ]
    one, _ = in_turn(x, components, iterations=26, polish=3)
    many, _ = at_once(x, components, 45, polish=3)
    for found, tolerance in ((one, 1e-4), (many[-1], 1e-8)):
        signs = (found * vectors).sum(2, keepdim=True).sign()
        assert (found - signs * vectors).abs().max() < tolerance


@pytest.mark.parametrize(("dim", "count", "components"), [(6, 30, 3), (4, 4, 4), (5, 3, 2)])
def test_loops_near_simultaneous_iteration_with_the_square_of_the_pieces(
    dim: int, count: int, components: int
):
    pieces, distances = (48, 192), []
    for number in pieces:
        found, expected = at_once(problems(dim, count, 12), components, 6, pieces=number)
        distances.append((found - expected).norm(dim=3).amax((0, 2)))
    assert distances[-1].mean() < 5e-3
    slope = np.polyfit(np.log(pieces), [distance.log().mean() for distance in distances], 1)[0]
    assert slope == pytest.approx(-2, abs=0.3)


def test_one_vector_at_once_is_the_power_method():
    found, expected = at_once(problems(6, 30), 1, 12, polish=3)
    assert (found - expected).abs().max() < 1e-11


@pytest.mark.parametrize(
    ("made", "prompt", "condition"),
    [
        (PrincipalComponents(), Prompt(9, 4, 6), "targets of k times"),
        (PrincipalComponents(), Prompt(9, 2, 6), "targets of k times"),
        (PrincipalComponents(pieces=3), Prompt(9, 4, 4), "pieces enough for norms of at most 1.4"),
        (PrincipalComponents(eigenvalues=(2.0, 1.0)), Prompt(9, 4, 4), "eigenvalues from one to a larger"),
        (ParallelComponents(), Prompt(9, 4, 8), "targets of as many coordinates"),
        (ParallelComponents(components=5), Prompt(9, 4, 4), "at most as many components"),
        (ParallelComponents(components=3), Prompt(2, 4, 4), "at most as many components"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(made: PowerMethod, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction {made.kind} is for .*{condition}"):
        made.net(prompt)
