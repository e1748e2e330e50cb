"""Simulated steps of emergence, known up to the interval between two reports."""

import math

import numpy as np

from loopscale.stats.contrasts import Array
from loopscale.stats.survival import Distribution

DISTRIBUTIONS: tuple[Distribution, ...] = ("lognormal", "weibull")


def censored(steps: Array, every: float = 200, last: float = 1200) -> tuple[Array, Array]:
    """The intervals between reports."""
    report = np.ceil(steps / every) * every
    return np.where(report <= last, report - every, last), np.where(report <= last, report, np.inf)


def simulated(
    seed: int,
    each: int = 4,
    slopes: tuple[float, ...] = (0.4,),
    distribution: Distribution = "lognormal",
) -> tuple[Array, Array, Array]:
    """Columns and intervals: four values of a first axis, and random other columns."""
    rng = np.random.default_rng(seed)
    first = np.repeat(np.log2([1.0, 2.0, 4.0, 8.0]), each)
    columns = np.column_stack([first, rng.standard_normal((len(first), len(slopes) - 1))])
    normal, extreme = rng.standard_normal(len(first)), np.log(rng.standard_exponential(len(first)))
    noise = normal if distribution == "lognormal" else extreme
    steps = np.exp(math.log(500) + columns @ slopes + 0.5 * noise)
    return columns, *censored(steps)
