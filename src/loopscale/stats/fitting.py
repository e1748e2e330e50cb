"""One shape fitted to runs, and how sure its rate is."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import fdtrc

from loopscale.stats.forms import TUNING, Array, Shape, descend, huber, solve
from loopscale.stats.intervals import PooledVariance, pool
from loopscale.stats.profile import rate_interval

LEAST_LOSS = 1e-16
DOUBT = 0.01
"""The level of the F test by which scatter about the law counts as more than the replicates' noise."""


@dataclass(frozen=True)
class Data:
    """Log errors of runs; `group` says which run (replicate) each belongs to."""

    x: Array
    y: Array
    group: np.ndarray
    excluded: int

    @property
    def whole_curves(self) -> bool:
        return any(len(np.unique(self.x[self.group == run])) > 1 for run in np.unique(self.group))

    def at(self) -> list[Array]:
        """The log errors at each value of the axis."""
        return [self.y[self.x == value] for value in np.unique(self.x)]


def clean(form: str, x: Any, y: Any, groups: Any) -> Data:
    """Without what has no logarithm."""
    x, y, groups = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), np.asarray(groups)
    logarithmic = form in ("power", "power_floor", "log_power")
    good = np.isfinite(x) & np.isfinite(y) & (y > 0) & ((x > 0) | (not logarithmic))
    return Data(x[good], np.log(y[good]), groups[good], int((~good).sum()))


@dataclass(frozen=True)
class Fit:
    """A shape with the parameters that fit best, in its coordinate."""

    shape: Shape
    data: Data
    theta: Array
    threshold: float
    noise: PooledVariance | None
    """Of one run, from replicates at the same value; `None` without any, and for whole curves."""

    @classmethod
    def of(cls, shape: Shape, data: Data) -> "Fit":
        t, _, _ = shape.coordinate(data.x)
        noise = None if data.whole_curves else pool(data.at())
        theta, threshold = solve(shape, t, data.y, float(np.sqrt(noise.variance)) if noise else None)
        return cls(shape, data, theta, threshold, noise)

    @property
    def length(self) -> float:
        """Of the axis, in the transformed coordinate."""
        return self.shape.coordinate(self.data.x)[2]

    @property
    def means(self) -> Array:
        """Mean log errors at each value of the axis."""
        return np.array([group.mean() for group in self.data.at()])

    @property
    def off(self) -> Array:
        """How far the means are from the law."""
        t, _, _ = self.shape.coordinate(np.unique(self.data.x))
        return self.means - self.shape.value(self.theta[None], t)[0]

    def interval(self) -> tuple[float | None, float | None]:
        """Of the rate; from the profile with the pooled noise of replicates, or from whole curves' own
        rates.
        """
        if self.data.whole_curves:
            rates = np.array(self.rates())
            spread = pool([rates])
            rate, half = self.theta[1] / self.length, spread.half_width(len(rates)) if spread else None
            return (None, None) if half is None else (float(rate - half), float(rate + half))
        if self.noise is None:
            return None, None
        spread = self.scatter() or self.noise
        threshold = max(self.threshold, TUNING * float(np.sqrt(spread.variance)))
        t, _, _ = self.shape.coordinate(self.data.x)
        low, high = rate_interval(self.shape, t, self.data.y, self.theta, threshold, spread)
        return low / self.length, high / self.length

    def rates(self) -> tuple[float, ...]:
        """Each run's own rate; a curve with fewer values than parameters has none."""
        if not self.data.whole_curves:
            return ()
        t, _, length = self.shape.coordinate(self.data.x)
        found = []
        for run in np.unique(self.data.group):
            mine = self.data.group == run
            if len(np.unique(t[mine])) >= self.shape.size:
                own, _ = descend(
                    self.shape, t[mine], self.data.y[None, mine], self.theta[None], self.threshold
                )
                found.append(float(own[0, 1]) / length)
        return tuple(found)

    def scatter(self) -> PooledVariance | None:
        """The scatter of the values about the law, where it is plainly more than the replicates' noise."""
        freedom = len(self.off) - self.shape.size
        if freedom < 1 or self.noise is None:
            return None
        counts = np.array([len(group) for group in self.data.at()])
        lack = float(np.sum(counts * self.off**2)) / freedom
        plain = fdtrc(freedom, self.noise.freedom, lack / max(self.noise.variance, LEAST_LOSS)) < DOUBT
        return PooledVariance(lack, freedom) if plain else None

    def aicc(self) -> float:
        """Of single runs; along curves, whose errors are not independent, of the mean curve."""
        if self.data.whole_curves:
            count, square = len(self.off), float(np.sum(self.off**2))
        else:
            t, _, _ = self.shape.coordinate(self.data.x)
            residual = self.data.y - self.shape.value(self.theta[None], t)[0]
            count, square = len(residual), 2 * float(huber(residual, self.threshold).sum())
        free = count - self.shape.size - 2
        if free < 1:
            return np.inf
        return count * np.log(max(square / count, LEAST_LOSS)) + 2 * (self.shape.size + 1) * count / free

    def held_out(self) -> float | None:
        """Root mean square log error on the last quarter of the axis, from a fit to the rest; needs six
        values.
        """
        values, means = np.unique(self.data.x), self.means
        if len(values) < 6:
            return None
        keep = len(values) - max(1, len(values) // 4)
        t, low, length = self.shape.coordinate(values[:keep])
        theta, _ = solve(self.shape, t, means[:keep], None)
        ahead = self.shape.value(theta[None], (self.shape.transform(values[keep:]) - low) / length)[0]
        return float(np.sqrt(np.mean((ahead - means[keep:]) ** 2)))
