"""Predictions of the step of emergence for a value that no fit has seen, and their score.

The law is the accelerated-failure-time model of `survival`, on the logarithm of the axis (power) or on the axis
(exponential). The prediction is the mean log step of the new runs. The interval is the union over the forms within 6 of
the best AICc, as in `prediction`.

The maximum of the likelihood underestimates the noise of few runs. The variance therefore grows by runs / (runs - 2),
which is exact for log-normal steps without censoring.

A step of emergence is an interval between two reports, without an end if the run is censored. The mean log step of the
new runs is an interval too. The prediction is a hit if the whole interval lies inside, and a miss if the whole interval
lies outside. Otherwise the score is open. A censored run thus makes a miss only if the mean of the lower ends lies
above the prediction.
"""

import math
from collections.abc import Sequence

import numpy as np

from loopscale.stats.contrasts import Array, student
from loopscale.stats.forms.base import Form, variants
from loopscale.stats.learning import Emergence
from loopscale.stats.prediction import (
    NEAR_AICC,
    FormPrediction,
    Prediction,
    Score,
    prediction_crps,
    steps_ahead,
    why_not_judged,
    widened,
)
from loopscale.stats.survival import AcceleratedFailureTime, accelerated_failure_time, survival_curve

LINES: tuple[Form, ...] = (variants("power")[0], variants("exponential")[0])
"""The forms that are straight lines of the log step."""


def predict_emergence(
    x: Array, after: Array, by: Array, at: float, replicates: int, forms: Sequence[Form] = LINES
) -> Prediction | None:
    """The prediction of the mean log step of emergence at a value of the axis.

    Parameters
    ----------
    x, after, by
        Place of each fitted run, and the interval of its emergence [runs]; `by` is inf for a censored run.
    at, replicates
        The value, and the number of new runs.

    Returns
    -------
    Prediction or None
        None if the runs determine no law. A naive prediction is NaN if half of the runs at its value never emerge.
    """
    usable = [form for form in forms if not form.log_axis or (x.min() > 0 and at > 0)]
    found = [one for form in usable if (one := _of_form(form, x, after, by, at, replicates))]
    if not found:
        return None
    found.sort(key=lambda one: one.aicc)
    near = tuple(one for one in found if one.aicc - found[0].aicc <= NEAR_AICC)
    values = np.unique(x)
    medians = [survival_curve(after[x == value], by[x == value]).median for value in values[-2:]]
    before, last = (math.log(median) if math.isfinite(median) else math.nan for median in medians)
    places = np.array([*values[-2:], at])
    places = np.log(places) if places.min() > 0 else places
    line = last + (last - before) * float((places[2] - places[1]) / (places[1] - places[0]))
    ends = widened(min(one.low for one in near), max(one.high for one in near), steps_ahead(values, at))
    return Prediction(at, replicates, near[0].centre, *ends, last, line, near, why_not_judged(values, at))


def score_emergence(prediction: Prediction, runs: Sequence[Emergence]) -> Score:
    """The score of a prediction of the mean log step.

    The differences of the score use the middle of an interval, and the lower end for a censored run. With censored runs
    the differences are therefore lower bounds.

    Raises
    ------
    ValueError
        If the number of runs is not the predicted number.
    """
    if len(runs) != prediction.replicates:
        raise ValueError(f"{len(runs)} runs, and the prediction is for {prediction.replicates}")
    after, by = (np.array([getattr(run, end) for run in runs]) for end in ("after", "by"))
    with np.errstate(divide="ignore"):
        least, most = float(np.log(after).mean()), float(np.log(by).mean())
    hit = None
    if prediction.judged and prediction.low <= least and most <= prediction.high:
        hit = True
    elif prediction.judged and (most < prediction.low or least > prediction.high):
        hit = False
    mean = float(np.log([middle(run) for run in runs]).mean())
    errors = mean - prediction.centre, mean - prediction.last_value, mean - prediction.line
    return Score(hit, *errors, prediction_crps(prediction, mean))


def middle(run: Emergence) -> float:
    """The middle of the interval of an emergence on a log scale; for a censored run the last report."""
    if not run.emerged:
        return run.after
    return math.sqrt(run.after * run.by) if run.after > 0 else run.by


def emergence_aicc(model: AcceleratedFailureTime, runs: int) -> float:
    """The AICc of a model, for the choice among forms."""
    size = runs - model.freedom
    return 2 * size - 2 * model.log_likelihood + 2 * size * (size + 1) / max(runs - size - 1, 1)


def _of_form(
    form: Form, x: Array, after: Array, by: Array, at: float, replicates: int
) -> FormPrediction | None:
    model = accelerated_failure_time(form.transform(x)[:, None], after, by)
    if model is None:
        return None
    place = np.array([1.0, float(form.transform(np.array([at]))[0])])
    centre = model.level + model.coefficients[0] * place[1]
    variance = float(place @ model.covariance @ place) + model.sd**2 / replicates
    half = student(model.freedom) * math.sqrt(variance * len(x) / (len(x) - 2))
    return FormPrediction(form.kind, centre, centre - half, centre + half, emergence_aicc(model, len(x)))
