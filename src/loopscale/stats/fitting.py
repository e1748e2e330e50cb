"""One form fitted to runs, with the interval of its rate, and the verdict on the interval beside a predicted rate.

On the log scale errors of every size weigh the same. Huber's loss gives a stray run little weight.

If each run is trained for one value of the axis, the interval follows the profile of the loss, not the curvature at
the minimum. The noise is then that of the replicates, pooled. If a floor hides the fall, most rates that fit lie on
one side, and a symmetric interval covered 82 %. A studentised bootstrap over pooled residuals was simulated too. The
bootstrap covers the same if the curvature is right, and no better (76 %) if it is not.

If each run gives a whole curve, the errors along a curve are not independent. Each curve then counts as one
observation of the rate, with Student's t.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

from loopscale.stats.contrasts import ALPHA, Array, PooledVariance, pool, student
from loopscale.stats.forms.base import Form, variants

CLOSE = 2.0
"""AICc does not tell forms apart that differ by less."""
CLOSE_SHAPES = 3.0
"""The same for the nested instances of one form. In 400 simulations the interval of a plain exponential covered 91.5 %
with 2 and 95 % with 4, that of a double exponential 94 % with 2 and 97 % with 3. 3 lies between.
"""

TUNING = 1.345
"""Threshold of Huber's loss in units of the noise: 95 % as efficient as least squares without stray runs."""
EFFICIENCY = 0.95
"""Of Huber's loss at this threshold, relative to least squares with normal noise."""
STEPS = 40
LAST_GAIN, LAST_MOVE = 1e-9, 1e-5
"""A descent ends when a step lowers the loss by a smaller share, and moves every parameter by less. A small gain alone
is no sign of the end: along the valley of a floor far below the errors, every step gains little.
"""
LOSS_PER_VARIANCE = 0.865
"""E[ψ²]/E[ψ'] of Huber's loss at 1.345 for normal noise: the rise of twice the loss per squared standard error."""
REACH = np.concatenate([np.linspace(0.1, 1.6, 16), np.geomspace(1.8, 40, 14)])
"""Distances at which the profile is computed, in half widths of the symmetric interval."""
LEAST_LOSS = 1e-16


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
    """Levenberg-Marquardt steps on Huber's loss, for a batch. The end of a row does not depend on the other rows.

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
    theta, least = start.copy(), np.empty(len(start))
    rows = np.arange(len(start))  # of the batch that still descend
    current, damping = theta, np.full(len(start), 1e-2)
    residual: Array = y - form.value(current, t)
    loss: Array = huber(residual, threshold).sum(1)
    for _ in range(STEPS):
        weight = np.minimum(1, threshold / np.maximum(np.abs(residual), 1e-300))
        slope = form.jacobian(current, t)
        if hold is not None:
            slope[:, :, hold] = 0
        # With the batch as the fastest axis, einsum takes a tenth of the time for the same sums.
        slope, weight, off = (np.asfortranarray(part) for part in (slope, weight, residual))
        normal = np.einsum("bni,bn,bnj->bij", slope, weight, slope)
        pull = np.einsum("bni,bn,bn->bi", slope, weight, off)
        scale = np.einsum("bii->bi", normal)
        ridge = np.maximum(scale, 1e-12) * damping[:, None] + 1e-14
        damped = normal + ridge[:, :, None] * np.eye(form.size)
        step = cast(Array, np.linalg.solve(damped, pull[:, :, None]))[:, :, 0]
        trial = current + np.clip(step, -5, 5)
        trial_residual = y[rows] - form.value(trial, t)
        trial_loss: Array = huber(trial_residual, threshold).sum(1)
        better = trial_loss < loss
        gained_little = np.where(better, loss - trial_loss < LAST_GAIN * loss, damping > 10)
        settled = gained_little & (np.abs(step).max(1) < LAST_MOVE)
        current = np.where(better[:, None], trial, current)
        residual = np.where(better[:, None], trial_residual, residual)
        loss = np.where(better, trial_loss, loss)
        damping = np.clip(np.where(better, damping / 8, damping * 6), 1e-12, 1e8)
        if settled.any():
            theta[rows], least[rows] = current, loss
            moving = ~settled
            rows, current, damping = rows[moving], current[moving], damping[moving]
            residual, loss = residual[moving], loss[moving]
            if not len(rows):
                break
    theta[rows], least[rows] = current, loss
    return theta, least


def _crossing(rise: Array, allowed: float) -> float:
    """Where twice the rise of the loss first exceeds `allowed`, in units of `REACH`."""
    depth = np.sqrt(np.maximum(2 * rise, 0) / allowed)
    beyond = np.flatnonzero(depth > 1)
    if not len(beyond):
        return np.inf
    after = int(beyond[0])
    x0, y0 = (REACH[after - 1], depth[after - 1]) if after else (0.0, 0.0)
    return float(x0 + (1 - y0) * (REACH[after] - x0) / (depth[after] - y0))


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
        noise = None if data.whole_curves else pool(data.at())
        deviation = float(np.sqrt(noise.variance)) if noise else None
        theta, threshold = solve(form, form.coordinate(data.x)[0], data.y, deviation)
        return cls(form, data, theta, threshold, noise)

    @property
    def t(self) -> Array:
        """The coordinate of the data [n]."""
        return self.form.coordinate(self.data.x)[0]

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

    def interval(self, alpha: float = ALPHA) -> tuple[float | None, float | None]:
        """The interval of the rate with level 1 - alpha; None without replicates."""
        if self.data.whole_curves:
            rates = np.array(self.rates())
            spread = pool([rates])
            half = spread.half_width(len(rates), alpha) if spread else None
            return (None, None) if half is None else (self.rate - half, self.rate + half)
        if self.noise is None:
            return None, None
        low, high = self._slope_interval(self.scatter() or self.noise, alpha)
        return low / self.length, high / self.length

    @property
    def standard_error(self) -> float:
        """The standard error of the rate, from the curvature at the minimum. NaN without noise."""
        spread = self.scatter() or self.noise
        return self._standard_error(spread) / self.length if spread else math.nan

    def _slope_interval(self, spread: PooledVariance, alpha: float) -> tuple[float, float]:
        """The lowest and the highest slope along t that the noise allows; infinite on a side without a bound.

        `spread` is the noise of one run.
        """
        threshold = max(self.threshold, TUNING * float(np.sqrt(spread.variance)))
        quantile = student(spread.freedom, 1 - alpha)
        loss = float(huber(self.data.y - self.form.value(self.theta[None], self.t)[0], threshold).sum())
        allowed = LOSS_PER_VARIANCE * spread.variance * quantile**2
        ends: list[float] = []
        half_width = quantile * self._standard_error(spread)
        for unit in (-half_width, half_width):
            rise = self._profile(unit * REACH, threshold) - loss
            ends.append(float(self.theta[1] + unit * _crossing(rise, allowed)))
        return ends[0], ends[1]

    def _standard_error(self, spread: PooledVariance) -> float:
        """The standard error of the slope, from the curvature at the minimum."""
        slope = self.form.jacobian(self.theta[None], self.t)[0]
        inverse = cast(Array, np.linalg.pinv(slope.T @ slope, rcond=1e-9, hermitian=True))
        return max(float(np.sqrt(spread.variance * max(inverse[1, 1], 0))), 1e-9)

    def _profile(self, offsets: Array, threshold: float) -> Array:
        """The least loss with the slope held at each offset from the best slope."""
        starts = np.repeat(self.theta[None], len(offsets), axis=0)
        starts[:, 1] += offsets
        tries = [starts]
        for shift in self.form.restarts if self.form.size == 3 else ():
            moved = starts.copy()
            moved[:, 2] += shift
            tries.append(moved)
        stacked = self.form.refitted(np.concatenate(tries), self.t, self.data.y)
        data = np.broadcast_to(self.data.y, (len(stacked), len(self.data.y)))
        _, loss = descend(self.form, self.t, data, stacked, threshold, hold=1)
        return loss.reshape(len(tries), len(offsets)).min(0)

    def rates(self) -> tuple[float, ...]:
        """The rate of each curve; a curve with fewer values than parameters has no rate."""
        if not self.data.whole_curves:
            return ()
        t, rates = self.t, list[float]()
        for run in np.unique(self.data.group):
            own = self.data.group == run
            if len(np.unique(t[own])) >= self.form.size:
                theta, _ = descend(
                    self.form, t[own], self.data.y[None, own], self.theta[None], self.threshold
                )
                rates.append(float(theta[0, 1]) / self.length)
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
            residual = self.data.y - self.form.value(self.theta[None], self.t)[0]
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


@dataclass(frozen=True)
class FormFit:
    """A form fitted to runs."""

    form: str
    """The kind of the form."""
    best: Fit
    """The fit of the instance with the least AICc."""
    close: tuple[Fit, ...]
    """The fits of the instances that AICc cannot tell from the best one, with the best one."""
    aicc: float
    """AICc of the best fit."""
    held_out: float | None = None
    """See `Fit.held_out`. None unless the choice of a form needed it."""
    _intervals: dict[float, tuple[float | None, float | None]] = field(
        default_factory=dict[float, tuple[float | None, float | None]], repr=False, compare=False
    )
    """The intervals that were computed, by alpha."""

    @classmethod
    def of(cls, form: str, x: Any, y: Any, groups: Any) -> "FormFit":
        """The form fitted to the errors y of runs at x.

        Parameters
        ----------
        groups
            The run of each observation.

        Raises
        ------
        ValueError
            For an unknown form, and for too few values on the axis.
        """
        shapes = variants(form)
        data = clean(shapes[0], x, y, groups)
        count = len(np.unique(data.x))
        fits = [Fit.of(shape, data) for shape in shapes if shape.size <= count and count > 1]
        if not fits:
            values = (
                "1 usable value on the axis is" if count == 1 else f"{count} usable values on the axis are"
            )
            raise ValueError(f"{values} too few for {form}")
        criteria = [fit.aicc() for fit in fits]
        least = min(criteria)
        best = fits[criteria.index(least)]
        near = [
            fit
            for fit, aicc in zip(fits, criteria, strict=True)
            if aicc == least or aicc - least < CLOSE_SHAPES
        ]
        return cls(form, best, (best,) if data.whole_curves else tuple(near), float(least))

    @property
    def rate(self) -> float:
        """The rate of the best fit."""
        return self.best.rate

    @property
    def values(self) -> int:
        """The number of values on the axis."""
        return len(np.unique(self.best.data.x))

    def interval(self, alpha: float = ALPHA) -> tuple[float | None, float | None]:
        """The interval of the rate with level 1 - alpha; None without replicates."""
        if alpha not in self._intervals:
            ends = [fit.interval(alpha) for fit in self.close]
            low = min((low for low, _ in ends if low is not None), default=None)
            high = max((high for _, high in ends if high is not None), default=None)
            self._intervals[alpha] = low, high
        return self._intervals[alpha]


def best_form(forms: Sequence[str], x: Any, y: Any, groups: Any) -> FormFit:
    """The fit of the form with the least AICc.

    Among forms that AICc cannot tell apart, the form with the fewest parameters is taken. Among several of these, the
    form that predicts the end of the axis best is taken. Raises ValueError if no form can be fitted.
    """
    fits, problem = list[FormFit](), None
    for form in forms:
        try:
            fits.append(FormFit.of(form, x, y, groups))
        except ValueError as error:
            problem = error
    if not fits:
        raise problem or ValueError("no form to fit")
    least = min(fit.aicc for fit in fits)
    close = [fit for fit in fits if fit.aicc == least or fit.aicc - least < CLOSE]
    fewest = min(fit.best.form.size for fit in close)
    close = [fit for fit in close if fit.best.form.size == fewest]
    if len(close) > 1:
        close = [replace(fit, held_out=fit.best.held_out()) for fit in close]
    return min(close, key=lambda fit: (fit.held_out or 0.0, fit.aicc))


@dataclass(frozen=True)
class LawFit:
    """A law as the runs alone give it: the rate with its interval, and the values behind the rate."""

    form: str
    parameters: Mapping[str, float]
    rate: float
    """The exponent or rate, positive if the error falls."""
    low: float | None
    """The lower end of the 95 % interval of the rate."""
    high: float | None
    """The upper end of the 95 % interval of the rate."""
    x: tuple[float, ...]
    """The values of the axis."""
    y: tuple[float, ...]
    """The geometric mean of the runs at each x. Of a milestone, the median; NaN if more than half never pass."""
    runs: tuple[int, ...]
    """The number of runs at each x."""
    halves: tuple[float, ...]
    """Half the 95 % interval of log y at each x, from the pooled noise of the replicates. Empty without noise, for
    whole curves, and for milestones."""
    goodness: float
    """The share of the variance of the mean log errors that the law explains; NaN for milestones."""
    aicc: float
    held_out: float | None
    """The root mean square log error on the last quarter of the axis, from a fit to the rest. None if the choice of a
    form did not need this error."""
    excluded: int
    """The number of observations left out: not finite, not positive, or at x <= 0 for a form with a logarithm."""
    scatter: bool
    """True if the values scatter about the law by more than the noise of the replicates."""
    rates: tuple[float, ...]
    """The rate of each curve, along `loop` and `point`."""
    shape: Form
    """The instance of the form."""
    theta: tuple[float, ...]
    """The parameters of the form, in the coordinate of the data."""
    censored: int = 0
    """The number of runs that never pass a milestone."""

    @classmethod
    def of_form(cls, fit: FormFit, alpha: float = ALPHA) -> "LawFit":
        """The law of a fitted form, with the interval of level 1 - alpha."""
        best, means, data = fit.best, fit.best.means, fit.best.data
        low, high = fit.interval(alpha)
        _, offset, length = best.form.coordinate(data.x)
        variation = float(np.sum((means - means.mean()) ** 2)) or 1.0
        return cls(
            form=fit.form,
            parameters=best.form.natural(best.theta, offset, length),
            rate=best.rate,
            low=low,
            high=high,
            x=tuple(np.unique(data.x).tolist()),
            y=tuple(np.exp(means).tolist()),
            runs=tuple(len(group) for group in data.at()),
            halves=tuple(best.noise.half_width(len(group)) for group in data.at()) if best.noise else (),
            goodness=1 - float(np.sum(best.off**2)) / variation,
            aicc=fit.aicc,
            held_out=fit.held_out,
            excluded=data.excluded,
            scatter=best.scatter() is not None,
            rates=best.rates(),
            shape=best.form,
            theta=tuple(best.theta.tolist()),
        )

    @property
    def log_axis(self) -> bool:
        """True if the law is drawn on a logarithmic axis."""
        return self.shape.log_axis

    def value(self, x: Sequence[float] | Array) -> Array:
        """The law's error at x."""
        raw = self.shape.transform(np.asarray(x, dtype=np.float64))
        _, low, length = self.shape.coordinate(np.asarray(self.x))
        return np.exp(self.shape.value(np.array([self.theta]), (raw - low) / length)[0])


def with_pooled_noise(fits: Sequence[LawFit]) -> list[LawFit]:
    """Laws along curves. The noise of their rates is pooled over all laws of the same instance of a form."""
    pooled = list[LawFit]()
    for fit in fits:
        noise = pool([np.array(other.rates) for other in fits if other.rates and other.shape == fit.shape])
        if noise is not None and len(fit.rates) > 1:
            half = noise.half_width(len(fit.rates))
            fit = replace(fit, low=fit.rate - half, high=fit.rate + half)
        pooled.append(fit)
    return pooled


@lru_cache(maxsize=256)
def rate_of_course(form: str, x: tuple[float, ...], course: tuple[float, ...]) -> float:
    """The rate of a theory's course: the same form, fitted to the values of the course at x. Raises ValueError."""
    return FormFit.of(form, x, course, np.arange(len(course))).rate


def margin_of(form: str, predicted: float) -> float:
    """How far a rate of this form may be from the predicted rate and still agree."""
    return Form.choices()[form].margin(predicted)
