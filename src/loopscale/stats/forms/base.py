"""The form of a law: the logarithm of an error as a function of an axis, with two or three parameters.

A fit works on a coordinate t, the transformed axis moved and scaled to [0, 1], and on parameters theta [batch, size].
The second parameter is the slope along t. The rate of the law is the slope per unit of the transformed axis, positive
if the error falls. A batch holds all starts of a fit, so that many starts cost little more than one.
"""

import math
from abc import abstractmethod
from typing import ClassVar

import numpy as np

from loopscale.core.config import Family
from loopscale.stats.contrasts import Array

SLOPES = np.concatenate([-np.geomspace(6, 0.3, 3), [0.0], np.geomspace(0.1, 40, 9)])
"""Slopes along t from which a fit starts."""


class Form(Family, package="loopscale.stats.forms"):
    """A parametrisation of a law. A form with an optional last parameter has two instances, see `variants`."""

    facts = ("formula",)
    formula: ClassVar[str]
    """The error at x, with the optional part in brackets."""
    names: ClassVar[tuple[str, ...]]
    """The parameters; the second is the rate."""
    optional: ClassVar[bool] = False
    """True if the form also exists without its last parameter."""
    log_axis: ClassVar[bool] = False
    """True if the law needs x > 0 and is drawn on a logarithmic axis."""
    least_margin: ClassVar[float] = 0.1
    """The least `margin`. 0 if the rate is per unit of the axis, so that its size depends on that unit."""
    course: ClassVar[str] = "{verb} as {axis}^{exponent}"
    """The law in words. `verb` is falls or grows. A form whose rate is per unit of the axis has `factor`, which is
    e^|rate|, and `unit` in the place of `axis` and `exponent`.
    """
    restarts: ClassVar[tuple[float, ...]]
    """Shifts of the third parameter from which the profile of the rate starts too."""

    short: bool = False
    """True for the instance without the optional parameter."""

    @classmethod
    def variants(cls) -> tuple["Form", ...]:
        """The instances, among which AICc chooses; fewest parameters first."""
        return (cls(short=True), cls()) if cls.optional else (cls(),)

    @classmethod
    def margin(cls, predicted: float) -> float:
        """How far a rate may be from the predicted rate and still agree: a tenth of it, at least `least_margin`."""
        return max(cls.least_margin, 0.1 * abs(predicted)) or 0.1

    @classmethod
    def worded(
        cls, axis: str, unit: str, rate: float, low: float | None = None, high: float | None = None
    ) -> str:
        """A rate with its interval, as a predicate: `falls by a factor of 1.24 per loop (95 % interval 1.17 to 1.32)`.

        Parameters
        ----------
        axis, unit
            The axis, and one step along the axis, in words.
        """
        per_unit, sign = "{factor}" in cls.course, -1.0 if rate < 0 else 1.0
        values = [rate, *(end for end in (low, high) if end is not None)]
        values = [math.exp(min(sign * value, 700.0)) if per_unit else -value for value in values]
        values = [values[0], *sorted(values[1:])]
        rate_word, *ends = (f"{value:.3g}" if abs(value) < 1e300 else "unbounded" for value in values)
        verb = "grows" if rate < 0 else "falls"
        text = cls.course.format(verb=verb, axis=axis, unit=unit, factor=rate_word, exponent=rate_word)
        of = "" if per_unit else " of the exponent"
        return f"{text} (95 % interval{of} {ends[0]} to {ends[1]})" if len(ends) == 2 else text

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of this instance's parameters."""
        return self.names[:-1] if self.short else self.names

    @property
    def size(self) -> int:
        """The number of parameters."""
        return len(self.parameters)

    def transform(self, x: Array) -> Array:
        """The axis along which the slope is measured, increasing in x."""
        return np.log(x) if self.log_axis else x

    def coordinate(self, x: Array) -> tuple[Array, float, float]:
        """The coordinate t of x, and the offset and the length of the transformed axis."""
        raw = self.transform(x)
        low, length = float(raw.min()), float(np.ptp(raw)) or 1.0
        return (raw - low) / length, low, length

    @abstractmethod
    def value(self, theta: Array, t: Array) -> Array:
        """The log error [batch, n] at t [n]."""

    @abstractmethod
    def jacobian(self, theta: Array, t: Array) -> Array:
        """The derivatives [batch, n, size] of the log error."""

    @abstractmethod
    def starts(self, t: Array, y: Array) -> Array:
        """Parameters from which a fit to log errors y starts.

        The first parameter follows from the data and the others (variable projection). A grid over the others keeps
        the search from ending in a wrong valley.
        """

    @abstractmethod
    def refitted(self, theta: Array, t: Array, y: Array) -> Array:
        """Parameters whose first one is adapted to the data, after a change of the others."""

    @abstractmethod
    def natural(self, theta: Array, low: float, length: float) -> dict[str, float]:
        """The parameters of `formula` by name, from theta [size] and the coordinate's offset and length."""


class Line(Form):
    """A line in the transformed axis, with an optional floor: log(e^(first - slope t) + e^floor)."""

    restarts = (-3.0, 0.5)

    def value(self, theta: Array, t: Array) -> Array:
        line = theta[:, :1] - theta[:, 1:2] * t
        return np.logaddexp(line, theta[:, 2:3]) if self.size == 3 else line

    def jacobian(self, theta: Array, t: Array) -> Array:
        share = np.ones((len(theta), len(t)))  # of the error that lies above the floor
        if self.size == 3:
            share = 1 / (1 + np.exp(np.clip(theta[:, 2:3] - theta[:, :1] + theta[:, 1:2] * t, -500, 500)))
        return np.stack([share, -share * t, 1 - share][: self.size], axis=2)

    def starts(self, t: Array, y: Array) -> Array:
        floors = y.min() - np.array([1e-2, 0.2, 1, 5]) if self.size == 3 else np.array([-np.inf])
        slope, floor = (grid.ravel() for grid in np.meshgrid(SLOPES, floors))
        above = y + np.log(-np.expm1(np.minimum(floor[:, None] - y, -1e-3)))
        first = (above + slope[:, None] * t).mean(1)
        return np.stack([first, slope, floor], axis=1)[:, : self.size]

    def refitted(self, theta: Array, t: Array, y: Array) -> Array:
        moved = theta.copy()
        moved[:, 0] += np.median(y - self.value(theta, t), axis=1)
        return moved

    def natural(self, theta: Array, low: float, length: float) -> dict[str, float]:
        slope = float(theta[1]) / length
        scale = float(np.exp(float(theta[0]) + slope * low))
        floor = [float(np.exp(value)) for value in theta[2:]]
        return dict(zip(self.parameters, [scale, slope, *floor], strict=True))


def variants(kind: str) -> tuple[Form, ...]:
    """The instances of a form. Raises ValueError for an unknown kind."""
    form = Form.member(kind)
    if form is None:
        raise ValueError(f"no form {kind!r}; there is {', '.join(Form.choices())}")
    return form.variants()
