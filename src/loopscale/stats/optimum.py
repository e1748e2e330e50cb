"""The value of an axis with the least error: the vertex of a parabola in the logarithms, with its interval.

The parabola is that of the IsoFLOP profiles of @hoffmann2022, section 3.2: log error against the log of the axis, at
equal cost. An error falls and rises at different speeds, so only the least value and its nearest neighbours count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from loopscale.stats.contrasts import Array, PooledVariance, pool, student

NEIGHBOURS = 2
"""The number of fitted values on each side of the least one."""
LEAST_OF_PARABOLA = 3
"""The least number of values on an axis that can have an optimum."""
Place = Literal["inside", "at the edge", "undecided"]


@dataclass(frozen=True)
class Optimum:
    """The optimum of an axis."""

    least: float
    """The tried value with the least geometric mean of the errors."""
    place: Place
    """`inside` if the whole interval lies between the smallest and the largest tried value. `at the edge` if the least
    value is one of these two: a value outside may have less error."""
    fitted: tuple[float, ...]
    """The values of the parabola, or at the edge the value there."""
    value: float | None = None
    """The vertex; None at the edge, or if the parabola has no minimum."""
    low: float | None = None
    high: float | None = None
    """The ends of the 95 % interval of the vertex; None without a bounded interval."""


def find_optimum(x: Sequence[float], errors: Sequence[Array]) -> Optimum:
    """The optimum of the errors of several replicates at each x.

    The interval is Fieller's: the places where the slope of the parabola may be 0. The noise is that of the
    replicates, pooled over all x. If the means scatter about the parabola plainly more (F test at 1 %), the scatter is
    the noise.

    Parameters
    ----------
    x
        At least three different values above 0.
    errors
        The errors above 0 at each x, of one or more replicates.

    Raises
    ------
    ValueError
        For fewer than three values, or for values or errors of 0 or less.
    """
    order = np.argsort(x)
    places = np.asarray(x, dtype=np.float64)[order]
    groups = [np.asarray(errors[index], dtype=np.float64) for index in order]
    if (number := len(np.unique(places))) < LEAST_OF_PARABOLA:
        raise ValueError(
            f"{number} values on the axis are too few; {LEAST_OF_PARABOLA} could have an optimum"
        )
    if places[0] <= 0 or any(not len(group) or group.min() <= 0 for group in groups):
        raise ValueError("logarithms need values and errors above 0")
    logs = [np.log(group) for group in groups]
    least = int(np.argmin([group.mean() for group in logs]))
    if least in (0, len(places) - 1):
        return Optimum(float(places[least]), "at the edge", (float(places[least]),))
    near = slice(max(least - NEIGHBOURS, 0), least + NEIGHBOURS + 1)
    centre = float(np.log(places[least]))
    value, ends = _vertex(np.log(places[near]) - centre, logs[near], pool(logs))
    low, high = (None if end is None else float(np.exp(centre + end)) for end in ends)
    inside = low is not None and high is not None and places[0] <= low and high <= places[-1]
    vertex = None if value is None else float(np.exp(centre + value))
    fitted = tuple(places[near].tolist())
    return Optimum(float(places[least]), "inside" if inside else "undecided", fitted, vertex, low, high)


def _vertex(
    u: Array, groups: Sequence[Array], noise: PooledVariance | None
) -> tuple[float | None, tuple[float | None, float | None]]:
    """The vertex of a parabola through the groups at u, and the ends of its interval."""
    counts = [len(group) for group in groups]
    design = np.vander(np.repeat(u, counts), 3, increasing=True)
    y = np.concatenate(groups)
    coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
    _, slope, curvature = (float(value) for value in coefficients)
    if curvature <= 0:
        return None, (None, None)
    value = -slope / (2 * curvature)
    if noise is None:
        return value, (None, None)
    if len(u) > LEAST_OF_PARABOLA:
        fitted = np.vander(u, 3, increasing=True) @ coefficients
        lack = sum(len(group) * (group.mean() - at) ** 2 for group, at in zip(groups, fitted, strict=True))
        scatter = PooledVariance(float(lack) / (len(u) - LEAST_OF_PARABOLA), len(u) - LEAST_OF_PARABOLA)
        noise = scatter if scatter.plainly_exceeds(noise) else noise
    covariance: Array = noise.variance * np.linalg.inv(design.T @ design).astype(np.float64)
    return value, _fieller(slope, curvature, covariance[1:, 1:], student(noise.freedom))


def _fieller(
    slope: float, curvature: float, covariance: Array, t: float
) -> tuple[float | None, float | None]:
    """The u at which slope + 2 curvature u is within t standard errors of 0; None for ends that are not bounded."""
    square = 4 * (curvature**2 - t**2 * covariance[1, 1])
    linear = 4 * (slope * curvature - t**2 * covariance[0, 1])
    constant = slope**2 - t**2 * covariance[0, 0]
    if square <= 0:
        return None, None
    root = np.sqrt(max(linear**2 - 4 * square * constant, 0.0))
    return float((-linear - root) / (2 * square)), float((-linear + root) / (2 * square))
