"""Soft LinUCB by accelerated and by Newton steps, held against its index and policy computed directly."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.lin_ucb import LinUcb, policies
from loopscale.theory.constructions.ridge import descent, inverses, problem, tokens


def drawn(dim: int, pairs: int, arms: int, prompts: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Contexts of length at most 1, and arms of at least .3."""
    rng = torch.Generator().manual_seed(1000 * dim + 10 * pairs + arms)
    normal = torch.randn(prompts, arms, dim, generator=rng, dtype=torch.float64)
    length = 0.3 + 0.7 * torch.rand(prompts, arms, 1, generator=rng, dtype=torch.float64)
    return *problem(rng, dim, pairs, 1.0, prompts), length * normalize(normal, dim=-1)


def run(made: LinUcb, x: Tensor, y: Tensor, a: Tensor, steps: int) -> Tensor:
    """The policy after every step, [steps, prompts, arms]."""
    whole, arms = tokens(x, y, a), a.shape[1]
    return made.net(Prompt(whole.shape[1], whole.shape[2], arms))(whole, steps)[:, :, -1]


def expected(made: LinUcb, x: Tensor, y: Tensor, a: Tensor, steps: int) -> Tensor:
    """The same, with the square root itself, for as many steps of the solver; the last is with V's inverse."""
    v = made.penalty * torch.eye(x.shape[2], dtype=torch.float64) + x.mT @ x
    largest = made.penalty + x.shape[1] * made.bound**2
    m = (largest**0.5 - made.penalty**0.5) / (largest**0.5 + made.penalty**0.5)
    newton = made.solver == "newton"
    z = a @ inverses(v, largest, steps) if newton else descent(v[:, None], a, largest, m, steps)
    z = torch.cat([z, (a @ torch.linalg.inv(v))[None]])
    return policies(x, y, a, z, made.width, made.temperature)


@pytest.mark.parametrize(("dim", "pairs", "arms"), [(1, 4, 2), (4, 60, 5), (3, 12, 7)])
@pytest.mark.parametrize(("solver", "steps"), [("accelerated", 200), ("newton", 12)])
def test_steps_are_the_solvers_and_the_last_is_lin_ucb(
    solver: str, steps: int, dim: int, pairs: int, arms: int
):
    made = LinUcb.model_validate({"solver": solver, "bound": 1.0, "shortest": 0.3, "temperature": 0.5})
    case = drawn(dim, pairs, arms)
    found, told = run(made, *case, steps), expected(made, *case, steps)
    assert (found - told[:-1]).abs().max() < 1e-5
    assert (found[-1] - told[-1]).abs().max() < 1e-5
    assert (found.sum(-1) - 1).abs().max() < 1e-12
    assert (found[-1] - 1 / arms).abs().max() > 0.03, "a policy that is uniform would test nothing"


@pytest.mark.parametrize("solver", ["accelerated", "newton"])
def test_without_a_bonus_all_is_exact_but_the_solver(solver: str):
    made = LinUcb.model_validate({"solver": solver, "width": 0.0, "bound": 1.0, "shortest": 0.3})
    case = drawn(4, 60, 5)
    found, told = run(made, *case, 60), expected(made, *case, 60)
    assert made.limit is None
    assert (found - told[:-1]).abs().max() < 1e-12
    assert (found[-1] - told[-1]).abs().max() < (1e-10 if solver == "newton" else 1e-4)


def test_the_bonus_is_off_by_no_more_than_the_pieces_allow():
    case, condition = drawn(4, 60, 5, prompts=20), 61 / 0.3**2
    pieces, errors = np.array([16, 32, 64, 128, 256]), []
    for each in pieces:
        made = LinUcb(solver="newton", pieces=int(each), bound=1.0, shortest=0.3)
        gap = run(made, *case, 12)[-1].log() - expected(made, *case, 12)[-1].log()
        # Of the index, to that of the first arm.
        errors.append((made.temperature * (gap - gap[:, :1])).abs().max().item())
    assert np.polyfit(np.log(pieces), np.log(errors), 1)[0] == pytest.approx(-2, abs=0.3)
    assert (np.array(errors) <= 2 * np.log(condition) ** 2 / (32 * pieces**2)).all(), (
        "of two arms, where a'V⁻¹a <= 1"
    )


def test_layers_are_those_of_the_solver_and_two():
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
        ({"shortest": 5.0}, Prompt(9, 7, 4), "arms of different lengths"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction lin_ucb is for {condition}"):
        LinUcb.model_validate(settings).net(prompt)
