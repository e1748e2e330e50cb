"""Robust fits of a form: Huber's loss of the log errors, from many starts at once.

On the log scale errors of every size weigh the same. Huber's loss gives a stray run little weight.
"""

from typing import cast

import numpy as np

from loopscale.stats.forms.base import Form
from loopscale.stats.intervals import Array

TUNING = 1.345
"""Threshold of Huber's loss in units of the noise: 95 % as efficient as least squares without stray runs."""
STEPS = 40


def huber(residual: Array, threshold: float) -> Array:
    """Half the square below the threshold, linear beyond it."""
    size = np.abs(residual)
    return np.where(size <= threshold, size**2 / 2, threshold * (size - threshold / 2))


def solve(form: Form, t: Array, y: Array, noise: float | None) -> tuple[Array, float]:
    """The best fit from all starts of the form.

    Parameters
    ----------
    t, y
        Coordinates and log errors [n].
    noise
        Standard deviation of one run. None: the median absolute deviation of the residuals takes its place.

    Returns
    -------
    theta, threshold
        Parameters [size], and the threshold of the loss.
    """
    starts = form.starts(t, y)
    data = np.broadcast_to(y, (len(starts), len(y)))
    threshold = TUNING * noise if noise else max(float(np.ptp(y)), 1e-6)
    threshold = max(threshold, 1e-6)
    theta, loss = descend(form, t, data, starts, threshold)
    best = theta[[int(np.nanargmin(loss))]]
    if not noise:
        spread = float(np.median(np.abs(y - form.value(best, t)[0]))) / 0.6745
        threshold = max(TUNING * spread, 1e-6)
        best, _ = descend(form, t, y[None], best, threshold)
    return best[0], threshold


def descend(
    form: Form, t: Array, y: Array, start: Array, threshold: float, hold: int | None = None
) -> tuple[Array, Array]:
    """Levenberg-Marquardt steps on Huber's loss, for a batch.

    Parameters
    ----------
    t, y
        Coordinates [n] and log errors [batch, n].
    start
        Parameters [batch, size].
    hold
        The index of a parameter that keeps its start.

    Returns
    -------
    theta, loss
        Parameters [batch, size] and losses [batch].
    """
    theta, damping = start.copy(), np.full(len(start), 1e-2)
    loss: Array = huber(y - form.value(theta, t), threshold).sum(1)
    for _ in range(STEPS):
        residual = y - form.value(theta, t)
        weight = np.minimum(1, threshold / np.maximum(np.abs(residual), 1e-300))
        slope = form.jacobian(theta, t)
        if hold is not None:
            slope[:, :, hold] = 0
        normal = np.einsum("bni,bn,bnj->bij", slope, weight, slope)
        pull = np.einsum("bni,bn,bn->bi", slope, weight, residual)
        scale = np.einsum("bii->bi", normal)
        ridge = np.maximum(scale, 1e-12) * damping[:, None] + 1e-14
        damped = normal + ridge[:, :, None] * np.eye(form.size)
        step = cast(Array, np.linalg.solve(damped, pull[:, :, None]))[:, :, 0]
        trial = theta + np.clip(step, -5, 5)
        trial_loss: Array = huber(y - form.value(trial, t), threshold).sum(1)
        better = trial_loss < loss
        settled = np.where(better, loss - trial_loss < 1e-9 * loss, damping > 10)
        theta = np.where(better[:, None], trial, theta)
        loss = np.where(better, trial_loss, loss)
        damping = np.clip(np.where(better, damping / 8, damping * 6), 1e-12, 1e8)
        if settled.all():
            break
    return theta, loss
