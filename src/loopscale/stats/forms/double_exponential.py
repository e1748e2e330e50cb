"""A double exponential: every step along the axis raises the error to a power, as in Newton's iteration."""

import numpy as np

from loopscale.stats.contrasts import Array
from loopscale.stats.forms.base import SLOPES, Form


class DoubleExponential(Form, kind="double_exponential"):
    """The log error is scale - e^(strength + slope t). Without a scale the error starts from 1, the error of
    predicting nothing. Newton's iteration has the rate ln 2.
    """

    formula = "[scale] e^(-strength e^(rate x)), with the rate ln 2 for Newton's iteration"
    names = ("strength", "rate", "scale")
    optional = True
    course = "{verb} doubly exponentially, its logarithm by a factor of {factor} per {unit}"
    restarts = (0.3,)

    def value(self, theta: Array, t: Array) -> Array:
        scale = theta[:, 2:3] if self.size == 3 else 0.0
        return scale - self._fall(theta, t)

    def jacobian(self, theta: Array, t: Array) -> Array:
        fall = self._fall(theta, t)
        return np.stack([-fall, -fall * t, np.ones_like(fall)][: self.size], axis=2)

    def starts(self, t: Array, y: Array) -> Array:
        scales = y.max() + np.array([1e-2, 0.3, 1, 3]) if self.size == 3 else np.array([0.0])
        slope, scale = (grid.ravel() for grid in np.meshgrid(SLOPES / 4, scales))
        gap = np.maximum(scale[:, None] - y, 1e-6)
        first = np.log(gap).mean(1) - slope * t.mean()
        return np.stack([first, slope, scale], axis=1)[:, : self.size]

    def refitted(self, theta: Array, t: Array, y: Array) -> Array:
        return theta  # a residual is no multiple of the first parameter

    def natural(self, theta: Array, low: float, length: float) -> dict[str, float]:
        slope = float(theta[1]) / length
        strength = float(np.exp(float(theta[0]) - slope * low))
        scale = [float(np.exp(value)) for value in theta[2:]]
        return dict(zip(self.parameters, [strength, slope, *scale], strict=True))

    @staticmethod
    def _fall(theta: Array, t: Array) -> Array:
        return np.exp(np.clip(theta[:, :1] + theta[:, 1:2] * t, -60, 60))
