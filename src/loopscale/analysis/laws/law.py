"""Laws: how an error falls along an axis, with the interval of the rate and the verdict of theory.

A law is fitted to the log errors of single runs with Huber's loss. Every size of error then weighs the same, and a
stray run weighs little.

If each run is trained for one value of the axis, the interval follows the profile of the loss. The noise is that of
the replicates, pooled. If the values scatter about the law beyond this noise (F test at 1 %), the interval uses the
scatter instead. Such scatter is common, because each value was tuned by itself.

Along `loop` and `point` a run gives a whole curve, whose errors move together. Each curve is then one observation of
the rate, with Student's t. Resampling three curves has ten outcomes and covers far too little.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from loopscale.analysis.axes import CURVES, axis_name, cells_along, in_step, place_on_axis
from loopscale.analysis.laws.emergence import fit_emergence
from loopscale.analysis.learning import NOT_LEARNT, UNGATED, on_plateau, steps_words
from loopscale.analysis.results import CellResult, Results, TrialResult, mean
from loopscale.analysis.table import Column, Interval
from loopscale.stats.contrasts import MOST_REPLICATES, Array, pool, student
from loopscale.stats.fitting import LEAST_VALUES, Fit, RateVerdict, clean, judge_rates
from loopscale.stats.forms.base import Form, variants
from loopscale.theory.bounds.base import Bound
from loopscale.theory.prediction import predict

CLOSE = 2.0
"""AICc does not tell forms apart that differ by less."""
CLOSE_SHAPES = 3.0
"""The same for the nested instances of one form. In 400 simulations the interval of a plain exponential covered 91.5 %
with 2 and 95 % with 4, that of a double exponential 94 % with 2 and 97 % with 3. 3 lies between.
"""


@dataclass(frozen=True)
class Verdict:
    """A verdict on a rate.

    Attributes
    ----------
    because
        The reason. If the verdict is undecided, what would decide it.
    replicates, values
        How many of each would decide it; None if the number is not known, or above `MOST_REPLICATES`.
    flat
        True if the interval holds 0 too: a flat line would agree as well.
    """

    word: RateVerdict | Literal["not learnt"]
    because: str
    replicates: int | None = None
    values: int | None = None
    flat: bool = False


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
    def why(self) -> str:
        """The reason of the verdict, and the note."""
        return "; ".join(filter(None, (self.verdict.because if self.verdict else "", self.note)))

    @property
    def axis(self) -> str:
        """The axis, with the settings that vary in step."""
        return axis_name(self.along, self.beside)

    def value(self, x: Sequence[float] | Array) -> Array:
        """The law's error at x."""
        raw = self.shape.transform(np.asarray(x, dtype=np.float64))
        _, low, length = self.shape.coordinate(np.asarray(self.x))
        return np.exp(self.shape.value(np.array([self.theta]), (raw - low) / length)[0])

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        fields["low"], fields["high"] = (
            None if end is None or np.isinf(end) else end for end in (self.low, self.high)
        )
        return {name: value for name, value in fields.items() if name not in ("shape", "theta")}


@dataclass(frozen=True)
class Unfitted:
    """A combination for which too little has finished for a law."""

    of: str
    along: str
    cell: str
    because: str


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
    Column(("because",), "why", lambda law: law.why),
]


def law_name(law: Law | Unfitted, axis: str = "") -> str:
    """The measure, the axis (by default `along`) and the cell of a law."""
    return f"{law.of} along {axis or law.along}" + (f" ({law.cell})" if law.cell else "")


def law_line(law: Law) -> str:
    """A law in one line: measure and axis, form, rate with interval, range, prediction and verdict."""
    text = f"law: {law_name(law, law.axis)} is {law.form.replace('_', ' ')}, rate {law.rate:.3g}"
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
    near = [aicc == least or aicc - least < CLOSE_SHAPES for aicc in criteria]
    close = [best] if data.whole_curves else [fit for fit, is_near in zip(fits, near, strict=True) if is_near]
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


def comparable(kind: str, of: str, along: str) -> bool:
    """True if the bound gives the very quantity that was measured, and not only its shape."""
    bound = Bound.choices()[kind]
    measured = f"{of} at a point" if along == "point" else of
    return bound.of == measured and not bound.hidden_constant


@dataclass(frozen=True)
class Sample:
    """The observations of one law.

    Attributes
    ----------
    cell
        The settings that the observations share, in words.
    x, y, group
        Places on the axis, errors and the index of the run, [observations].
    settings
        The settings of the first run, by dotted path, from which a bound takes its own.
    runs
        The runs of the observations.
    """

    cell: str
    x: Array
    y: Array
    group: np.ndarray
    settings: Mapping[str, Any]
    runs: Sequence[TrialResult]


def study_laws(results: Results) -> tuple[list[Law], list[Unfitted]]:
    """Every law of the study with its verdict, and the combinations that have none yet."""
    fitted: list[Law] = []
    unfitted: list[Unfitted] = []
    for asked in results.study.get("laws") or []:
        of, along = asked.get("of", "error"), asked["along"]
        forms = [asked["form"]] if isinstance(asked.get("form", "power"), str) else list(asked["form"])
        laws, sampled = [], []
        for sample in samples(results, of, along):
            try:
                law = fit_sample(forms, of, sample)
            except ValueError as error:
                unfitted.append(Unfitted(of, along, sample.cell, str(error)))
                continue
            beside = () if along in CURVES else in_step(results, along)
            laws.append(replace(law, of=of, along=along, beside=beside, cell=sample.cell))
            sampled.append(sample)
        if along in CURVES:
            laws = with_pooled_noise(laws)
        for law, sample in zip(laws, sampled, strict=True):
            pooled_over = sum(other.shape == law.shape for other in laws) if along in CURVES else 0
            law = with_verdict(law, asked.get("theory"), sample.settings, pooled_over)
            fitted.append(with_learning(law, sample.runs))
    return fitted, unfitted


def fit_sample(forms: Sequence[str], of: str, sample: Sample) -> Law:
    """The law of the best form. Raises ValueError if the observations determine no law."""
    if of != "emerged_at":
        return fit_best_form(forms, sample.x, sample.y, sample.group)
    fit = fit_emergence(forms, sample.x, sample.runs)
    never = f"{fit.censored} of {sum(fit.runs)} runs never emerge, and count as censored"
    return Law(
        **{name: value for name, value in vars(fit).items() if name != "censored"},
        halves=(),
        goodness=math.nan,
        held_out=None,
        excluded=0,
        scatter=False,
        rates=(),
        note=never if fit.censored else "",
    )


def with_learning(law: Law, runs: Sequence[TrialResult]) -> Law:
    """The law with the verdict "not learnt" if runs stand on the plateau, and with a note if runs are still falling."""
    if plateau := on_plateau(runs, law.of):
        if law.verdict:
            return replace(law, verdict=Verdict("not learnt", plateau))
        return replace(law, note="; ".join(filter(None, (law.note, f"{NOT_LEARNT}: {plateau}"))))
    falling = "" if law.of in UNGATED else steps_words(runs, law.along)
    return replace(law, note="; ".join(filter(None, (law.note, falling))))


def with_verdict(
    law: Law, theory: str | Mapping[str, Any] | None, settings: Mapping[str, Any], pooled_over: int = 0
) -> Law:
    """The law beside the bound's law: the same form, fitted to the bound's own values over the same range.

    Only the rates are compared, because most bounds hide their constants.

    Parameters
    ----------
    pooled_over
        Along a curve, the number of laws over which the noise of the rate was pooled.
    """
    if not theory:
        return law
    name = theory if isinstance(theory, str) else str(theory["kind"])
    try:
        values = predict(theory, settings, law.along, law.x, law.of)
        predicted = fit_law(law.form, law.x, values, np.arange(len(values))).rate
    except ValueError as error:
        return replace(law, theory=name, note=f"no prediction: {str(error).splitlines()[0]}")
    verdict = compare_rates(
        law.rate, law.low, law.high, predicted, len(law.x), min(law.runs), pooled_over, law.form
    )
    absolute = comparable(name, law.of, law.along)
    return replace(
        law, theory=name, predicted=predicted, theory_y=tuple(values), verdict=verdict, absolute=absolute
    )


def compare_rates(
    rate: float,
    low: float | None,
    high: float | None,
    predicted: float,
    values: int,
    runs: int,
    curves: int = 0,
    form: str = "power",
) -> Verdict:
    """The verdict on a rate with its interval.

    Parameters
    ----------
    values, runs
        The number of values on the axis, and of replicates at each.
    curves
        If each run gives a whole curve, the number of laws over which the noise was pooled. Only more runs can then
        narrow the interval.
    """
    if values < LEAST_VALUES:
        because = f"{values} values on the axis are too few; {LEAST_VALUES} could decide it"
        return Verdict("undecided", because, values=LEAST_VALUES)
    if low is None or high is None:
        return Verdict("undecided", "one replicate gives no interval; two would", replicates=2)
    margin = Form.choices()[form].margin(predicted)
    word = cast(RateVerdict, str(judge_rates(np.asarray(low), np.asarray(high), predicted, margin)))
    if word == "agrees":
        flat = low <= 0 <= high
        because = f"the interval lies within {margin:.2g} of the predicted {predicted:.3g}"
        because += "; the interval holds 0, so a flat line would agree as well" * flat
        return Verdict(word, because, flat=flat)
    if word != "undecided":
        side = "above" if word == "faster" else "below"
        return Verdict(word, f"the interval lies {side} the predicted {predicted:.3g}")
    return _undecided(rate, low, high, predicted, margin, values, runs, curves)


def _undecided(
    rate: float, low: float, high: float, predicted: float, margin: float, values: int, runs: int, curves: int
) -> Verdict:
    width, off = high - low, abs(rate - predicted)
    if not math.isfinite(width):
        because = "the data do not bound the rate; a longer axis would"
        return Verdict("undecided", because, values=2 * values)
    target = 2 * margin if width > 2 * margin else 2 * max(margin - off, off)
    replicates = _enough_replicates(width / target, runs, curves or values)
    more_values = None if curves else math.ceil(values * (width / target) ** 2)
    if more_values is not None and more_values > MOST_REPLICATES:
        more_values = None
    about = f"about {replicates}" if replicates else f"over {MOST_REPLICATES}"
    remedies = [f"{about} replicates (now {runs})"]
    if not curves:
        remedies.append(f"{more_values or f'over {MOST_REPLICATES}'} values (now {values})")
    because = f"the interval is {width:.2g} wide; {' or '.join(remedies)} would bring it below {target:.2g}"
    return Verdict("undecided", because, replicates, more_values)


def _enough_replicates(shrink: float, runs: int, groups: int) -> int | None:
    """How many replicates make an interval `shrink` times narrower, Student's t included; None above the most.

    The noise is pooled over `groups` groups of replicates.
    """
    now = student(max(groups * (runs - 1), 1)) / math.sqrt(runs)
    for count in range(runs + 1, MOST_REPLICATES + 1):
        if now / (student(groups * (count - 1)) / math.sqrt(count)) >= shrink:
            return count
    return None


def samples(results: Results, of: str, along: str) -> Iterator[Sample]:
    """The observations of each law. Along a curve each cell has a law; along an axis, cells that differ there alone."""
    if along in CURVES:
        yield from (_curve_sample(cell, of, along) for cell in results.answered)
        return
    for label, cells in cells_along(results, along).items():
        placed = [(place_on_axis(run, along), run) for cell in cells for run in cell.runs]
        placed = [(place, run) for place, run in placed if np.isfinite(place)]
        if placed:
            runs = [run for _, run in placed]
            x, y = np.array([place for place, _ in placed]), np.array([run[of] for run in runs])
            yield Sample(label, x, y, np.arange(len(placed)), runs[0].evaluated, runs)


def _curve_sample(cell: CellResult, of: str, along: str) -> Sample:
    """Along `loop`, the trained loops 1 .. T. Along `point`, loop T after at least one pair."""
    curves = [_curve_values(run, of, along) for run in cell.runs]
    groups = [np.full(len(x), index) for index, (x, _) in enumerate(curves)]
    x, y = (np.concatenate([curve[part] for curve in curves]) for part in (0, 1))
    return Sample(cell.label, x, y, np.concatenate(groups), cell.runs[0].evaluated, cell.runs)


def _curve_values(run: TrialResult, of: str, along: str) -> tuple[Array, Array]:
    curve = run.curve
    noise = run["raw_error"] - run["excess"] if of == "excess" else 0.0
    grid = curve.raw if of in ("raw_error", "excess") else curve.error
    grid = curve.regret if of in ("regret", "regret_last") else grid
    if along == "loop":
        kept = curve.loops <= run.loop
        values = grid[kept][:, -1:] if of.endswith("_last") else grid[kept]
        return curve.loops[kept].astype(np.float64), np.array([mean(row) for row in values]) - noise
    kept = curve.points > 0
    row = grid[curve.row(run.loop)] if curve else np.empty(0)
    return curve.points[kept].astype(np.float64), row[kept] - noise
