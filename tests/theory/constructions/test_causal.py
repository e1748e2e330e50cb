"""Gradient descent in a decoder, held against descent on every prefix, and against the solver on the task."""

import math

import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.solvers.regression import GradientDescent
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.theory.constructions.causal import CausalDescent, descents, rates
from loopscale.theory.constructions.regression import paired, problem


def distance(dim: int = 4, pairs: int = 14, steps: int = 25, **settings) -> float:
    xs, ys = problem(torch.Generator().manual_seed(1000 * dim + pairs), dim, pairs, prompts=3)
    net = CausalDescent.model_validate(settings).net(Prompt(2 * pairs + 1, dim + 1, 1))
    own = torch.full((pairs + 1,), 0.1, dtype=torch.float64)
    steps_of = rates(0.1, pairs + 1) if settings.get("variant") in ("relu", "linear") else own
    return (net(paired(xs, ys), steps)[:, :, ::2] - descents(xs, ys, steps_of, steps)).abs().max().item()


@pytest.mark.parametrize(("dim", "pairs"), [(1, 2), (4, 14), (8, 20)])
@pytest.mark.parametrize("variant", ["relu", "linear"])
def test_relu_and_linear_attention_descend_exactly(variant: str, dim: int, pairs: int):
    assert distance(dim, pairs, variant=variant, bound=100.0) < 1e-11


@pytest.mark.parametrize(
    ("settings", "scales"),
    [
        ({"variant": "mirrored", "expansion": 2}, (1e-2, 1e-3)),
        ({"variant": "mirrored", "expansion": 4}, (2e-2, 1e-2)),
        ({"variant": "sink", "expansion": 1}, (1e-3, 1e-4)),
        ({"variant": "sink", "expansion": 2}, (1e-2, 2e-3)),
        ({"variant": "sink", "expansion": 4}, (2e-2, 1e-2)),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_softmax_nears_descent_with_the_order_of_its_expansion(settings: dict, scales: tuple[float, float]):
    near, far = (distance(steps=5, scale=scale, **settings) for scale in scales)
    slope = math.log(near / far) / math.log(scales[0] / scales[1])
    assert slope == pytest.approx(settings["expansion"], abs=0.1 if settings["expansion"] < 4 else 0.2)


def test_mirrored_keys_come_within_rounding_of_descent():
    assert distance() < 1e-9


def test_it_is_the_solver_on_the_task():
    task = LinearRegression(dim=4, points=12)
    batch = task.sample(5, stream(0)).to("cpu", torch.float64)
    net = CausalDescent(rate=0.2).net(task.prompt)
    told = GradientDescent(rate=0.2).predict(batch, 20)
    torch.testing.assert_close(net.predict(batch, 20), told, atol=1e-8, rtol=0)


def test_no_query_sees_what_follows_it():
    net = CausalDescent().net(Prompt(17, 4, 1))
    whole = paired(*problem(torch.Generator().manual_seed(0), 3, 8))
    changed = whole.clone()
    changed[:, 7:] += 1
    torch.testing.assert_close(net(changed, 3)[:, :, :7], net(whole, 3)[:, :, :7], atol=0, rtol=0)
