"""The shapes that a law can take, and how one is fitted: in log error, robustly, from many starts at once.

Every fit is a batch: the same few Gauss-Newton steps on [batch] data sets or starts in one go, so that a
bootstrap costs what one fit costs. The scale is solved for at every start (variable projection); a grid
over the rest leaves the search no room to end in the wrong valley.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
TUNING = 1.345
"""Huber's threshold in units of the noise: 95 % as efficient as least squares when there are no stray runs.
"""
STEPS = 40


@dataclass(frozen=True)
class Shape:
    """One parametrisation: the logarithm of the error as a function of the axis."""

    name: str
    transform: Callable[[Array], Array]
    names: tuple[str, ...]
    doubly: bool = False

    @property
    def size(self) -> int:
        return len(self.names)

    def coordinate(self, x: Array) -> tuple[Array, float, float]:
        """The transformed axis on [0, 1], with the offset and the length that were taken out."""
        raw = self.transform(x)
        low, length = float(raw.min()), float(np.ptp(raw)) or 1.0
        return (raw - low) / length, low, length

    def value(self, theta: Array, t: Array) -> Array:
        """Log error, [batch, n], at parameters [batch, size] in the coordinate."""
        first, slope = theta[:, :1], theta[:, 1:2]
        if self.doubly:
            scale = theta[:, 2:3] if self.size == 3 else 0.0
            return scale - np.exp(np.clip(first + slope * t, -60, 60))
        line = first - slope * t
        return np.logaddexp(line, theta[:, 2:3]) if self.size == 3 else line

    def jacobian(self, theta: Array, t: Array) -> Array:
        """[batch, n, size]."""
        first, slope = theta[:, :1], theta[:, 1:2]
        if self.doubly:
            fall = np.exp(np.clip(first + slope * t, -60, 60))
            columns = [-fall, -fall * t, np.ones_like(fall)]
        else:
            share = np.ones((len(theta), len(t)))
            if self.size == 3:
                share = 1 / (1 + np.exp(np.clip(theta[:, 2:3] - first + slope * t, -500, 500)))
            columns = [share, -share * t, 1 - share]
        return np.stack(columns[: self.size], axis=2)

    def starts(self, t: Array, y: Array) -> Array:
        """A grid over all but the first parameter, which the data then give."""
        rates = np.concatenate([-np.geomspace(6, 0.3, 3), [0.0], np.geomspace(0.1, 40, 9)])
        if self.doubly:
            offsets = np.array([0.0]) if self.size == 2 else y.max() + np.array([1e-2, 0.3, 1, 3])
            slope, offset = (grid.ravel() for grid in np.meshgrid(rates / 4, offsets))
            gap = np.maximum(offset[:, None] - y, 1e-6)
            first = np.log(gap).mean(1) - slope * t.mean()
            return np.stack([first, slope, offset], axis=1)[:, : self.size]
        floors = y.min() - np.array([1e-2, 0.2, 1, 5]) if self.size == 3 else np.array([-np.inf])
        slope, floor = (grid.ravel() for grid in np.meshgrid(rates, floors))
        above = y + np.log(-np.expm1(np.minimum(floor[:, None] - y, -1e-3)))
        first = (above + slope[:, None] * t).mean(1)
        return np.stack([first, slope, floor], axis=1)[:, : self.size]

    def natural(self, theta: Array, low: float, length: float) -> dict[str, float]:
        """Parameters on the axis itself, by name."""
        slope = float(theta[1]) / length
        first = float(theta[0]) + (-slope if self.doubly else slope) * low
        rest = [float(np.exp(value)) for value in theta[2:]]
        return dict(zip(self.names, [float(np.exp(first)), slope, *rest], strict=True))


def _identity(x: Array) -> Array:
    return x


def _log_log(x: Array) -> Array:
    return np.log(np.log1p(x))


_POWER = ("scale", "exponent")
_RATE = ("scale", "rate")
FORMS: dict[str, tuple[Shape, ...]] = {
    "power": (Shape("power", np.log, _POWER),),
    "power_floor": (Shape("power_floor", np.log, (*_POWER, "floor")),),
    "exponential": (
        Shape("exponential", _identity, _RATE),
        Shape("exponential", _identity, (*_RATE, "floor")),
    ),
    "double_exponential": (
        Shape("double_exponential", _identity, ("strength", "rate"), doubly=True),
        Shape("double_exponential", _identity, ("strength", "rate", "scale"), doubly=True),
    ),
    "log_power": (Shape("log_power", _log_log, _POWER),),
}
"""By name. Where a form has two shapes, AICc chooses: an exponential may end in a floor (a trained net's
always does, sooner or later), and a double exponential may start elsewhere than at 1, the error of
predicting nothing.

    power               scale x^-exponent
    power_floor         scale x^-exponent + floor
    exponential         scale e^(-rate x) [+ floor]
    double_exponential  [scale] e^(-strength e^(rate x)): Newton's iteration, where the rate is ln 2
    log_power           scale (ln(1 + x))^-exponent: finite at x = 1, unlike ln x
"""


def descend(
    shape: Shape, t: Array, y: Array, start: Array, threshold: float, hold: int | None = None
) -> tuple[Array, Array]:
    """Levenberg-Marquardt on Huber's loss of y - value, for a batch: parameters [batch, size] and losses
    [batch].

    A parameter to `hold` stays at its start.
    """
    theta, damping = start.copy(), np.full(len(start), 1e-2)
    loss = huber(y - shape.value(theta, t), threshold).sum(1)
    for _ in range(STEPS):
        residual = y - shape.value(theta, t)
        weight = np.minimum(1, threshold / np.maximum(np.abs(residual), 1e-300))
        slope = shape.jacobian(theta, t)
        if hold is not None:
            slope[:, :, hold] = 0
        normal = np.einsum("bni,bn,bnj->bij", slope, weight, slope)
        pull = np.einsum("bni,bn,bn->bi", slope, weight, residual)
        scale = np.einsum("bii->bi", normal)
        ridge = np.maximum(scale, 1e-12) * damping[:, None] + 1e-14
        step = np.linalg.solve(normal + ridge[:, :, None] * np.eye(shape.size), pull[:, :, None])[:, :, 0]
        trial = theta + np.clip(step, -5, 5)
        trial_loss = huber(y - shape.value(trial, t), threshold).sum(1)
        better = trial_loss < loss
        settled = np.where(better, loss - trial_loss < 1e-9 * loss, damping > 10)
        theta = np.where(better[:, None], trial, theta)
        loss = np.where(better, trial_loss, loss)
        damping = np.clip(np.where(better, damping / 8, damping * 6), 1e-12, 1e8)
        if settled.all():
            break
    return theta, loss


def huber(residual: Array, threshold: float) -> Array:
    """Half the square near zero, linear beyond the threshold."""
    size = np.abs(residual)
    return np.where(size <= threshold, size**2 / 2, threshold * (size - threshold / 2))


def solve(shape: Shape, t: Array, y: Array, noise: float | None) -> tuple[Array, float]:
    """The best parameters from every start of the grid, and the threshold that was used.

    Without a noise from replicates the threshold comes from the residuals themselves (median absolute
    deviation).
    """
    starts = shape.starts(t, y)
    data = np.broadcast_to(y, (len(starts), len(y)))
    threshold = TUNING * noise if noise else max(float(np.ptp(y)), 1e-6)
    threshold = max(threshold, 1e-6)
    theta, loss = descend(shape, t, data, starts, threshold)
    best = theta[[int(np.nanargmin(loss))]]
    if not noise:
        spread = float(np.median(np.abs(y - shape.value(best, t)[0]))) / 0.6745
        threshold = max(TUNING * spread, 1e-6)
        best, _ = descend(shape, t, y[None], best, threshold)
    return best[0], threshold
