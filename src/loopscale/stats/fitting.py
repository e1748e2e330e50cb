"""One form fitted to runs, with the interval of its rate.

If each run is trained for one value of the axis, the interval follows the profile of the loss. The noise is then that
of the replicates, pooled. If each run gives a whole curve, the errors along a curve are not independent. Each curve
then counts as one observation of the rate, with Student's t.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopscale.stats.forms.base import Form
from loopscale.stats.huber import TUNING, descend, huber, solve
from loopscale.stats.intervals import Array, PooledVariance, pool
from loopscale.stats.profile import rate_interval

LEAST_LOSS = 1e-16


@dataclass(frozen=True)
class Data:
    """Log errors y of runs at x [n]; `group` is the run (replicate) of each."""

    x: Array
    y: Array
    group: np.ndarray
    excluded: int
    """The number of observations left out."""

    @property
    def whole_curves(self) -> bool:
        """True if a run has errors at several values."""
        return any(len(np.unique(self.x[self.group == run])) > 1 for run in np.unique(self.group))

    def at(self) -> list[Array]:
        """The log errors at each value of the axis."""
        return [self.y[self.x == value] for value in np.unique(self.x)]


def clean(form: Form, x: Any, y: Any, groups: Any) -> Data:
    """The data without values and errors that have no logarithm or are not finite."""
    x, y, groups = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), np.asarray(groups)
    good = np.isfinite(x) & np.isfinite(y) & (y > 0) & ((x > 0) | (not form.log_axis))
    return Data(x[good], np.log(y[good]), groups[good], int((~good).sum()))


@dataclass(frozen=True)
class Fit:
    """A form with its best parameters theta [size], in the coordinate of the data."""

    form: Form
    data: Data
    theta: Array
    threshold: float
    noise: PooledVariance | None
    """Of one run, from replicates at the same value; None without replicates, and for whole curves."""

    @classmethod
    def of(cls, form: Form, data: Data) -> "Fit":
        """The best fit."""
        t, _, _ = form.coordinate(data.x)
        noise = None if data.whole_curves else pool(data.at())
        theta, threshold = solve(form, t, data.y, float(np.sqrt(noise.variance)) if noise else None)
        return cls(form, data, theta, threshold, noise)

    @property
    def length(self) -> float:
        """The length of the transformed axis."""
        return self.form.coordinate(self.data.x)[2]

    @property
    def rate(self) -> float:
        """The slope per unit of the transformed axis."""
        return float(self.theta[1]) / self.length

    @property
    def means(self) -> Array:
        """The mean log error at each value of the axis."""
        return np.array([group.mean() for group in self.data.at()])

    @property
    def off(self) -> Array:
        """The mean log errors minus the law."""
        t, _, _ = self.form.coordinate(np.unique(self.data.x))
        return self.means - self.form.value(self.theta[None], t)[0]

    def interval(self) -> tuple[float | None, float | None]:
        """The 95 % interval of the rate; None without replicates."""
        if self.data.whole_curves:
            rates = np.array(self.rates())
            spread = pool([rates])
            half = spread.half_width(len(rates)) if spread else None
            return (None, None) if half is None else (self.rate - half, self.rate + half)
        if self.noise is None:
            return None, None
        spread = self.scatter() or self.noise
        threshold = max(self.threshold, TUNING * float(np.sqrt(spread.variance)))
        t, _, _ = self.form.coordinate(self.data.x)
        low, high = rate_interval(self.form, t, self.data.y, self.theta, threshold, spread)
        return low / self.length, high / self.length

    def rates(self) -> tuple[float, ...]:
        """The rate of each curve; a curve with fewer values than parameters has no rate."""
        if not self.data.whole_curves:
            return ()
        t, _, length = self.form.coordinate(self.data.x)
        rates = list[float]()
        for run in np.unique(self.data.group):
            own = self.data.group == run
            if len(np.unique(t[own])) >= self.form.size:
                theta, _ = descend(
                    self.form, t[own], self.data.y[None, own], self.theta[None], self.threshold
                )
                rates.append(float(theta[0, 1]) / length)
        return tuple(rates)

    def scatter(self) -> PooledVariance | None:
        """The scatter of the values about the law; None unless it plainly exceeds the noise of the replicates."""
        freedom = len(self.off) - self.form.size
        if freedom < 1 or self.noise is None:
            return None
        counts = np.array([len(group) for group in self.data.at()])
        lack = float(np.sum(counts * self.off**2)) / freedom
        scatter = PooledVariance(lack, freedom)
        return scatter if scatter.plainly_exceeds(self.noise) else None

    def aicc(self) -> float:
        """AICc of single runs; for whole curves, whose errors are not independent, AICc of the mean curve."""
        if self.data.whole_curves:
            count, square = len(self.off), float(np.sum(self.off**2))
        else:
            t, _, _ = self.form.coordinate(self.data.x)
            residual = self.data.y - self.form.value(self.theta[None], t)[0]
            count, square = len(residual), 2 * float(huber(residual, self.threshold).sum())
        free = count - self.form.size - 2
        if free < 1:
            return np.inf
        return count * np.log(max(square / count, LEAST_LOSS)) + 2 * (self.form.size + 1) * count / free

    def held_out(self) -> float | None:
        """Root mean square error of the log errors on the last quarter of the axis, predicted from the rest.

        None for fewer than six values.
        """
        values, means = np.unique(self.data.x), self.means
        if len(values) < 6:
            return None
        keep = len(values) - max(1, len(values) // 4)
        t, low, length = self.form.coordinate(values[:keep])
        theta, _ = solve(self.form, t, means[:keep], None)
        ahead = self.form.value(theta[None], (self.form.transform(values[keep:]) - low) / length)[0]
        return math.sqrt(((ahead - means[keep:]) ** 2).mean())
