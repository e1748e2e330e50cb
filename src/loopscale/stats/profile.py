"""The interval of a fitted rate: every rate that the noise cannot tell from the best one.

The profile of the loss, not its curvature at the minimum: where a floor hides the fall, the rates that fit
are many and lie to one side, and a symmetric interval covered 82 %. A studentised bootstrap over pooled
residuals was tried on the same simulations: equal where the curvature is right, and no better (76 %) where
it is not.
"""

import numpy as np

from loopscale.stats.forms import Array, Shape, descend, huber
from loopscale.stats.intervals import PooledVariance, student

LOSS_PER_VARIANCE = 0.865
"""E[ψ²]/E[ψ'] of Huber's loss at 1.345 for normal noise: what twice the loss rises by per squared standard
error.
"""
REACH = np.concatenate([np.linspace(0.1, 1.6, 16), np.geomspace(1.8, 40, 14)])
"""How far to look, in half widths of the symmetric interval."""


def rate_interval(
    shape: Shape, t: Array, y: Array, best: Array, threshold: float, spread: PooledVariance
) -> tuple[float, float]:
    """The lowest and highest slope in the coordinate; infinite where nothing bounds it on that side."""
    unit = student(spread.freedom) * standard_error(shape, t, best, spread)
    loss = float(huber(y - shape.value(best[None], t)[0], threshold).sum())
    allowed = LOSS_PER_VARIANCE * spread.variance * student(spread.freedom) ** 2
    low, high = (
        best[1]
        + side * unit * _crossing(_rises(shape, t, y, best, side * unit * REACH, threshold) - loss, allowed)
        for side in (-1, 1)
    )
    return float(low), float(high)


def standard_error(shape: Shape, t: Array, best: Array, spread: PooledVariance) -> float:
    """Of the slope, from the curvature at the minimum."""
    slope = shape.jacobian(best[None], t)[0]
    inverse = np.linalg.pinv(slope.T @ slope, rcond=1e-9, hermitian=True)
    return max(float(np.sqrt(spread.variance * max(inverse[1, 1], 0))), 1e-9)


def _rises(shape: Shape, t: Array, y: Array, best: Array, offsets: Array, threshold: float) -> Array:
    """The least loss with the slope held at each offset from the best one."""
    starts = np.repeat(best[None], len(offsets), axis=0)
    starts[:, 1] += offsets
    tries = [starts]
    if shape.size == 3:
        for shift in (-3.0, 0.5) if not shape.doubly else (0.3,):
            moved = starts.copy()
            moved[:, 2] += shift
            tries.append(moved)
    stacked = np.concatenate(tries)
    stacked[:, 0] += (np.median(y - shape.value(stacked, t), axis=1)) * (not shape.doubly)
    data = np.broadcast_to(y, (len(stacked), len(y)))
    _, loss = descend(shape, t, data, stacked, threshold, hold=1)
    return loss.reshape(len(tries), len(offsets)).min(0)


def _crossing(rise: Array, allowed: float) -> float:
    """Where twice the rise first passes what is allowed, in units of `REACH`."""
    depth = np.sqrt(np.maximum(2 * rise, 0) / allowed)
    beyond = np.flatnonzero(depth > 1)
    if not len(beyond):
        return np.inf
    after = int(beyond[0])
    x0, y0 = (REACH[after - 1], depth[after - 1]) if after else (0.0, 0.0)
    return float(x0 + (1 - y0) * (REACH[after] - x0) / (depth[after] - y0))
