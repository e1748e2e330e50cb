"""Comparison of a construction with its algorithm: the distance after every step, and the order of the limit."""

import math
from dataclasses import dataclass

import numpy as np
import scipy  # scipy loads its submodules at the first use
import torch
from jaxtyping import Float
from torch import Tensor

from loopscale.theory.constructions.base import Construction, without_idle_heads
from loopscale.theory.constructions.example import Example, Limit

EXACT_DIFFERENCE = 1e-10
"""The largest distance between an exact construction and its algorithm, in float64."""
TOLERANCE = 0.15
"""Relative tolerance between the measured order and the expected order."""
TOGETHER = 4
"""Prompts that a net reads at once. The scores of a hundred heads for more prompts leave the processor's cache."""


def distances(construction: Construction, example: Example) -> Float[Tensor, "steps prompts"]:
    """The largest distance between net and algorithm in each prompt after every step.

    A distance is NaN where `example` expects no output. Raises ValueError if the example does not fit the construction.
    """
    net = without_idle_heads(construction.net(example.prompt))
    parts = [net(tokens, len(example.expected)) for tokens in example.tokens.split(TOGETHER)]
    outputs = torch.cat(parts, dim=1)
    errors = (outputs - example.expected).abs()
    checked = ~torch.isnan(example.expected)
    largest = torch.where(checked, errors, -1.0).amax((2, 3))
    return torch.where(checked.any(-1).any(-1), largest, torch.nan)


def approach(construction: Construction, limit: Limit, seed: int = 0) -> Float[np.ndarray, "values prompts"]:
    """The largest distance after any step at each value of the limit, all on the same random problem.

    The distance after a single step is less regular. The distance depends on how near the numbers of that step lie to
    knots. An algorithm that converges removes the error of its earlier steps.
    """
    largest = []
    for value in limit.values:
        finer = construction.model_validate(
            construction.model_dump() | {"kind": construction.kind, limit.setting: value}
        )
        steps = distances(finer, finer.example(torch.Generator().manual_seed(seed)))
        largest.append(steps.nan_to_num(-1).amax(0).numpy())
    return np.array(largest)


@dataclass(frozen=True)
class MeasuredOrder:
    """The exponent of the distance as a power of the limit's setting (or its inverse), estimated by regression."""

    value: float
    low: float
    """The lower end of the 95 % interval over prompts, from the exponents of the single prompts. NaN for one prompt."""
    high: float
    """The upper end of this interval."""

    def agrees(self, limit: Limit) -> bool:
        """True if the estimate lies within the relative tolerance of the order that is expected."""
        return math.isclose(self.value, limit.order, rel_tol=TOLERANCE)


def order(limit: Limit, errors: Float[np.ndarray, "values prompts"]) -> MeasuredOrder:
    """The order of the errors. NaN if an error is 0."""
    if not (errors > 0).all():
        return MeasuredOrder(math.nan, math.nan, math.nan)
    exponents = np.abs(np.polyfit(np.log(limit.values), np.log(errors), 1)[0])
    value, prompts = float(exponents.mean()), len(exponents)
    if prompts == 1:
        return MeasuredOrder(value, math.nan, math.nan)
    half = (
        float(scipy.special.stdtrit(prompts - 1, 0.975)) * float(exponents.std(ddof=1)) / math.sqrt(prompts)
    )
    return MeasuredOrder(value, value - half, value + half)
