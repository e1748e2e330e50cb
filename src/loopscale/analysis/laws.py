"""Laws: how an error falls along an axis, with the interval of its rate and what theory says of it.

Fitted to single runs in log error with Huber's loss, so that every size weighs the same and a stray run
little. Where runs are trained for one value of the axis each, the interval is the profile's, with the
replicates' pooled noise; if the values scatter about the law beyond that noise (F test at 1 %: each was
tuned by itself), with that scatter instead. Along `loop` and `point` a run gives a whole curve, whose
errors move together: each curve is one observation of the rate, and Student's t does the rest. (Resampling
three curves has ten outcomes, and covers far too little.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.special import fdtrc

from loopscale.analysis.forms import FORMS, Array, Shape, descend, huber, solve
from loopscale.analysis.intervals import Spread, pool
from loopscale.analysis.profile import rate_interval
from loopscale.analysis.verdict import Verdict

LEAST_LOSS = 1e-16
CLOSE = 2.0
"""Forms whose AICc differ by less are told apart by what they foretell."""


@dataclass(frozen=True)
class Law:
    """A fitted law. `rate` is the exponent or rate, positive where the error falls; `low`, `high` its
    interval.
    """

    form: str
    parameters: Mapping[str, float]
    rate: float
    low: float | None
    high: float | None
    x: tuple[float, ...]
    y: tuple[float, ...]
    """The geometric mean over runs at each x."""
    runs: tuple[int, ...]
    goodness: float
    """The part of the variance of the mean log errors that the law accounts for."""
    aicc: float
    held_out: float | None
    """Root mean square log error on the last quarter of the axis, from a fit to the rest; needs six values.
    """
    excluded: int
    """Observations left out for being not finite or not positive, or at x <= 0 where the form has a
    logarithm.
    """
    scatter: bool
    """Whether the values scatter about the law by more than the replicates' noise."""
    rates: tuple[float, ...]
    """Each curve's own rate, along `loop` and `point`."""
    shape: Shape
    theta: tuple[float, ...]
    of: str = "error"
    along: str = ""
    cell: str = ""
    theory: str | None = None
    predicted: float | None = None
    theory_y: tuple[float, ...] = ()
    verdict: Verdict | None = None
    note: str = ""

    def value(self, x: Sequence[float] | Array) -> Array:
        """The law's error at x."""
        raw = self.shape.transform(np.asarray(x, dtype=np.float64))
        _, low, length = self.shape.coordinate(np.asarray(self.x))
        return np.exp(self.shape.value(np.array([self.theta]), (raw - low) / length)[0])

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(replace(self, shape=self.shape))
        fields["low"], fields["high"] = (
            None if v is None or np.isinf(v) else v for v in (self.low, self.high)
        )
        return {name: value for name, value in fields.items() if name not in ("shape", "theta")}


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


def fit(form: str, x: Any, y: Any, groups: Any) -> Law:
    """The law of that form through runs' errors y at x; `groups` names each observation's run.

    Raises ValueError for an unknown form and for fewer values on the axis than the form has parameters.
    """
    if form not in FORMS:
        raise ValueError(f"no form {form!r}; there is {', '.join(FORMS)}")
    data = clean(form, x, y, groups)
    count = len(np.unique(data.x))
    shapes = [shape for shape in FORMS[form] if shape.size <= count]
    if count < 2 or not shapes:
        raise ValueError(f"{count} usable values on the axis are too few for {form}")
    return min((_fit(form, shape, data) for shape in shapes), key=lambda law: law.aicc)


def choose(forms: Sequence[str], x: Any, y: Any, groups: Any) -> Law:
    """The form of least AICc; among those close to it, the one that foretells the end of the axis best."""
    found, problem = [], None
    for form in forms:
        try:
            found.append(fit(form, x, y, groups))
        except ValueError as error:
            problem = error
    if not found:
        raise problem or ValueError("no form to fit")
    least = min(law.aicc for law in found)
    close = [law for law in found if law.aicc == least or law.aicc - least < CLOSE]
    if all(law.held_out is not None for law in close):
        return min(close, key=lambda law: law.held_out or 0.0)
    return min(close, key=lambda law: (law.aicc, law.shape.size))


def clean(form: str, x: Any, y: Any, groups: Any) -> Data:
    """Without what has no logarithm."""
    x, y, groups = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), np.asarray(groups)
    logarithmic = form in ("power", "power_floor", "log_power")
    good = np.isfinite(x) & np.isfinite(y) & (y > 0) & ((x > 0) | (not logarithmic))
    return Data(x[good], np.log(y[good]), groups[good], int((~good).sum()))


def pooled(laws: Sequence[Law]) -> list[Law]:
    """Laws along curves with the noise of their rates learnt from all laws of the same shape."""
    done = []
    for law in laws:
        kin = [np.array(other.rates) for other in laws if other.rates and other.shape == law.shape]
        spread = pool(kin)
        if spread is None or len(law.rates) < 2:
            done.append(law)
            continue
        half = spread.half_width(len(law.rates))
        done.append(replace(law, low=law.rate - half, high=law.rate + half))
    return done


def _fit(form: str, shape: Shape, data: Data) -> Law:
    t, low, length = shape.coordinate(data.x)
    values, means = np.unique(data.x), np.array([group.mean() for group in data.at()])
    noise = None if data.whole_curves else pool(data.at())
    theta, threshold = solve(
        shape, t, data.y, float(np.sqrt(noise.variance)) if noise and noise.variance else None
    )
    fitted = shape.value(theta[None], shape.coordinate(values)[0])[0]
    interval, scatter, rates = (None, None), False, ()
    if data.whole_curves:
        rates = _rates(shape, t, data, theta, threshold, length)
        spread = pool([np.array(rates)])
        half = spread.half_width(len(rates)) if spread else None
        interval = (theta[1] / length - half, theta[1] / length + half) if half is not None else interval
    elif noise:
        spread, scatter = _spread(noise, data, fitted, means, shape.size)
        ends = rate_interval(
            shape, t, data.y, theta, max(threshold, 1.345 * np.sqrt(spread.variance)), spread
        )
        interval = (ends[0] / length, ends[1] / length)
    return Law(
        form=form,
        parameters=shape.natural(theta, low, length),
        rate=float(theta[1]) / length,
        low=interval[0],
        high=interval[1],
        x=tuple(values.tolist()),
        y=tuple(np.exp(means).tolist()),
        runs=tuple(len(group) for group in data.at()),
        goodness=1
        - float(np.sum((means - fitted) ** 2)) / (float(np.sum((means - means.mean()) ** 2)) or 1.0),
        aicc=_aicc(shape, t, data, theta, threshold, means - fitted),
        held_out=_held_out(shape, values, means),
        excluded=data.excluded,
        scatter=scatter,
        rates=rates,
        shape=shape,
        theta=tuple(theta.tolist()),
    )


def _rates(
    shape: Shape, t: Array, data: Data, theta: Array, threshold: float, length: float
) -> tuple[float, ...]:
    """Each run's own rate; a curve with fewer values than parameters has none."""
    found = []
    for run in np.unique(data.group):
        mine = data.group == run
        if len(np.unique(t[mine])) >= shape.size:
            own, _ = descend(shape, t[mine], data.y[None, mine], theta[None], threshold)
            found.append(float(own[0, 1]) / length)
    return tuple(found)


def _spread(noise: Spread, data: Data, fitted: Array, means: Array, size: int) -> tuple[Spread, bool]:
    """The noise of one run: that of replicates, or the scatter about the law where that is plainly larger."""
    freedom = len(means) - size
    counts = np.array([len(group) for group in data.at()])
    if freedom < 1:
        return noise, False
    lack = float(np.sum(counts * (means - fitted) ** 2)) / freedom
    if lack > 0 and fdtrc(freedom, noise.freedom, lack / max(noise.variance, 1e-300)) < 0.01:
        return Spread(lack, freedom), True
    return noise, False


def _aicc(shape: Shape, t: Array, data: Data, theta: Array, threshold: float, off: Array) -> float:
    """Of single runs; along curves, whose errors are not independent, of the mean curve. The noise is a
    parameter.
    """
    if data.whole_curves:
        count, square = len(off), float(np.sum(off**2))
    else:
        count = len(data.y)
        square = 2 * float(huber(data.y - shape.value(theta[None], t)[0], threshold).sum())
    free = count - shape.size - 2
    if free < 1:
        return np.inf
    return count * np.log(max(square / count, LEAST_LOSS)) + 2 * (shape.size + 1) * count / free


def _held_out(shape: Shape, values: Array, means: Array) -> float | None:
    if len(values) < 6:
        return None
    keep = len(values) - max(1, len(values) // 4)
    t, low, length = shape.coordinate(values[:keep])
    theta, _ = solve(shape, t, means[:keep], None)
    ahead = shape.value(theta[None], (shape.transform(values[keep:]) - low) / length)[0]
    return float(np.sqrt(np.mean((ahead - means[keep:]) ** 2)))
