"""Laws of milestones: the step of emergence, or the cost until a regret. A run that never passes is censored.

The law is an accelerated-failure-time model of log T on one axis (`stats.survival`). The power form takes the logarithm
of the axis, the exponential form the axis itself. The rate is positive if runs pass earlier along the axis.
"""

import math
from collections.abc import Sequence

import numpy as np

from loopscale.stats.contrasts import Array
from loopscale.stats.emergence_prediction import LINES, emergence_aicc
from loopscale.stats.fitting import LawFit
from loopscale.stats.forms.base import variants
from loopscale.stats.learning import Emergence
from loopscale.stats.milestones import Milestone
from loopscale.stats.survival import accelerated_failure_time, survival_curve

FORMS = tuple(form.kind for form in LINES)
"""The forms that are straight lines of log T."""


def fit_passages(
    forms: Sequence[str], x: Array, passages: Sequence[Emergence | None], milestone: Milestone
) -> LawFit:
    """The law of the form with the least AICc.

    Raises ValueError if no form is a line of log T, or if the runs determine no law.
    """
    lines = [form for form in forms if form in FORMS]
    if not lines:
        known = " or ".join(FORMS)
        raise ValueError(f"the form of a law of {milestone.measure} is {known}, not {', '.join(forms)}")
    judged = [(place, passed) for place, passed in zip(x, passages, strict=True) if passed]
    if not judged:
        raise ValueError("no run has a state: the floor is unknown, or the task has no room")
    places = np.array([place for place, _ in judged])
    after, by = (np.array([getattr(passed, end) for _, passed in judged]) for end in ("after", "by"))
    fits = [fit for form in lines if (fit := _fit(form, places, after, by))]
    if not fits:
        passed, values = int(np.isfinite(by).sum()), len(np.unique(places))
        counted = f"{passed} of {len(by)} runs {milestone.verb}, at {values} values of the axis"
        raise ValueError(f"{counted}, and determine no law")
    return min(fits, key=lambda fit: fit.aicc)


def _fit(form: str, x: Array, after: Array, by: Array) -> LawFit | None:
    shape = variants(form)[0]
    if shape.log_axis and (x <= 0).any():
        return None
    model = accelerated_failure_time(shape.transform(x)[:, None], after, by)
    if model is None:
        return None
    low, high = model.interval(0)
    _, offset, length = shape.coordinate(x)
    slope = float(model.coefficients[0])
    theta = np.array([model.level + slope * offset, -slope * length])
    values = np.unique(x)
    curves = [survival_curve(after[x == value], by[x == value]) for value in values]
    medians = [curve.median if math.isfinite(curve.median) else math.nan for curve in curves]
    return LawFit(
        form=form,
        parameters=shape.natural(theta, offset, length),
        rate=-slope,
        low=-high,
        high=-low,
        x=tuple(values.tolist()),
        y=tuple(medians),
        runs=tuple(int((x == value).sum()) for value in values),
        halves=(),
        goodness=math.nan,
        aicc=emergence_aicc(model, len(x)),
        held_out=None,
        excluded=0,
        scatter=False,
        rates=(),
        shape=shape,
        theta=tuple(theta.tolist()),
        censored=int(np.isinf(by).sum()),
    )
