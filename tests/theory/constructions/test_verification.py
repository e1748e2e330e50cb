"""The order of a limit, estimated by regression with an interval over prompts."""

import math

import numpy as np
import pytest
import torch

from loopscale.theory.constructions.base import blocks, without_idle_heads
from loopscale.theory.constructions.example import Limit
from loopscale.theory.constructions.newton import Newton
from loopscale.theory.constructions.principal_components import ParallelComponents
from loopscale.theory.constructions.verification import approach, distances, order

LIMIT = Limit("pieces", 2.0, (16.0, 23.0, 32.0, 45.0, 64.0, 91.0, 128.0))


def noisy_errors(rng: np.random.Generator, prompts: int, exponent: float = 2.0) -> np.ndarray:
    """Errors of the given order, times random factors: [values, prompts]."""
    knots = np.array(LIMIT.values)[:, None] ** -exponent
    return knots * np.exp(rng.normal(0, 0.8, (len(knots), prompts)) + rng.normal(0, 2, prompts))


def test_the_interval_covers_the_order_in_95_percent_of_problems():
    rng = np.random.default_rng(0)
    estimates = [order(LIMIT, noisy_errors(rng, prompts=8)) for _ in range(2000)]
    covered = np.mean([each.low <= 2 <= each.high for each in estimates])
    assert covered == pytest.approx(0.95, abs=0.015)


def test_the_interval_narrows_with_the_number_of_prompts():
    rng = np.random.default_rng(1)
    few, many = (order(LIMIT, noisy_errors(rng, prompts)) for prompts in (8, 512))
    assert many.high - many.low < (few.high - few.low) / 5
    assert many.agrees(LIMIT)


def test_another_order_does_not_agree():
    wrong = order(LIMIT, noisy_errors(np.random.default_rng(2), prompts=512, exponent=2.4))
    assert wrong.low > 2.3
    assert not wrong.agrees(LIMIT)


def test_without_an_error_there_is_no_order():
    assert math.isnan(order(LIMIT, np.zeros((7, 3))).value)
    assert not order(LIMIT, np.zeros((7, 3))).agrees(LIMIT)


def test_one_prompt_has_no_interval():
    estimate = order(LIMIT, np.array(LIMIT.values)[:, None] ** -2.0)
    assert estimate.value == pytest.approx(2)
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.high)


def test_the_approach_has_the_largest_distance_of_every_prompt_after_any_step():
    construction = Newton(variant="sink", expansion=2)
    at_values = approach(construction, construction.limit, seed=3)
    finest = Newton(variant="sink", expansion=2, scale=construction.limit.values[-1])
    steps = distances(finest, finest.example(torch.Generator().manual_seed(3)))
    assert at_values.shape == (len(construction.limit.values), steps.shape[1])
    assert at_values[-1] == pytest.approx(steps.amax(0).numpy())


def test_a_net_without_idle_heads_has_the_same_outputs():
    construction = ParallelComponents(pieces=12)
    example = construction.example(torch.Generator().manual_seed(0))
    padded, net = (construction.net(example.prompt) for _ in range(2))
    net = without_idle_heads(net)
    heads = [block.attention.heads for block in blocks(net)]
    assert max(heads) == blocks(padded)[0].attention.heads
    assert min(heads) == 2
    torch.testing.assert_close(
        net(example.tokens, 8), padded(example.tokens, 8), rtol=0, atol=1e-13, equal_nan=True
    )
