"""The power method with deflation, and for several vectors at once, held against the same in numpy and against eigh."""

import numpy as np
import pytest
import torch
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.principal_components import ParallelComponents, PrincipalComponents

SPECTRUM = (4.0, 2.0, 1.0, 0.3, 0.2, 0.1)
RANGE = (0.1, 5.0)


def points(dim: int, count: int, seed: int = 0) -> np.ndarray:
    """[count, dim], count >= dim, whose covariance about 0 has the spectrum above."""
    rng = np.random.default_rng(1000 * seed + 10 * count + dim)
    left = np.linalg.qr(rng.standard_normal((count, dim)))[0]
    right = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    return left * np.sqrt(count * np.array(SPECTRUM[:dim])) @ right.T


def powers(x: np.ndarray, starts: np.ndarray, iterations: int) -> np.ndarray:
    a, found = x.T @ x / len(x), []
    for v in starts:
        for _ in range(iterations):
            v = a @ v / np.linalg.norm(a @ v)
        found.append(v)
        a = a - (v @ a @ v) * np.outer(v, v)
    return np.stack(found)


def simultaneous(x: np.ndarray, starts: np.ndarray, iterations: int) -> np.ndarray:
    """Every iterate, [iterations, components, dim]."""
    a, v, found = x.T @ x / len(x), starts, []
    for _ in range(iterations):
        products = np.tril(v @ a @ v.T, -1)
        v = v @ a - products @ v
        v = v / np.linalg.norm(v, axis=1, keepdims=True)
        found.append(v)
    return np.stack(found)


def in_turn(x: np.ndarray, components: int, **settings) -> tuple[Tensor, Tensor]:
    """What the net's last layer puts out, and what the power method finds."""
    made = PrincipalComponents.model_validate({"eigenvalues": RANGE} | settings)
    net = made.net(Prompt(len(x), x.shape[1], components * x.shape[1]))
    assert net.depth == 1 + components * (2 * made.iterations + made.polish) + 3 * (components - 1)
    found = net(torch.tensor(x)[None], net.depth)[-1, 0, 0].unflatten(0, (components, -1))
    starts = made.starts(x.shape[1], components).numpy()
    return found, torch.tensor(powers(x, starts, made.iterations))


def at_once(x: np.ndarray, components: int, steps: int, **settings) -> tuple[Tensor, Tensor]:
    made = ParallelComponents.model_validate({"eigenvalues": RANGE, "components": components} | settings)
    net = made.net(Prompt(len(x), x.shape[1], x.shape[1]))
    assert len(blocks(net)) == 1 + 3 + made.polish
    starts = made.starts(x.shape[1], components).numpy()
    return net(torch.tensor(x)[None], steps)[:, 0, :components], torch.tensor(simultaneous(x, starts, steps))


@pytest.mark.parametrize(
    ("dim", "count", "components", "iterations"),
    [(6, 30, 3, 20), (6, 30, 1, 7), (4, 9, 4, 5), (2, 2, 2, 3), (1, 5, 1, 1)],
)
def test_layers_are_the_power_method_with_deflation(dim: int, count: int, components: int, iterations: int):
    found, expected = in_turn(points(dim, count), components, iterations=iterations, polish=3)
    assert (found - expected).abs().max() < 1e-11


def test_fewer_points_than_coordinates_are_made_up_for_by_registers():
    x = points(6, 8)[:4] / 2
    found, expected = in_turn(x, 2, iterations=10, polish=3)
    assert (found - expected).abs().max() < 1e-11


@pytest.mark.parametrize(
    ("polish", "pieces"), [(0, (32, 64, 128)), (1, (32, 64, 128)), (2, (16, 32, 64))], ids=["0", "1", "2"]
)
def test_the_distance_shrinks_with_the_order_of_the_polish(polish: int, pieces: tuple[int, ...]):
    errors = []
    for number in pieces:
        found, expected = in_turn(points(6, 30), 3, iterations=8, polish=polish, pieces=number)
        errors.append((found - expected).norm(dim=1).max().item())
    slope = np.polyfit(np.log(pieces), np.log(errors), 1)[0]
    assert -slope == pytest.approx(PrincipalComponents(polish=polish).order, rel=0.15)


def test_a_direction_is_exact_for_any_number_of_pieces():
    for pieces in (4, 16):
        found, expected = in_turn(points(6, 30), 1, iterations=8, polish=0, pieces=pieces)
        assert (found.norm() - 1).abs() > 1e-4, "its norm is what the knots put off"
        assert (found / found.norm() - expected).abs().max() < 1e-14


@pytest.mark.parametrize("components", [1, 3])
def test_components_are_eigenvectors_in_the_end(components: int):
    x = points(6, 30, seed=1)
    vectors = torch.tensor(np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :components].T.copy())
    one, _ = in_turn(x, components, iterations=30, polish=3)
    many, _ = at_once(x, components, 45, polish=3)
    for found, tolerance in ((one, 1e-6), (many[-1], 1e-8)):
        signs = (found * vectors).sum(1, keepdim=True).sign()
        assert (found - signs * vectors).abs().max() < tolerance


@pytest.mark.parametrize(("dim", "count", "components"), [(6, 30, 3), (4, 4, 4), (5, 3, 2)])
def test_loops_near_simultaneous_iteration_with_the_square_of_the_pieces(
    dim: int, count: int, components: int
):
    errors, pieces = [], (64, 256)
    for number in pieces:
        off = []
        for seed in range(4):  # how far a norm is from the next knot is chance
            x = points(dim, max(count, dim), seed)[:count] * min(1, count / dim) ** 0.5
            found, expected = at_once(x, components, 6, pieces=number)
            off.append((found - expected).norm(dim=2).max().item())
        errors.append(np.log(off).mean())
    assert errors[-1] < np.log(5e-3)
    assert (errors[1] - errors[0]) / np.log(pieces[1] / pieces[0]) == pytest.approx(-2, abs=0.3)


def test_one_vector_at_once_is_the_power_method():
    found, expected = at_once(points(6, 30), 1, 12, polish=3)
    assert (found - expected).abs().max() < 1e-11


@pytest.mark.parametrize(
    ("made", "prompt", "condition"),
    [
        (PrincipalComponents(), Prompt(9, 4, 6), "targets of k times"),
        (PrincipalComponents(), Prompt(9, 2, 6), "targets of k times"),
        (ParallelComponents(), Prompt(9, 4, 8), "targets of as many coordinates"),
        (ParallelComponents(components=5), Prompt(9, 4, 4), "at most as many components"),
        (ParallelComponents(components=3), Prompt(2, 4, 4), "at most as many components"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(made: PrincipalComponents, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction {made.kind} is for .*{condition}"):
        made.net(prompt)
