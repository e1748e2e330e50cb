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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from loopscale.analysis.recorded.axes import CURVES, axis_name, cells_along, in_step, place_on_axis
from loopscale.analysis.recorded.learning import NOT_LEARNT, on_plateau, steps_words
from loopscale.analysis.recorded.milestones import passages
from loopscale.analysis.recorded.results import CellResult, Results, TrialResult, mean
from loopscale.questions.measures import CURVE_MEASURES
from loopscale.stats.contrasts import ALPHA, MOST_DECIDING_REPLICATES, Array, pool, student
from loopscale.stats.fitting import (
    LEAST_VALUES,
    FormFit,
    RateVerdict,
    best_form,
    judge_rate,
    margin_of,
    rate_of_course,
)
from loopscale.stats.forms.base import Form
from loopscale.stats.learning import Emergence
from loopscale.stats.milestones import KINDS, Milestone, is_milestone, measure_of
from loopscale.theory.bounds.base import Bound
from loopscale.theory.prediction import is_regret_of_last_query, predict

if TYPE_CHECKING:  # few studies hold out values or have looks, see `study_laws`
    from loopscale.analysis.laws.at_looks import LooksAtLaw
    from loopscale.analysis.laws.held_out import PredictedValue
    from loopscale.stats.prediction import Score
    from loopscale.studies.held_out import HoldOut

NO_TEST = "no held-out test"
NO_LAW: Literal["no law"] = "no law"
MOST_REVERSED = 0.25
"""The largest turn against the direction of a law, as a share of the range of its values. All forms are monotonous."""


@dataclass(frozen=True)
class Verdict:
    """A verdict on a rate."""

    word: RateVerdict | Literal["not learnt", "no law"]
    """`not learnt` if runs stand on the plateau. The rate then describes which runs have left the plateau. `no law` if
    the residuals refuse every form."""
    because: str
    """The reason of the verdict. For an undecided verdict, the data that would decide."""
    replicates: int | None = None
    """The number of replicates that would decide the verdict. None if the number is unknown, or above
    `MOST_DECIDING_REPLICATES`."""
    values: int | None = None
    """The number of values that would decide the verdict.

    None if the number is unknown, or above `MOST_DECIDING_REPLICATES`."""
    flat: bool = False
    """True if the interval holds 0 too: a flat line would agree as well."""


@dataclass(frozen=True)
class Law:
    """A fitted law."""

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
    """The geometric mean of the runs at each x."""
    runs: tuple[int, ...]
    """The number of runs at each x."""
    halves: tuple[float, ...]
    """Half the 95 % interval of log y at each x, from the pooled noise of the replicates. Empty without noise, and for
    whole curves."""
    goodness: float
    """The share of the variance of the mean log errors that the law explains."""
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
    of: str = "error"
    along: str = ""
    beside: tuple[str, ...] = ()
    """Settings that vary in step with `along`. Together they are one axis."""
    cell: str = ""
    theory: str | None = None
    predicted: float | None = None
    """The rate of the bound `theory` over the same range."""
    theory_y: tuple[float, ...] = ()
    """The bound at each x."""
    absolute: bool = False
    """True if the bound describes the same quantity and hides no constant. Heights can then be compared too."""
    verdict: Verdict | None = None
    note: str = ""
    predictions: "tuple[PredictedValue, ...]" = ()
    """The held-out values with their predictions. The law is fitted to the other values. Empty without a held-out
    test."""
    at_look: bool = False
    """True if a look of `until: decided` gives fit, interval and verdict."""
    trainings: tuple[TrialResult, ...] = field(default=(), repr=False, compare=False)
    """The runs of the fitted observations."""

    @property
    def score(self) -> "Score | None":
        """The score of the first judged held-out value; None if no held-out value is judged."""
        judged = (value.score for value in self.predictions if value.score and value.prediction.judged)
        return next(judged, None)

    @property
    def test_words(self) -> str:
        """The held-out test in words."""
        return "; ".join(value.words for value in self.predictions) or NO_TEST

    @property
    def log_axis(self) -> bool:
        """True if the law is drawn on a logarithmic axis."""
        return self.shape.log_axis

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
        fields = asdict(replace(self, trainings=()))
        fields["low"], fields["high"] = (
            None if end is None or np.isinf(end) else end for end in (self.low, self.high)
        )
        return {name: value for name, value in fields.items() if name not in ("shape", "theta", "trainings")}


@dataclass(frozen=True)
class Unfitted:
    """A combination with too few finished runs for a law."""

    of: str
    along: str
    cell: str
    because: str


def fit_law(form: str, x: Any, y: Any, groups: Any) -> Law:
    """The law of this form through the errors y of runs at x.

    See `FormFit.of`, which raises ValueError.
    """
    return law_of(FormFit.of(form, x, y, groups))


def fit_best_form(forms: Sequence[str], x: Any, y: Any, groups: Any) -> Law:
    """The law of the form that `best_form` takes. Raises ValueError."""
    return law_of(best_form(forms, x, y, groups))


def law_of(fit: FormFit, alpha: float = ALPHA) -> Law:
    best, means, data = fit.best, fit.best.means, fit.best.data
    low, high = fit.interval(alpha)
    _, offset, length = best.form.coordinate(data.x)
    variation = float(np.sum((means - means.mean()) ** 2)) or 1.0
    return Law(
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
    if along != "point" and is_regret_of_last_query(bound, of):
        return not bound.hidden_constant
    measured = f"{of} at a point" if along == "point" else of
    return bound.of == measured and not bound.hidden_constant


@dataclass(frozen=True)
class Sample:
    """The observations of one law."""

    cell: str
    """The settings that the observations share, in words."""
    x: Array
    """The places on the axis [observations]."""
    y: Array
    """The errors [observations]."""
    group: np.ndarray
    """The index of the run [observations]."""
    settings: Mapping[str, Any]
    """The settings of the first run, by dotted path, from which a bound takes its own."""
    runs: Sequence[TrialResult]
    """The runs of the observations."""
    passages: Sequence[Emergence | None] = ()
    """If the law is of a milestone: the two reports between which each run passed, in the unit of the milestone."""


def study_laws(results: Results, hold_out: "HoldOut | None" = None) -> tuple[list[Law], list[Unfitted]]:
    """Every law of the study with its verdict, and the combinations that have none yet.

    Parameters
    ----------
    hold_out
        Values that laws without `hold_out` hold out afterwards: how many of the largest, or which values.
    """
    fitted: list[Law] = []
    unfitted: list[Unfitted] = []
    for asked in results.study.get("laws") or []:
        of, along = asked.get("of") or "error", asked["along"]
        if of in KINDS:  # few laws are of a milestone
            of = measure_of(asked)
        forms = [asked["form"]] if isinstance(asked.get("form", "power"), str) else list(asked["form"])
        laws, sampled = list[Law](), list[Sample]()
        held_out = None
        if asked.get("hold_out") or hold_out:
            from loopscale.analysis.laws.held_out import HeldOutValues  # few studies hold out values

            held_out = HeldOutValues(results, asked, hold_out)
        looks = None
        if results.study.get("until") and (hold_out is None or asked.get("hold_out")):
            from loopscale.analysis.laws.at_looks import LooksAtLaw  # few studies have looks

            looks = LooksAtLaw(results, asked)
        for sample in samples(results, of, along, held_out.fitted if held_out else {}):
            try:
                if looks and looks.judge(sample.cell):
                    law = fit_at_look(looks, asked, sample)
                else:
                    law = fit_sample(forms, of, sample)
            except ValueError as error:
                unfitted.append(Unfitted(of, along, sample.cell, str(error)))
                continue
            beside = () if along in CURVES else in_step(results, along)
            predictions = held_out.predicted(sample.cell) if held_out else ()
            about = {"of": of, "along": along, "beside": beside, "cell": sample.cell}
            laws.append(replace(law, **about, predictions=predictions))
            sampled.append(sample)
        if along in CURVES:
            laws = with_pooled_noise(laws)
        for law, sample in zip(laws, sampled, strict=True):
            pooled_over = sum(other.shape == law.shape for other in laws) if along in CURVES else 0
            if not law.at_look:
                law = with_verdict(law, asked.get("theory"), sample.settings, pooled_over)
            law = replace(law, trainings=tuple(sample.runs))
            fitted.append(with_learning(with_refusal(law), sample.runs))
    return fitted, unfitted


def fit_at_look(looks: "LooksAtLaw", asked: Mapping[str, Any], sample: Sample) -> Law:
    """The law of the last look that the runs allow, with its verdict. Before the first look: of all runs, undecided.

    The interval is that of the law alone, at all looks together. The verdict is corrected for the number of laws.

    Raises
    ------
    ValueError
        If no form can be fitted.
    """
    theory = asked["theory"]
    try:
        look = looks.last(sample.cell, sample.settings)
    except ValueError:  # the theory has no value for this law: `with_verdict` notes this
        look = None
    if look is None:
        law = with_verdict(fit_sample(asked["form"], measure_of(asked), sample), theory, sample.settings)
        return replace(law, at_look=True, verdict=law.verdict and Verdict("undecided", looks.first))
    law, name = law_of(look.fit, look.alpha), str(theory["kind"])
    verdict = compare_rates(
        law.rate, look.low, look.high, look.predicted, len(law.x), look.seeds, form=law.form
    )
    if look.word != verdict.word:  # a look does not withdraw a verdict
        verdict = Verdict(look.word, "an earlier look decided it")
    return replace(
        law,
        theory=name,
        predicted=look.predicted,
        theory_y=look.course,
        verdict=replace(verdict, because=look.why_futile) if look.why_futile else verdict,
        absolute=comparable(name, asked["of"], asked["along"]),
        at_look=True,
    )


def fit_sample(forms: Sequence[str], of: str, sample: Sample) -> Law:
    """The law of the best form. Raises ValueError if the observations determine no law."""
    if not sample.passages:
        return fit_best_form(forms, sample.x, sample.y, sample.group)
    from loopscale.analysis.laws.milestones import fit_passages  # few laws are of a milestone

    milestone = Milestone.parse(of)
    assert milestone is not None
    fit = fit_passages(forms, sample.x, sample.passages, milestone)
    never = f"{fit.censored} of {sum(fit.runs)} runs never {milestone.verb}, and count as censored"
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


def with_refusal(law: Law) -> Law:
    """The law with the verdict "no law" if its values refuse all forms.

    Two things together refuse a law. The values scatter about the best form by more than the noise of the replicates
    (an F test). And the values turn: against the direction of the law they move by more than a quarter of their range,
    which no form does. The F test alone would refuse laws whose cells were tuned apart, and scatter a little. A look
    does not withdraw a verdict.
    """
    decided = law.at_look and law.verdict is not None and law.verdict.word != "undecided"
    if decided or not law.scatter or (turned := reversal(law.y, law.rate)) <= MOST_REVERSED:
        return law
    because = (
        f"the values turn by {turned * 100:.0f} % of their range against the direction of the best form, and scatter "
        "by more than their noise"
    )
    return replace(law, verdict=Verdict(NO_LAW, because))


def reversal(errors: Sequence[float], rate: float) -> float:
    """The largest move of the log errors against the direction of a rate, as a share of the range of the log errors."""
    falling = np.log(np.asarray(errors)) * (1.0 if rate >= 0 else -1.0)
    rise = float((falling - np.minimum.accumulate(falling)).max())
    span = float(np.ptp(falling))
    return rise / span if span > 0 else 0.0


def with_learning(law: Law, runs: Sequence[TrialResult]) -> Law:
    """The law with the verdict "not learnt" if runs stand on the plateau, and with a note if runs are still falling."""
    if plateau := on_plateau(runs, law.of):
        if law.verdict:
            return replace(law, verdict=Verdict("not learnt", plateau))
        return replace(law, note="; ".join(filter(None, (law.note, f"{NOT_LEARNT}: {plateau}"))))
    falling = "" if is_milestone(law.of) else steps_words(runs, law.along)
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
        predicted = rate_of_course(law.form, law.x, tuple(values))
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
    margin = margin_of(form, predicted)
    word = judge_rate(low, high, predicted, form, values)
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
    if more_values is not None and more_values > MOST_DECIDING_REPLICATES:
        more_values = None
    about = f"about {replicates}" if replicates else f"over {MOST_DECIDING_REPLICATES}"
    remedies = [f"{about} replicates (now {runs})"]
    if not curves:
        remedies.append(f"{more_values or f'over {MOST_DECIDING_REPLICATES}'} values (now {values})")
    because = f"the interval is {width:.2g} wide; {' or '.join(remedies)} would bring it below {target:.2g}"
    return Verdict("undecided", because, replicates, more_values)


def _enough_replicates(shrink: float, runs: int, groups: int) -> int | None:
    """How many replicates make an interval `shrink` times narrower, Student's t included; None above the most.

    The noise is pooled over `groups` groups of replicates.
    """
    now = student(max(groups * (runs - 1), 1)) / math.sqrt(runs)
    for count in range(runs + 1, MOST_DECIDING_REPLICATES + 1):
        if now / (student(groups * (count - 1)) / math.sqrt(count)) >= shrink:
            return count
    return None


def samples(
    results: Results, of: str, along: str, only: Mapping[str, Collection[str]] = {}
) -> Iterator[Sample]:
    """The observations of each law. Along a curve each cell has a law; along an axis, cells that differ there alone.

    Parameters
    ----------
    only
        The keys of the fitted cells of laws with a held-out test, by the settings that the cells share.
    """
    if along in CURVES:
        yield from (_curve_sample(cell, of, along) for cell in results.answered)
        return
    milestone = Milestone.parse(of)
    for label, cells in cells_along(results, along).items():
        fitted = [cell for cell in cells if cell.key in only.get(label, (cell.key,))]
        placed = [(place_on_axis(run, along), run) for cell in fitted for run in cell.runs]
        placed = [(place, run) for place, run in placed if np.isfinite(place)]
        if placed:
            runs = [run for _, run in placed]
            x, y = np.array([place for place, _ in placed]), np.array([run[of] for run in runs])
            passed = passages(results, runs, milestone) if milestone else ()
            yield Sample(label, x, y, np.arange(len(placed)), runs[0].evaluated, runs, passed)


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
    measure = CURVE_MEASURES.get(of)
    grid = curve.regret if measure and measure.grid == "regret" else grid
    if along == "loop":
        kept = curve.loops <= run.loop
        values = grid[kept][:, -1:] if measure and measure.query == "last" else grid[kept]
        return curve.loops[kept].astype(np.float64), np.array([mean(row) for row in values]) - noise
    kept = curve.points > 0
    row = grid[curve.row(run.loop)] if curve else np.empty(0)
    return curve.points[kept].astype(np.float64), row[kept] - noise
