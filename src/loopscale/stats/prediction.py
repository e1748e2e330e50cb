"""Predictions of a law for a value that no fit has seen, and the score of the predictions.

A value is judged from four fitted values on, up to three steps ahead. A step is the ratio of the last two fitted
values. The interval is the union of the 95 % prediction intervals of all forms within 6 of the best AICc. In
simulations of powers and exponentials, with and without floors, this interval covers 92 to 99 %. The interval of the
form with the best AICc alone covers as little as 25 %.

Beyond the next value the interval grows by the number of steps. Without this factor, a missing true form loses coverage
with the distance: 68 % for the next value, 15 % three steps ahead. With the factor, a far value is covered about as
often as the next value, or more often (docs/statistics.md).

The interval of one form comes from least squares on log errors. The variance of one run is the larger of two: the noise
of the replicates, and the scatter about the law with the replicates. A form of two parameters is a straight line, whose
interval is known. For a form of three parameters the new runs join the fit. The interval ends where the squares rise by
t² times the variance. The delta method covered only 74 % if a floor begins to show at the predicted value.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]: scipy has no stubs; it loads submodules at the first use
from numpy.typing import NDArray

from loopscale.stats.contrasts import LEVEL, Array, half_widths
from loopscale.stats.fitting import LEAST_LOSS, descend
from loopscale.stats.forms.base import Form, variants

FORMS: tuple[Form, ...] = (*variants("power"), *variants("exponential"), *variants("power_floor"))
"""The power and the exponential, each with and without a floor, because every trained net reaches a floor. If the true
form is missing, the union can cover 0 %.
"""
LEAST_FITTED = 4
"""With fewer fitted values no interval covers 90 %."""
LEAST_PREDICTING = 3
"""With fewer fitted values no form leaves a degree of freedom, and there is no prediction at all."""
NEAR_AICC = 6.0
"""Forms whose AICc exceeds the least AICc by no more contribute to the interval."""
STARTS = 4
"""The number of starts, best first, from which a fit descends."""
NO_HUBER = 1e6
"""A threshold of Huber's loss above all residuals, which gives least squares."""
LARGEST_LEVERAGE = 1e4
"""Of a floor that the data do not determine."""
PROFILE_STEPS = 8
LARGEST_DISTANCE = 50.0
"""Of an end of the interval, in log errors."""
Counts = NDArray[np.int_]
SAME_STEP = 1.01
"""A distance may exceed a number of steps by this factor, for values that were rounded."""
FURTHEST = 3.0
"""The largest distance of a judged value, in steps."""


@dataclass(frozen=True)
class FormPrediction:
    """The prediction of one form."""

    form: str
    """The kind of the form, followed by the form's floor if the floor is optional."""
    centre: float
    """The predicted mean log error of the new runs."""
    low: float
    """The lower end of the 95 % prediction interval."""
    high: float
    """The upper end of the 95 % prediction interval."""
    aicc: float


@dataclass(frozen=True)
class FormPredictions:
    """The predictions of one form for many sets of runs: arrays [sets] of the values of `FormPrediction`."""

    form: Form
    centre: Array
    low: Array
    high: Array
    aicc: Array

    def first(self) -> FormPrediction:
        """The prediction of the first set."""
        kind, floor = self.form.kind, self.form.optional and not self.form.short
        name = f"{kind} with {self.form.names[-1]}" if floor else kind
        centre, low, high, aicc = (float(part[0]) for part in (self.centre, self.low, self.high, self.aicc))
        return FormPrediction(name, centre, low, high, aicc)


@dataclass(frozen=True)
class Prediction:
    """A prediction for the runs at one value, recorded before they start."""

    at: float
    """The value on the axis."""
    replicates: int
    """The number of runs whose mean log error is predicted."""
    centre: float
    """The log error that the form with the least AICc predicts."""
    low: float
    """The least lower end of the prediction intervals of `forms`. Beyond the next value the interval of `low` and
    `high` grows about its middle by the number of steps."""
    high: float
    """The greatest upper end of the prediction intervals of `forms`."""
    last_value: float
    """A naive prediction: the mean log error at the last fitted value."""
    line: float
    """A naive prediction: the straight line through the means at the last two fitted values, in log-log. If one of the
    two values is not positive, the axis is not logarithmic."""
    forms: tuple[FormPrediction, ...]
    """The predictions of the forms within 6 of the best AICc, best first."""
    reason: str = ""
    """The reason why the prediction has no level; empty if the prediction is judged."""

    @property
    def judged(self) -> bool:
        """True if the interval has the level of 95 %."""
        return not self.reason


QUANTILES = (np.arange(1000) + 0.5) / 1000
"""The quantiles at which a prediction is scored."""


@dataclass(frozen=True)
class Score:
    """A prediction beside the result."""

    hit: bool | None
    """True if the mean log error lies inside the interval; None if the prediction is an extrapolation, or if censored
    runs leave the answer open."""
    log_error: float
    """The mean log error of the runs minus the prediction."""
    last_value_error: float
    """The mean log error of the runs minus `Prediction.last_value`."""
    line_error: float
    """The mean log error of the runs minus `Prediction.line`."""
    crps: float
    """The continuous ranked probability score [@gneiting2007] of the prediction. Less is better. A wide interval costs,
    so that a hit alone is no merit. The score of a guess without an interval is the absolute value of its error."""

    @property
    def worse_than(self) -> tuple[str, ...]:
        """The naive predictions with a score that is no worse than that of the prediction."""
        guesses = {"the last value": self.last_value_error, "a straight line": self.line_error}
        return tuple(name for name, error in guesses.items() if abs(error) <= self.crps)


def predict(
    x: Array, logs: Array, at: float, replicates: int, forms: Sequence[Form] = FORMS
) -> Prediction | None:
    """The prediction of the log error at a value of the axis.

    Parameters
    ----------
    x, logs
        Place and log error of each fitted run [runs], all finite.
    at, replicates
        The value, and the number of new runs.
    forms
        The forms that may be true. The coverage was simulated for `FORMS`. More forms widen the interval.

    Returns
    -------
    Prediction or None
        None if the runs determine no form: the values are too few, or no value has two replicates.
    """
    usable = [form for form in forms if not form.log_axis or (x.min() > 0 and at > 0)]
    found = [one.first() for one in predict_batch(x, logs[None], at, replicates, usable)]
    found = sorted((one for one in found if math.isfinite(one.aicc)), key=lambda one: one.aicc)
    if not found:
        return None
    near = tuple(one for one in found if one.aicc - found[0].aicc <= NEAR_AICC)
    values = np.unique(x)
    means = [float(logs[x == value].mean()) for value in values[-2:]]
    places = np.array([values[-2], values[-1], at])
    places = np.log(places) if places.min() > 0 else places
    slope = (means[1] - means[0]) / float(places[1] - places[0])
    line = means[1] + slope * float(places[2] - places[1])
    ends = min(one.low for one in near), max(one.high for one in near)
    low, high = widened(*ends, steps_ahead(values, at))
    reason = why_not_judged(values, at)
    return Prediction(at, replicates, near[0].centre, low, high, means[1], line, near, reason)


def why_not_judged(values: Array, at: float) -> str:
    """Why a prediction has no level; empty for a value up to three steps after four fitted values or more."""
    values = np.unique(values)
    if len(values) < LEAST_FITTED:
        return f"{len(values)} fitted values are too few, because {LEAST_FITTED} are needed"
    if at <= values[-1]:
        return "the value does not lie beyond the fitted values"
    if steps_ahead(values, at) > SAME_STEP * FURTHEST:
        return f"the value is further away than {FURTHEST:g} steps of the axis"
    return ""


def steps_ahead(values: Array, at: float) -> float:
    """The distance of a value from the last fitted value, in units of the step between the last two fitted values.

    The distance is that of the logarithms if all values are positive.
    """
    before, last = (float(value) for value in np.unique(values)[-2:])
    if min(before, at) > 0:
        return math.log(at / last) / math.log(last / before)
    return (at - last) / (last - before)


def widened(low: float, high: float, steps: float) -> tuple[float, float]:
    """The interval of a value `steps` ahead. Up to the next value the interval stays."""
    middle, half = (low + high) / 2, (high - low) / 2
    grown = half * steps if steps > SAME_STEP else half
    return (low, high) if grown == half else (middle - grown, middle + grown)


def score(prediction: Prediction, logs: Array) -> Score:
    """The score of a prediction.

    Parameters
    ----------
    logs
        The log errors of the runs at the predicted value [runs], all finite.

    Raises
    ------
    ValueError
        If the number of runs is not the predicted number, because the interval depends on the number.
    """
    if len(logs) != prediction.replicates:
        runs = f"{len(logs)} runs, and the prediction is for {prediction.replicates}"
        raise ValueError(f"{runs}; predict from the same fitted runs for {len(logs)}")
    mean = float(logs.mean())
    return Score(
        prediction.low <= mean <= prediction.high if prediction.judged else None,
        mean - prediction.centre,
        mean - prediction.last_value,
        mean - prediction.line,
        prediction_crps(prediction, mean),
    )


def prediction_crps(prediction: Prediction, came: float) -> float:
    """The continuous ranked probability score of a prediction, in units of the log error.

    The distribution of the prediction is normal on either side of its centre. The centre is the median, and the ends of
    the interval are the quantiles 2.5 % and 97.5 %. The score is twice the mean pinball loss over all quantiles.
    """
    if not (math.isfinite(prediction.low) and math.isfinite(prediction.high)):
        return math.inf
    z: Array = np.asarray(scipy.special.ndtri(QUANTILES) / scipy.special.ndtri((1 + LEVEL) / 2))
    sides = np.where(z < 0, prediction.centre - prediction.low, prediction.high - prediction.centre)
    off = came - (prediction.centre + z * sides)
    return float(2 * np.mean(off * (QUANTILES - (off < 0))))


def predict_batch(
    x: Array, logs: Array, at: float, replicates: int, forms: Sequence[Form] = FORMS
) -> list[FormPredictions]:
    """The predictions of each form for many sets of runs at the same places.

    Parameters
    ----------
    x, logs
        Places [runs] and log errors [sets, runs].
    at, replicates
        The predicted value, and the number of new runs.

    Returns
    -------
    list of FormPredictions
        Of the forms with fewer parameters than values. Empty if no value has two replicates.
    """
    values, place = np.unique(x, return_inverse=True)
    counts = np.bincount(place)
    spare = len(x) - len(values)
    if spare < 1:
        return []
    means = logs @ (np.eye(len(values))[place] / counts[place][:, None])
    within = ((logs - means[:, place]) ** 2).sum(1)
    predictions: list[FormPredictions] = []
    for form in forms:
        if form.size >= len(values):
            continue
        t, low, length = form.coordinate(values)
        ahead = (form.transform(np.array([at])) - low) / length
        fits = _Fits(form, t, means, counts, *_least_squares(form, t, means, counts))
        freedom = len(x) - form.size
        variance = np.maximum((within + fits.lack) / freedom, within / spare)
        centre = form.value(fits.theta, ahead)[:, 0]
        half = half_widths(np.sqrt(variance * (1 / replicates + fits.leverage(ahead))), freedom)
        ends = centre - half, centre + half
        if form.size > 2:
            ends = fits.profile(ahead, replicates, half, variance * half_widths(1.0, freedom) ** 2)
        aicc = _aicc(within + fits.lack, len(x), form.size)
        predictions.append(FormPredictions(form, centre, *ends, aicc))
    return predictions


def union(predictions: Sequence[FormPredictions]) -> tuple[Array, Array]:
    """The union of the intervals of the forms within 6 of the best AICc, for every set of runs."""
    aicc = np.stack([one.aicc for one in predictions])
    near = aicc - aicc.min(0) <= NEAR_AICC
    low, high = (np.stack([getattr(one, end) for one in predictions]) for end in ("low", "high"))
    return np.where(near, low, np.inf).min(0), np.where(near, high, -np.inf).max(0)


def _least_squares(form: Form, t: Array, means: Array, counts: Counts) -> tuple[Array, Array]:
    """The parameters [sets, size] with the least squares of the means, weighted by runs, and the squares [sets]."""
    starts = np.stack([form.starts(t, row) for row in means])
    sets, each, size = starts.shape
    value = form.value(starts.reshape(-1, size), t).reshape(sets, each, -1)
    best = np.argsort((counts * (means[:, None] - value) ** 2).sum(2), axis=1)[:, :STARTS]
    tries = np.take_along_axis(starts, best[:, :, None], axis=1)
    return _best_descent(form, t, means, counts, np.moveaxis(tries, 1, 0))


def _best_descent(form: Form, t: Array, means: Array, counts: Counts, tries: Array) -> tuple[Array, Array]:
    """The best parameters [sets, size] and squares [sets] of descents from several starts [tries, sets, size]."""
    unit = int(np.gcd.reduce(counts))
    repeat = counts // unit  # a run of its own for each count gives the weights
    runs = np.tile(np.repeat(means, repeat, axis=1), (len(tries), 1))
    theta, loss = descend(form, np.repeat(t, repeat), runs, tries.reshape(-1, form.size), NO_HUBER)
    squares = 2 * unit * loss.reshape(len(tries), -1)
    chosen, sets = np.argmin(squares, axis=0), np.arange(squares.shape[1])
    return theta.reshape(tries.shape)[chosen, sets], squares[chosen, sets]


@dataclass(frozen=True)
class _Fits:
    """The least squares fits of one form to many sets of means at the same places."""

    form: Form
    t: Array  # [values], the places
    means: Array  # [sets, values], of log errors
    counts: Counts  # [values], runs in each mean
    theta: Array  # [sets, size], the parameters with the least squares
    lack: Array  # [sets], the least squares of the means

    def leverage(self, ahead: Array) -> Array:
        """The variance of the curve at the place `ahead` by the delta method, relative to the variance of a run."""
        slopes = self.form.jacobian(self.theta, self.t)
        normal = np.einsum("bni,n,bnj->bij", slopes, self.counts, slopes) + 1e-9 * np.eye(self.form.size)
        gradient = self.form.jacobian(self.theta, ahead)[:, 0]
        solved = cast(Array, np.linalg.solve(normal, gradient[:, :, None]))[:, :, 0]
        return np.minimum((gradient * solved).sum(1), LARGEST_LEVERAGE)

    def profile(self, ahead: Array, replicates: int, half: Array, allowed: Array) -> tuple[Array, Array]:
        """The ends of the interval of new means at `ahead` that raise the squares by no more than `allowed`.

        Every new mean joins the fit with the weight of `replicates` runs. The search starts at the distance `half` from
        the prediction. The root of the rise is nearly proportional to the distance, so the root scales the distance. If
        the scaled distance leaves the bracket, the bracket is halved.
        """
        t, counts = np.append(self.t, ahead), np.append(self.counts, replicates)
        centre = self.form.value(self.theta, ahead)[:, 0]
        ends: list[Array] = []
        for side in (-1.0, 1.0):
            distance, inner, outer = half, np.zeros(len(half)), np.full(len(half), np.inf)
            last = self.theta
            for _ in range(PROFILE_STEPS):
                joined = np.column_stack([self.means, centre + side * distance])
                tries = [self.theta, last]
                for shift in self.form.restarts:
                    moved = self.theta.copy()
                    moved[:, -1] += shift
                    tries.append(moved)
                last, squares = _best_descent(self.form, t, joined, counts, np.stack(tries))
                rise = np.maximum(squares - self.lack, 1e-300)
                inner = np.where(rise <= allowed, np.maximum(inner, distance), inner)
                outer = np.where(rise > allowed, np.minimum(outer, distance), outer)
                scaled = distance * np.sqrt(allowed / rise)
                halved = np.where(np.isfinite(outer), (inner + outer) / 2, 2 * distance)
                # A converged search stays: its scaled distance equals an end of the bracket, but for rounding.
                distance = np.where((scaled >= inner) & (scaled <= outer), scaled, halved)
                distance = np.minimum(distance, LARGEST_DISTANCE)
            ends.append(centre + side * distance)
        return ends[0], ends[1]


def _aicc(square: Array, count: int, size: int) -> Array:
    free = count - size - 2
    if free < 1:
        return np.full(len(square), np.inf)
    return count * np.log(np.maximum(square / count, LEAST_LOSS)) + 2 * (size + 1) * count / free
