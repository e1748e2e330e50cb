"""Gradient descent in a decoder, compared with descent on every prefix and with the solver on the task."""

import math

import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.solvers.regression import GradientDescent
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.theory.constructions.causal import CausalDescent, effective_rates, prefix_descents
from loopscale.theory.constructions.regression import interleaved_tokens, random_linear_regression


def distance(dim: int = 4, pairs: int = 14, steps: int = 25, **settings) -> float:
    xs, ys = random_linear_regression(
        torch.Generator().manual_seed(1000 * dim + pairs), dim, pairs, prompts=3
    )
    net = CausalDescent.model_validate(settings).net(Prompt(2 * pairs + 1, dim + 1, 1))
    nominal = torch.full((pairs + 1,), 0.1, dtype=torch.float64)
    rates = effective_rates(0.1, pairs + 1) if settings.get("variant") in ("relu", "linear") else nominal
    return (
        (net(interleaved_tokens(xs, ys), steps)[:, :, ::2] - prefix_descents(xs, ys, rates, steps))
        .abs()
        .max()
        .item()
    )


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
def test_softmax_error_has_the_order_of_the_expansion(settings: dict, scales: tuple[float, float]):
    near, far = (distance(steps=5, scale=scale, **settings) for scale in scales)
    slope = math.log(near / far) / math.log(scales[0] / scales[1])
    assert slope == pytest.approx(settings["expansion"], abs=0.1 if settings["expansion"] < 4 else 0.2)


def test_mirrored_keys_come_within_rounding_of_descent():
    assert distance() < 1e-9


def test_construction_matches_the_solver_on_the_task():
    task = LinearRegression(dim=4, points=12)
    batch = task.sample(5, stream(0)).to("cpu", torch.float64)
    net = CausalDescent(rate=0.2).net(task.prompt)
    expected = GradientDescent(rate=0.2).predict(batch, 20)
    torch.testing.assert_close(net.predict(batch, 20), expected, atol=1e-8, rtol=0)


def test_predictions_do_not_depend_on_later_tokens():
    net = CausalDescent().net(Prompt(17, 4, 1))
    whole = interleaved_tokens(*random_linear_regression(torch.Generator().manual_seed(0), 3, 8))
    changed = whole.clone()
    changed[:, 7:] += 1
    torch.testing.assert_close(net(changed, 3)[:, :, :7], net(whole, 3)[:, :, :7], atol=0, rtol=0)
