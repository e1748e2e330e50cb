"""Soft LinUCB by accelerated and by Newton steps, held against its index and policy computed directly."""

import numpy as np
import pytest
import torch
from scipy.special import softmax

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.lin_ucb import LinUcb


def problem(dim: int, pairs: int, arms: int, prompts: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Contexts and arms of length at most 1, arms of at least .3."""
    rng = np.random.default_rng(1000 * dim + 10 * pairs + arms)
    x, a = rng.standard_normal((prompts, pairs, dim)), rng.standard_normal((prompts, arms, dim))
    x /= np.maximum(1, np.linalg.norm(x, axis=-1, keepdims=True))
    a *= rng.uniform(0.3, 1, (prompts, arms, 1)) / np.linalg.norm(a, axis=-1, keepdims=True)
    y = (x * rng.standard_normal((prompts, 1, dim))).sum(-1) + 0.2 * rng.standard_normal((prompts, pairs))
    return x, y, a


def run(made: LinUcb, x: np.ndarray, y: np.ndarray, a: np.ndarray, steps: int) -> np.ndarray:
    """The policy after every step, [steps, prompts, arms]."""
    (prompts, pairs, dim), arms = x.shape, a.shape[1]
    tokens = np.zeros((prompts, pairs + arms, 2 * dim + 1))
    tokens[:, :pairs, :dim], tokens[:, :pairs, dim], tokens[:, pairs:, dim + 1 :] = x, y, a
    return made.net(Prompt(pairs + arms, 2 * dim + 1, arms))(torch.from_numpy(tokens), steps)[
        :, :, -1
    ].numpy()


def policies(made: LinUcb, x: np.ndarray, y: np.ndarray, a: np.ndarray, steps: int) -> np.ndarray:
    """The same, with the square root itself, for as many steps of the solver; the last is with V's inverse."""
    dim, pairs = x.shape[2], x.shape[1]
    v = made.penalty * np.eye(dim) + x.transpose(0, 2, 1) @ x
    largest = made.penalty + pairs * made.bound**2
    m = (np.sqrt(largest) - np.sqrt(made.penalty)) / (np.sqrt(largest) + np.sqrt(made.penalty))
    z = ahead = np.zeros_like(a)
    inverse, found = np.eye(dim) / largest, []
    for t in range(steps + 1):
        if t == steps:
            z = a @ np.linalg.inv(v)
        elif made.solver == "newton":
            inverse = 2 * inverse - inverse @ v @ inverse
            z = a @ inverse
        else:
            new = ahead - (ahead @ v - a) / largest
            z, ahead = new, new + m * (new - z)
        estimate = np.einsum("pai,pji,pj->pa", z, x, y)
        bonus = made.width * np.sqrt(np.maximum((z * a).sum(-1), 0))
        found.append(softmax((estimate + bonus) / made.temperature, -1))
    return np.stack(found)


SIZES = [(1, 4, 2), (4, 60, 5), (3, 12, 7)]


@pytest.mark.parametrize(("dim", "pairs", "arms"), SIZES)
@pytest.mark.parametrize(("solver", "steps"), [("accelerated", 200), ("newton", 12)])
def test_steps_are_the_solvers_and_the_last_is_lin_ucb(
    solver: str, steps: int, dim: int, pairs: int, arms: int
):
    made = LinUcb.model_validate({"solver": solver, "bound": 1.0, "shortest": 0.3, "temperature": 0.5})
    case = problem(dim, pairs, arms)
    found, expected = run(made, *case, steps), policies(made, *case, steps)
    assert np.abs(found - expected[:-1]).max() < 1e-5
    assert np.abs(found[-1] - expected[-1]).max() < 1e-5
    assert np.abs(found.sum(-1) - 1).max() < 1e-12
    assert np.abs(found[-1] - 1 / arms).max() > 0.03, "a policy that is uniform would test nothing"


@pytest.mark.parametrize("solver", ["accelerated", "newton"])
def test_without_a_bonus_all_is_exact_but_the_solver(solver: str):
    made = LinUcb.model_validate({"solver": solver, "width": 0.0, "bound": 1.0, "shortest": 0.3})
    case = problem(4, 60, 5)
    found, expected = run(made, *case, 60), policies(made, *case, 60)
    assert np.abs(found - expected[:-1]).max() < 1e-12
    assert np.abs(found[-1] - expected[-1]).max() < (1e-10 if solver == "newton" else 1e-4)


def test_the_bonus_nears_the_root_with_the_square_of_its_pieces():
    case, pieces, errors = problem(4, 60, 5, prompts=20), np.array([16, 32, 64, 128, 256]), []
    for each in pieces:
        made = LinUcb(solver="newton", pieces=int(each), bound=1.0, shortest=0.3)
        gap = np.log(run(made, *case, 12)[-1]) - np.log(policies(made, *case, 12)[-1])
        gap = made.temperature * (gap - gap[:, :1])  # of the index, to that of the first arm
        errors.append(np.abs(gap).max())
    assert np.polyfit(np.log(pieces), np.log(errors), 1)[0] == pytest.approx(-2, abs=0.3)
    condition = 61 / 0.3**2
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
