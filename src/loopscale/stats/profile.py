"""The interval of a fitted rate: all rates that the noise cannot tell from the best rate.

The interval follows the profile of the loss, not the curvature at the minimum. If a floor hides the fall, most rates
that fit lie on one side, and a symmetric interval covered 82 %. A studentised bootstrap over pooled residuals was
simulated too. The bootstrap covers the same if the curvature is right, and no better (76 %) if it is not.
"""

from typing import cast

import numpy as np

from loopscale.stats.forms.base import Form
from loopscale.stats.huber import descend, huber
from loopscale.stats.intervals import Array, PooledVariance, student

LOSS_PER_VARIANCE = 0.865
"""E[ψ²]/E[ψ'] of Huber's loss at 1.345 for normal noise: the rise of twice the loss per squared standard error."""
REACH = np.concatenate([np.linspace(0.1, 1.6, 16), np.geomspace(1.8, 40, 14)])
"""Distances at which the profile is computed, in half widths of the symmetric interval."""


def rate_interval(
    form: Form, t: Array, y: Array, best: Array, threshold: float, spread: PooledVariance
) -> tuple[float, float]:
    """The lowest and the highest slope along t that the noise allows; infinite on a side without a bound.

    Parameters
    ----------
    t, y
        Coordinates and log errors of all runs [n].
    best, threshold
        The fit, see `huber.solve`.
    spread
        The noise of one run.
    """
    unit = student(spread.freedom) * standard_error(form, t, best, spread)
    loss = float(huber(y - form.value(best[None], t)[0], threshold).sum())
    allowed = LOSS_PER_VARIANCE * spread.variance * student(spread.freedom) ** 2
    low, high = (
        best[1]
        + side * unit * _crossing(_profile(form, t, y, best, side * unit * REACH, threshold) - loss, allowed)
        for side in (-1, 1)
    )
    return float(low), float(high)


def standard_error(form: Form, t: Array, best: Array, spread: PooledVariance) -> float:
    """The standard error of the slope, from the curvature at the minimum."""
    slope = form.jacobian(best[None], t)[0]
    inverse = cast(Array, np.linalg.pinv(slope.T @ slope, rcond=1e-9, hermitian=True))
    return max(float(np.sqrt(spread.variance * max(inverse[1, 1], 0))), 1e-9)


def _profile(form: Form, t: Array, y: Array, best: Array, offsets: Array, threshold: float) -> Array:
    """The least loss with the slope held at each offset from the best slope."""
    starts = np.repeat(best[None], len(offsets), axis=0)
    starts[:, 1] += offsets
    tries = [starts]
    for shift in form.restarts if form.size == 3 else ():
        moved = starts.copy()
        moved[:, 2] += shift
        tries.append(moved)
    stacked = form.refitted(np.concatenate(tries), t, y)
    data = np.broadcast_to(y, (len(stacked), len(y)))
    _, loss = descend(form, t, data, stacked, threshold, hold=1)
    return loss.reshape(len(tries), len(offsets)).min(0)


def _crossing(rise: Array, allowed: float) -> float:
    """Where twice the rise of the loss first exceeds `allowed`, in units of `REACH`."""
    depth = np.sqrt(np.maximum(2 * rise, 0) / allowed)
    beyond = np.flatnonzero(depth > 1)
    if not len(beyond):
        return np.inf
    after = int(beyond[0])
    x0, y0 = (REACH[after - 1], depth[after - 1]) if after else (0.0, 0.0)
    return float(x0 + (1 - y0) * (REACH[after] - x0) / (depth[after] - y0))
