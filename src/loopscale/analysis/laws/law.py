"""Laws: how an error falls along an axis, with the interval of the rate and the verdict of theory.

A law is fitted to the log errors of single runs with Huber's loss. Every size of error then weighs the same, and a
stray run weighs little.

If each run is trained for one value of the axis, the interval follows the profile of the loss. The noise is that of
the replicates, pooled. If the values scatter about the law beyond this noise (F test at 1 %), the interval uses the
scatter instead. Such scatter is common, because each value was tuned by itself.

Along `loop` and `point` a run gives a whole curve, whose errors move together. Each curve is then one observation of
the rate, with Student's t. Resampling three curves has ten outcomes and covers far too little.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from loopscale.analysis.laws.verdict import Verdict
from loopscale.analysis.table import Column, Interval
from loopscale.stats.fitting import Fit, clean
from loopscale.stats.forms.base import Form, variants
from loopscale.stats.intervals import Array, pool

CLOSE = 2.0
"""AICc does not tell forms apart that differ by less."""
CLOSE_SHAPES = 3.0
"""The same for the nested instances of one form. In 400 simulations the interval of a plain exponential covered 91.5 %
with 2 and 95 % with 4, that of a double exponential 94 % with 2 and 97 % with 3. 3 lies between.
"""


@dataclass(frozen=True)
class Law:
    """A fitted law.

    Attributes
    ----------
    rate, low, high
        The exponent or rate, positive if the error falls, and its 95 % interval.
    x, y
        The values of the axis, and the geometric mean of the runs at each.
    runs
        The number of runs at each x.
    halves
        Half the 95 % interval of log y at each x, from the pooled noise of the replicates. Empty without noise, and for
        whole curves.
    goodness
        The share of the variance of the mean log errors that the law explains.
    held_out
        Root mean square log error on the last quarter of the axis, from a fit to the rest. None unless the choice of a
        form needed it.
    excluded
        The number of observations left out: not finite, not positive, or at x <= 0 for a form with a logarithm.
    scatter
        True if the values scatter about the law by more than the noise of the replicates.
    rates
        The rate of each curve, along `loop` and `point`.
    shape, theta
        The instance of the form, and its parameters in the coordinate of the data.
    beside
        Settings that vary in step with `along`. Together they are one axis.
    predicted
        The rate of the bound `theory` over the same range.
    theory_y
        The bound at each x.
    absolute
        True if the bound describes the same quantity and hides no constant. Heights can then be compared too.
    """

    form: str
    parameters: Mapping[str, float]
    rate: float
    low: float | None
    high: float | None
    x: tuple[float, ...]
    y: tuple[float, ...]
    runs: tuple[int, ...]
    halves: tuple[float, ...]
    goodness: float
    aicc: float
    held_out: float | None
    excluded: int
    scatter: bool
    rates: tuple[float, ...]
    shape: Form
    theta: tuple[float, ...]
    of: str = "error"
    along: str = ""
    beside: tuple[str, ...] = ()
    cell: str = ""
    theory: str | None = None
    predicted: float | None = None
    theory_y: tuple[float, ...] = ()
    absolute: bool = False
    verdict: Verdict | None = None
    note: str = ""

    @property
    def log_axis(self) -> bool:
        """True if the law is drawn on a logarithmic axis."""
        return self.shape.log_axis

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the rate."""
        return Interval.of(self.low, self.high)

    @property
    def axis(self) -> str:
        """The axis, with the settings that vary in step."""
        return " with ".join([self.along, *(path.rpartition(".")[2] for path in self.beside)])

    def value(self, x: Sequence[float] | Array) -> Array:
        """The law's error at x."""
        raw = self.shape.transform(np.asarray(x, dtype=np.float64))
        _, low, length = self.shape.coordinate(np.asarray(self.x))
        return np.exp(self.shape.value(np.array([self.theta]), (raw - low) / length)[0])

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(replace(self, shape=self.shape))
        fields["low"], fields["high"] = (
            None if end is None or np.isinf(end) else end for end in (self.low, self.high)
        )
        return {name: value for name, value in fields.items() if name not in ("shape", "theta")}


COLUMNS: list[Column[Law]] = [
    Column(("cell",), "cell", lambda law: law.cell or "all"),
    Column.attribute("of", "measure"),
    Column(("along",), "along", lambda law: law.axis),
    Column(("form",), "form", lambda law: law.form.replace("_", " ")),
    Column.attribute("rate"),
    Column.interval("low", "high"),
    Column(("from", "to"), "range", lambda law: Interval(min(law.x), max(law.x))),
    Column.attribute("theory"),
    Column.attribute("predicted"),
    Column(("verdict",), "verdict", lambda law: law.verdict.word if law.verdict else None),
    Column(("because",), "why", lambda law: law.verdict.because if law.verdict else law.note),
]


def law_line(law: Law) -> str:
    """A law in one line: measure and axis, form, rate with interval, range, prediction and verdict."""
    where = f" ({law.cell})" if law.cell else ""
    text = f"law: {law.of} along {law.axis}{where} is {law.form.replace('_', ' ')}, rate {law.rate:.3g}"
    text += f" ({law.interval})" if law.interval else " (no interval)"
    text += f", for {law.along} {law.x[0]:g} .. {law.x[-1]:g}"
    if law.theory and law.predicted is not None:
        text += f"; {law.theory} predicts {law.predicted:.3g}"
    if law.verdict:
        text += f": {law.verdict.word}, {law.verdict.because}"
    return f"{text}; {law.note}" if law.note else text


def fit_law(form: str, x: Any, y: Any, groups: Any) -> Law:
    """The law of this form through the errors y of runs at x.

    If AICc cannot tell the form's instances apart, the interval spans the intervals of all of them. The interval of the
    better instance alone covers 89 %.

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
        values = "1 usable value on the axis is" if count == 1 else f"{count} usable values on the axis are"
        raise ValueError(f"{values} too few for {form}")
    criteria = [fit.aicc() for fit in fits]
    least = min(criteria)
    best = fits[criteria.index(least)]
    close = [best]
    if not data.whole_curves:
        close += [
            fit
            for fit, aicc in zip(fits, criteria, strict=True)
            if fit is not best and (aicc == least or aicc - least < CLOSE_SHAPES)
        ]
    intervals = [fit.interval() for fit in close]
    low = min((low for low, _ in intervals if low is not None), default=None)
    high = max((high for _, high in intervals if high is not None), default=None)
    return _law(form, best, low, high, least)


def fit_best_form(forms: Sequence[str], x: Any, y: Any, groups: Any) -> Law:
    """The law of the form with the least AICc.

    Among forms that AICc cannot tell apart, the form with the fewest parameters is taken. Among several of these, the
    form that predicts the end of the axis best is taken.
    """
    laws, problem = [], None
    for form in forms:
        try:
            laws.append(fit_law(form, x, y, groups))
        except ValueError as error:
            problem = error
    if not laws:
        raise problem or ValueError("no form to fit")
    least = min(law.aicc for law in laws)
    close = [law for law in laws if law.aicc == least or law.aicc - least < CLOSE]
    fewest = min(law.shape.size for law in close)
    close = [law for law in close if law.shape.size == fewest]
    if len(close) > 1:
        close = [
            replace(law, held_out=Fit.of(law.shape, clean(law.shape, x, y, groups)).held_out())
            for law in close
        ]
    return min(close, key=lambda law: (law.held_out or 0.0, law.aicc))


def _law(form: str, best: Fit, low: float | None, high: float | None, aicc: float) -> Law:
    means, data = best.means, best.data
    _, offset, length = best.form.coordinate(data.x)
    variation = float(np.sum((means - means.mean()) ** 2)) or 1.0
    return Law(
        form=form,
        parameters=best.form.natural(best.theta, offset, length),
        rate=best.rate,
        low=low,
        high=high,
        x=tuple(np.unique(data.x).tolist()),
        y=tuple(np.exp(means).tolist()),
        runs=tuple(len(group) for group in data.at()),
        halves=tuple(best.noise.half_width(len(group)) for group in data.at()) if best.noise else (),
        goodness=1 - float(np.sum(best.off**2)) / variation,
        aicc=float(aicc),
        held_out=None,
        excluded=data.excluded,
        scatter=best.scatter() is not None,
        rates=best.rates(),
        shape=best.form,
        theta=tuple(best.theta.tolist()),
    )


def with_pooled_noise(laws: Sequence[Law]) -> list[Law]:
    """Laws along curves. The noise of their rates is pooled over all laws of the same instance of a form."""
    pooled_laws = []
    for law in laws:
        rates = [np.array(other.rates) for other in laws if other.rates and other.shape == law.shape]
        noise = pool(rates)
        if noise is not None and len(law.rates) > 1:
            half = noise.half_width(len(law.rates))
            law = replace(law, low=law.rate - half, high=law.rate + half)
        pooled_laws.append(law)
    return pooled_laws
