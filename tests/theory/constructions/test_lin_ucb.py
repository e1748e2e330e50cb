"""Soft LinUCB by accelerated and by Newton steps, compared with a direct computation of index and policy."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.lin_ucb import LinUcb, soft_policies
from loopscale.theory.constructions.ridge import (
    inverse_iterates,
    nesterov_descent,
    pair_and_arm_tokens,
    random_bounded_regression,
)


def drawn(dim: int, pairs: int, arms: int, prompts: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Contexts of length at most 1, and arms of length at least 0.3."""
    rng = torch.Generator().manual_seed(1000 * dim + 10 * pairs + arms)
    normal = torch.randn(prompts, arms, dim, generator=rng, dtype=torch.float64)
    length = 0.3 + 0.7 * torch.rand(prompts, arms, 1, generator=rng, dtype=torch.float64)
    return *random_bounded_regression(rng, dim, pairs, 1.0, prompts), length * normalize(normal, dim=-1)


def run(construction: LinUcb, x: Tensor, y: Tensor, a: Tensor, steps: int) -> Tensor:
    """The policy after every step, [steps, prompts, arms]."""
    whole, arms = pair_and_arm_tokens(x, y, a), a.shape[1]
    return construction.net(Prompt(whole.shape[1], whole.shape[2], arms))(whole, steps)[:, :, -1]


def expected(construction: LinUcb, x: Tensor, y: Tensor, a: Tensor, steps: int) -> Tensor:
    """The policy with an exact square root after every step of the solver, and last with V's inverse."""
    v = construction.penalty * torch.eye(x.shape[2], dtype=torch.float64) + x.mT @ x
    largest = construction.penalty + x.shape[1] * construction.bound**2
    m = (largest**0.5 - construction.penalty**0.5) / (largest**0.5 + construction.penalty**0.5)
    newton = construction.solver == "newton"
    z = (
        a @ inverse_iterates(v, largest, steps)
        if newton
        else nesterov_descent(v[:, None], a, largest, m, steps)
    )
    z = torch.cat([z, (a @ torch.linalg.inv(v))[None]])
    return soft_policies(x, y, a, z, construction.width, construction.temperature)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("dim", "pairs", "arms"), [(1, 4, 2), (4, 60, 5), (3, 12, 7)])
@pytest.mark.parametrize(("solver", "steps"), [("accelerated", 200), ("newton", 12)])
def test_steps_match_the_solver_and_converge_to_lin_ucb(
    solver: str, steps: int, dim: int, pairs: int, arms: int
):
    construction = LinUcb.model_validate(
        {"solver": solver, "bound": 1.0, "shortest": 0.3, "temperature": 0.5}
    )
    case = drawn(dim, pairs, arms)
    outputs, reference = run(construction, *case, steps), expected(construction, *case, steps)
    assert (outputs - reference[:-1]).abs().max() < 1e-5
    assert (outputs[-1] - reference[-1]).abs().max() < 1e-5
    assert (outputs.sum(-1) - 1).abs().max() < 1e-12
    assert (outputs[-1] - 1 / arms).abs().max() > 0.03, "a uniform policy would test nothing"


@pytest.mark.parametrize("solver", ["accelerated", "newton"])
def test_without_bonus_only_the_solver_is_approximate(solver: str):
    construction = LinUcb.model_validate({"solver": solver, "width": 0.0, "bound": 1.0, "shortest": 0.3})
    case = drawn(4, 60, 5)
    outputs, reference = run(construction, *case, 60), expected(construction, *case, 60)
    assert construction.limit is None
    assert (outputs - reference[:-1]).abs().max() < 1e-12
    assert (outputs[-1] - reference[-1]).abs().max() < (1e-10 if solver == "newton" else 1e-4)


@pytest.mark.slow
def test_bonus_error_is_within_the_bound_of_the_pieces():
    case, condition = drawn(4, 60, 5, prompts=20), 61 / 0.3**2
    pieces, errors = np.array([16, 32, 64, 128, 256]), []
    for number in pieces:
        construction = LinUcb(solver="newton", pieces=int(number), bound=1.0, shortest=0.3)
        gap = run(construction, *case, 12)[-1].log() - expected(construction, *case, 12)[-1].log()
        # Differences of the index from that of the first arm.
        errors.append((construction.temperature * (gap - gap[:, :1])).abs().max().item())
    assert np.polyfit(np.log(pieces), np.log(errors), 1)[0] == pytest.approx(-2, abs=0.3)
    assert (np.array(errors) <= 2 * np.log(condition) ** 2 / (32 * pieces**2)).all(), (
        "the factor 2 is for two arms, and a'V⁻¹a <= 1"
    )


def test_the_net_has_the_stated_number_of_layers():
    shape = Prompt(9, 7, 4)
    accelerated, newton = (LinUcb.model_validate({"solver": s}).net(shape) for s in ("accelerated", "newton"))
    assert layers(accelerated) == (0, 1, 2)
    assert layers(newton) == (1, 1, 3)


def layers(net) -> tuple[int, ...]:
    return tuple(len(getattr(part, "blocks", ())) for part in (net.pre, net.loop.stack, net.post))


@pytest.mark.parametrize(
    ("settings", "prompt", "condition"),
    [
        ({}, Prompt(9, 6, 4), r"tokens \(x, y, a\)"),
        ({}, Prompt(3, 7, 4), "prompts that end with a token for each arm"),
        ({"shortest": 5.0}, Prompt(9, 7, 4), "shortest < bound"),
    ],
)
def test_unsuitable_prompts_raise(settings: dict, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction lin_ucb requires {condition}"):
        LinUcb.model_validate(settings).net(prompt)
