"""Matrix roots by Newton-Schulz, and Thompson sampling, compared with eigendecompositions."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.ridge import pair_and_arm_tokens, random_bounded_regression
from loopscale.theory.constructions.thompson import (
    MatrixRoot,
    PosteriorSampling,
    ThompsonDraw,
    ThompsonSampling,
    coupled_roots,
)

ATTENTION = pytest.mark.parametrize("attention", ["linear", "relu"])


def power(v: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(v)
    return vectors * values[..., None, :] ** exponent @ vectors.mT


def positive(dim: int, condition: float) -> Tensor:
    """Matrices with eigenvalues from 1 to `condition`."""
    rng = torch.Generator().manual_seed(dim)
    vectors = torch.linalg.qr(torch.randn(3, dim, dim, generator=rng, dtype=torch.float64))[0]
    v = vectors * torch.logspace(0, math.log10(condition), dim, dtype=torch.float64) @ vectors.mT
    return (v + v.mT) / 2


def steps_for(condition: float) -> int:
    return math.ceil(math.log(condition) / (2 * math.log(1.5))) + 5


@ATTENTION
@pytest.mark.parametrize(("dim", "condition"), [(1, 1.0), (3, 30.0), (6, 1000.0)])
def test_loops_are_steps_of_newton_schulz_and_reach_the_roots(attention: str, dim: int, condition: float):
    v, top = positive(dim, condition), 1.3 * condition
    net = MatrixRoot.model_validate({"attention": attention, "top": top}).net(Prompt(dim, dim, 2 * dim))
    outputs = net(v.mT, steps_for(top)).mT.split(dim, -2)
    for matrix, expected, scale, exponent in zip(
        outputs, coupled_roots(v, top, steps_for(top)), (top**0.5, top**-0.5), (0.5, -0.5), strict=True
    ):
        assert (matrix - expected).abs().max() < 1e-13 * condition * scale
        assert (matrix[-1] - power(v, exponent)).abs().max() < 1e-12 * condition


def test_further_steps_do_not_lose_accuracy():
    v = positive(4, 50.0)
    late = MatrixRoot(top=60.0).net(Prompt(4, 4, 8))(v, 60)[-1, ..., 4:]
    assert (late - power(v, -0.5)).abs().max() < 1e-12 * 50


def bandit(dim: int, pairs: int, arms: int, prompts: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """x of length at most 2, y, and arms followed by ξ."""
    rng = torch.Generator().manual_seed(1000 * dim + 10 * pairs + arms)
    others = torch.randn(prompts, arms + 1, dim, generator=rng, dtype=torch.float64)
    return *random_bounded_regression(rng, dim, pairs, 2.0, prompts), others


def drawn(construction: PosteriorSampling, x: Tensor, y: Tensor, others: Tensor) -> Tensor:
    v = construction.penalty * torch.eye(x.shape[2], dtype=torch.float64) + x.mT @ x
    mean = torch.linalg.solve(v, x.mT @ y[..., None])
    return (mean + construction.spread * power(v, -0.5) @ others[:, -1:].mT)[..., 0]


@ATTENTION
@pytest.mark.parametrize(("dim", "pairs", "penalty"), [(1, 3, 1.0), (4, 25, 0.5), (5, 2, 0.1), (3, 0, 1.0)])
def test_the_drawn_weights_equal_a_draw_from_the_posterior(
    attention: str, dim: int, pairs: int, penalty: float
):
    construction = ThompsonDraw.model_validate(
        {"attention": attention, "penalty": penalty, "bound": 2.0, "spread": 0.7}
    )
    condition, case = construction.largest(pairs) / penalty, bandit(dim, pairs, 0)
    outputs = construction.net(Prompt(pairs + 1, 2 * dim + 1, dim))(
        pair_and_arm_tokens(*case), steps_for(condition)
    )[-1, :, -1]
    assert (outputs - drawn(construction, *case)).abs().max() < 1e-12 * condition


@ATTENTION
@pytest.mark.parametrize("spread", [1.0, 1e4])
@pytest.mark.parametrize(("dim", "pairs", "arms"), [(1, 4, 2), (4, 20, 6)])
def test_the_arm_played_is_the_best_for_the_weights_drawn(
    attention: str, spread: float, dim: int, pairs: int, arms: int
):
    construction = ThompsonSampling.model_validate({"attention": attention, "bound": 2.0, "spread": spread})
    case = bandit(dim, pairs, arms, prompts=12)
    net = construction.net(Prompt(pairs + arms + 1, 2 * dim + 1, arms))
    played = net(pair_and_arm_tokens(*case), steps_for(construction.largest(pairs)))[-1, :, -1]
    best = (case[2][:, :-1] @ drawn(construction, *case)[..., None])[..., 0].argmax(-1)
    assert (played == one_hot(best, arms)).all()
    assert len(best.unique()) > 1, "the same arm in every prompt would test little"


def test_the_net_has_the_stated_number_of_layers():
    nets = ThompsonDraw().net(Prompt(7, 7, 3)), ThompsonSampling().net(Prompt(7, 7, 2))
    for net, after in zip(nets, (2, 3), strict=True):
        assert (len(net.pre.blocks), len(net.loop.stack.blocks), len(net.post.blocks)) == (1, 1, after)


@pytest.mark.parametrize(
    ("construction", "prompt", "condition"),
    [
        (MatrixRoot(), Prompt(4, 3, 6), "the columns of a square matrix"),
        (ThompsonDraw(), Prompt(5, 4, 2), r"tokens \(x, y, ξ\)"),
        (ThompsonSampling(), Prompt(5, 4, 2), r"tokens \(x, y, a or ξ\)"),
        (ThompsonSampling(), Prompt(2, 5, 2), "prompts that end with a token for each arm and one for ξ"),
    ],
)
def test_unsuitable_prompts_raise(construction, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction {construction.kind} requires {condition}"):
        construction.net(prompt)
