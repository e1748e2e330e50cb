"""Newton's iteration with full attention, compared with the iteration."""

import math

import pytest
import torch
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.models.algoformer import AlgoformerNet
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.newton import Newton
from tests.theory.constructions.test_regression import problem, tokens


def iterated(xs: Tensor, ys: Tensor, query: Tensor, start: float, steps: int, share: float) -> Tensor:
    """w_k·query for w_k = M_k X'y, M of S = share X'X, [steps, prompts]."""
    second, moment = share * xs.transpose(1, 2) @ xs, share * xs.transpose(1, 2) @ ys
    inverse, guesses = start * second, []
    for _ in range(steps):
        inverse = 2 * inverse - inverse @ second @ inverse
        guesses.append((query[:, None] @ inverse @ moment)[:, 0, 0])
    return torch.stack(guesses)


def largest_start(xs: Tensor) -> float:
    second = xs.transpose(1, 2) @ xs / xs.shape[1]
    return 1 / torch.linalg.eigvalsh(second).max().item() ** 2


def distance(dim: int = 5, pairs: int = 20, steps: int = 12, **settings) -> float:
    xs, ys = problem(dim, pairs)
    start = largest_start(xs[:, :-1])
    net = Newton.model_validate({"start": start} | settings).net(Prompt(2 * pairs + 1, dim + 1, 1))
    guesses = net(tokens(xs, ys), steps)[:, :, -1, 0]
    expected = iterated(xs[:, :-1], ys[:, :-1], xs[:, -1], start, steps, 1 / pairs)
    return (guesses - expected).abs().max().item()


@pytest.mark.parametrize(("dim", "pairs"), [(1, 1), (5, 20), (5, 3), (20, 40)])
@pytest.mark.parametrize(
    "settings", [{"variant": "relu"}, {"variant": "linear"}, {}], ids=["relu", "linear", "softmax"]
)
def test_loops_are_steps_of_newton(settings: dict, dim: int, pairs: int):
    assert distance(dim, pairs, **settings) < 1e-10


@pytest.mark.parametrize(
    ("settings", "scales"),
    [
        ({"variant": "sink", "expansion": 1}, (1e-3, 1e-5)),
        ({"variant": "sink", "expansion": 2}, (1e-2, 1e-3)),
        ({"variant": "mirrored", "expansion": 2}, (3e-3, 1e-4)),
        ({"variant": "mirrored", "expansion": 4}, (3e-3, 1e-3)),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_softmax_error_has_the_order_of_the_expansion(settings: dict, scales: tuple[float, float]):
    near, far = (distance(steps=6, scale=scale, **settings) for scale in scales)
    slope = math.log(near / far) / math.log(scales[0] / scales[1])
    assert slope == pytest.approx(settings["expansion"], abs=0.1 if settings["expansion"] < 4 else 0.2)


def test_enough_loops_solve_the_regression():
    xs, ys = problem(5, 20)
    net = Newton(start=largest_start(xs[:, :-1]), variant="relu").net(Prompt(41, 6, 1))
    torch.testing.assert_close(net(tokens(xs, ys), 20)[-1, :, -1], ys[:, -1], atol=1e-10, rtol=0)


def test_the_papers_own_start_does_not_converge():
    """With α = 2/|S|² the residual of the largest eigenvalue is -1, and never shrinks."""
    xs, ys = problem(4, 12, prompts=1)
    half, whole = (
        (
            Newton(start=factor * largest_start(xs[:, :-1]), variant="relu").net(Prompt(25, 5, 1))(
                tokens(xs, ys), 18
            )[:, 0, -1]
            - ys[0, -1]
        ).abs()
        for factor in (1, 2)
    )
    assert half[-1] < 1e-8
    assert whole[10:].min() > 0.01


def test_the_net_is_an_algoformer_with_the_layers_of_the_theorem():
    net = Newton().net(Prompt(9, 4, 1))
    assert isinstance(net, AlgoformerNet)
    assert [len(blocks(part)) for part in (net.pre, net.loop, net.post)] == [2, 1, 1]
