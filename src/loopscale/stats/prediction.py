"""Predictions of a law for a value that no fit has seen, and the score of the predictions.

Only the next value of the axis is judged, from four fitted values on. The interval is the union of the 95 % prediction
intervals of all forms within 6 of the best AICc. In simulations of powers and exponentials, with and
without floors, this interval covers 88 to 99 %. One exception is an exponential whose floor begins to show at the
predicted value (74 %). The interval of the form with the best AICc alone covers as little as 16 %. No rule covers 90 %
of the values after the next one if a small floor is about to show. A prediction of a later value is therefore an
extrapolation without a level.

The interval of one form comes from least squares on log errors and the delta method. The variance of one run is the
larger of two: the noise of the replicates, and the scatter about the law with the replicates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from loopscale.stats.contrasts import Array, half_widths
from loopscale.stats.fitting import LEAST_LOSS, descend
from loopscale.stats.forms.base import Form, variants

FORMS: tuple[Form, ...] = (*variants("power"), *variants("exponential"), *variants("power_floor"))
"""The power and the exponential, each with and without a floor, because every trained net reaches a floor. If the true
form is missing, the union can cover 0 %.
"""
LEAST_FITTED = 4
"""With fewer fitted values no interval covers 90 %."""
NEAR = 6.0
"""Forms whose AICc exceeds the least AICc by no more contribute to the interval."""
STARTS = 4
"""The number of starts, best first, from which a fit descends."""
NO_HUBER = 1e6
"""A threshold of Huber's loss above all residuals, which gives least squares."""
LARGEST_LEVERAGE = 1e4
"""Of a floor that the data do not determine."""
SAME_STEP = 1.01
"""A step may exceed the step before by this factor, for values that were rounded."""


@dataclass(frozen=True)
class FormPrediction:
    """The prediction of one form.

    Attributes
    ----------
    form
        The form's kind, and its floor if the floor is optional.
    centre
        The predicted mean log error.
    variance
        Of one run.
    leverage
        The variance of the fitted curve at the predicted value, in units of `variance`.
    freedom
        Degrees of freedom of the variance.
    """

    form: str
    centre: float
    variance: float
    leverage: float
    freedom: int
    aicc: float

    def interval(self, replicates: int) -> tuple[float, float]:
        """The 95 % prediction interval of the mean log error of this many new runs."""
        half = float(half_widths(math.sqrt(self.variance * (1 / replicates + self.leverage)), self.freedom))
        return self.centre - half, self.centre + half


@dataclass(frozen=True)
class FormPredictions:
    """The predictions of one form for many sets of runs: arrays [sets] of the values of `FormPrediction`."""

    form: Form
    centre: Array
    variance: Array
    leverage: Array
    freedom: int
    aicc: Array

    def interval(self, replicates: int) -> tuple[Array, Array]:
        """The 95 % prediction interval of the mean log error of this many new runs."""
        half = half_widths(np.sqrt(self.variance * (1 / replicates + self.leverage)), self.freedom)
        return self.centre - half, self.centre + half

    def first(self) -> FormPrediction:
        """The prediction of the first set."""
        kind, floor = self.form.kind, self.form.optional and not self.form.short
        name = f"{kind} with {self.form.names[-1]}" if floor else kind
        centre, variance, leverage, aicc = (
            float(part[0]) for part in (self.centre, self.variance, self.leverage, self.aicc)
        )
        return FormPrediction(name, centre, variance, leverage, self.freedom, aicc)


@dataclass(frozen=True)
class Prediction:
    """A prediction for the runs at one value, recorded before they start.

    Attributes
    ----------
    at
        The value on the axis.
    centre
        The log error that the form with the least AICc predicts.
    last_value, line
        Naive predictions of the log error: the mean at the last fitted value, and the straight line through the means
        at the last two fitted values in log-log (along the axis itself if one of the places is not positive).
    forms
        The predictions of the forms within 6 of the best AICc, best first.
    reason
        Why the prediction has no level; empty if the prediction is judged.
    """

    at: float
    centre: float
    last_value: float
    line: float
    forms: tuple[FormPrediction, ...]
    reason: str = ""

    @property
    def judged(self) -> bool:
        """True if the interval has the level of 95 %."""
        return not self.reason

    def interval(self, replicates: int) -> tuple[float, float]:
        """The union of the forms' prediction intervals, for the mean log error of this many new runs."""
        ends = [form.interval(replicates) for form in self.forms]
        return min(low for low, _ in ends), max(high for _, high in ends)


@dataclass(frozen=True)
class Score:
    """A prediction beside the result.

    Attributes
    ----------
    hit
        True if the mean log error lies inside the interval; None if the prediction is an extrapolation.
    log_error
        The mean log error of the runs minus the prediction.
    last_value_error, line_error
        The same for the naive predictions.
    """

    hit: bool | None
    log_error: float
    last_value_error: float
    line_error: float


def predict(x: Array, logs: Array, at: float, forms: Sequence[Form] = FORMS) -> Prediction | None:
    """The prediction of the log error at a value of the axis.

    Parameters
    ----------
    x, logs
        Place and log error of each fitted run [runs], all finite.
    at
        The value.
    forms
        The forms that may be true. The coverage was simulated for `FORMS`. More forms widen the interval.

    Returns
    -------
    Prediction or None
        None if the runs determine no form: the values are too few, or no value has two replicates.
    """
    usable = [form for form in forms if not form.log_axis or (x.min() > 0 and at > 0)]
    found = [one.first() for one in predict_batch(x, logs[None], at, usable)]
    found = sorted((one for one in found if math.isfinite(one.aicc)), key=lambda one: one.aicc)
    if not found:
        return None
    near = tuple(one for one in found if one.aicc - found[0].aicc <= NEAR)
    values = np.unique(x)
    means = [float(logs[x == value].mean()) for value in values[-2:]]
    places = np.array([values[-2], values[-1], at])
    places = np.log(places) if places.min() > 0 else places
    slope = (means[1] - means[0]) / float(places[1] - places[0])
    line = means[1] + slope * float(places[2] - places[1])
    return Prediction(at, near[0].centre, means[1], line, near, why_not_judged(values, at))


def why_not_judged(values: Array, at: float) -> str:
    """Why a prediction has no level; empty if the value is the next one after four fitted values or more.

    The next value is at most as far from the last value as the last value is from the value before. The distance is
    that of the logarithms if all values are positive.
    """
    values = np.unique(values)
    if len(values) < LEAST_FITTED:
        return f"{len(values)} fitted values are too few; {LEAST_FITTED} are needed"
    before, last = float(values[-2]), float(values[-1])
    if at <= last:
        return "the value does not lie beyond the fitted values"
    if before > 0:
        step, allowed = math.log(at / last), math.log(last / before)
    else:
        step, allowed = at - last, last - before
    return (
        "" if step <= SAME_STEP * allowed else "the value is further away than the next one; an extrapolation"
    )


def score(prediction: Prediction, logs: Array) -> Score:
    """The score of a prediction.

    Parameters
    ----------
    logs
        The log errors of the runs at the predicted value [runs], all finite.
    """
    mean = float(logs.mean())
    low, high = prediction.interval(len(logs))
    return Score(
        low <= mean <= high if prediction.judged else None,
        mean - prediction.centre,
        mean - prediction.last_value,
        mean - prediction.line,
    )


def predict_batch(x: Array, logs: Array, at: float, forms: Sequence[Form] = FORMS) -> list[FormPredictions]:
    """The predictions of each form for many sets of runs at the same places.

    Parameters
    ----------
    x, logs
        Places [runs] and log errors [sets, runs].

    Returns
    -------
    list of FormPredictions
        Of the forms with fewer parameters than values, with arrays [sets]. Empty if no value has two replicates.
    """
    values, place = np.unique(x, return_inverse=True)
    counts = np.bincount(place).astype(np.float64)
    replicates = len(x) - len(values)
    if replicates < 1:
        return []
    share = np.eye(len(values))[place] / counts[place][:, None]
    means = logs @ share
    within = ((logs - means[:, place]) ** 2).sum(1)
    predictions: list[FormPredictions] = []
    for form in forms:
        if form.size >= len(values):
            continue
        t, low, length = form.coordinate(values)
        theta = _least_squares(form, t, means, counts)
        ahead = (form.transform(np.array([at])) - low) / length
        residual = means - form.value(theta, t)
        square = within + (counts * residual**2).sum(1)
        freedom = len(x) - form.size
        slopes = form.jacobian(theta, t)
        normal = np.einsum("bni,n,bnj->bij", slopes, counts, slopes)
        normal += 1e-9 * np.eye(form.size)
        gradient = form.jacobian(theta, ahead)[:, 0]
        solved = cast(Array, np.linalg.solve(normal, gradient[:, :, None]))[:, :, 0]
        leverage = np.minimum((gradient * solved).sum(1), LARGEST_LEVERAGE)
        variance = np.maximum(square / freedom, within / replicates)
        aicc = _aicc(square, len(x), form.size)
        centre = form.value(theta, ahead)[:, 0]
        predictions.append(FormPredictions(form, centre, variance, leverage, freedom, aicc))
    return predictions


def union(predictions: Sequence[FormPredictions], replicates: int) -> tuple[Array, Array]:
    """The union of the intervals of the forms within 6 of the best AICc, for every set of runs."""
    aicc = np.stack([one.aicc for one in predictions])
    near = aicc - aicc.min(0) <= NEAR
    ends = np.array([one.interval(replicates) for one in predictions])
    return np.where(near, ends[:, 0], np.inf).min(0), np.where(near, ends[:, 1], -np.inf).max(0)


def _least_squares(form: Form, t: Array, means: Array, counts: Array) -> Array:
    """The parameters [sets, size] with the least squares of the means, weighted by their runs."""
    starts = np.stack([form.starts(t, row) for row in means])
    sets, each, size = starts.shape
    value = form.value(starts.reshape(-1, size), t).reshape(sets, each, -1)
    loss = (counts * (means[:, None] - value) ** 2).sum(2)
    best = np.argsort(loss, axis=1)[:, :STARTS]
    rows = np.take_along_axis(starts, best[:, :, None], axis=1).reshape(-1, size)
    # A run of its own for each count gives the weights; equal counts need none.
    repeat = counts.astype(np.int64) // np.gcd.reduce(counts.astype(np.int64))
    runs_t, runs_y = np.repeat(t, repeat), np.repeat(means, repeat, axis=1)
    theta, square = descend(form, runs_t, np.repeat(runs_y, best.shape[1], axis=0), rows, NO_HUBER)
    chosen = np.argmin(square.reshape(sets, -1), axis=1)
    return theta.reshape(sets, -1, size)[np.arange(sets), chosen]


def _aicc(square: Array, count: int, size: int) -> Array:
    free = count - size - 2
    if free < 1:
        return np.full(len(square), np.inf)
    return count * np.log(np.maximum(square / count, LEAST_LOSS)) + 2 * (size + 1) * count / free
