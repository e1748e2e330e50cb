"""Comparison of a construction with its algorithm: the distance after every step, and the order of the limit."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from loopscale.theory.constructions.base import Construction
from loopscale.theory.constructions.example import Example, Limit

EXACT = 1e-10
"""The largest distance between an exact construction and its algorithm, in float64."""
TOLERANCE = 0.15
"""Relative tolerance between the measured order and the order of the theorem. A fit has few points."""


def distances(construction: Construction, example: Example) -> Float[Tensor, "steps prompts"]:
    """The largest distance between net and algorithm in each prompt after every step.

    A distance is NaN where `example` expects no output. Raises ValueError if the example does not fit the construction.
    """
    outputs = construction.net(example.prompt)(example.tokens, len(example.expected))
    errors = (outputs - example.expected).abs()
    checked = ~torch.isnan(example.expected)
    largest = torch.where(checked, errors, -1.0).amax((2, 3))
    return torch.where(checked.any(-1).any(-1), largest, torch.nan)


def approach(construction: Construction, limit: Limit, seed: int = 0) -> Float[np.ndarray, " values"]:
    """The distance after the last step at each value of the limit, all on the same random problem.

    The geometric mean over prompts. The distance of a single prompt depends on how near its numbers lie to knots.
    """
    means = []
    for value in limit.values:
        finer = construction.model_validate(
            construction.model_dump() | {"kind": construction.kind, limit.setting: value}
        )
        last = distances(finer, finer.example(torch.Generator().manual_seed(seed)))[-1]
        means.append(last.log().mean().exp().item())
    return np.array(means)


def order(limit: Limit, errors: Float[np.ndarray, " values"]) -> float:
    """The exponent of the errors as a power of the setting (or its inverse). NaN if an error is 0."""
    if not (errors > 0).all():
        return math.nan
    return abs(float(np.polyfit(np.log(limit.values), np.log(errors), 1)[0]))
