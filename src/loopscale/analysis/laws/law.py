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

from loopscale.analysis.recorded.axes import axis_name, cells_along, in_step, place_on_axis
from loopscale.analysis.recorded.learning import NOT_LEARNT, on_plateau, passages, steps_words
from loopscale.analysis.recorded.results import CellResult, Results, TrialResult
from loopscale.questions.axes.base import LawAxis, axis_of
from loopscale.questions.measures import CURVE_MEASURES
from loopscale.stats.contrasts import MOST_DECIDING_REPLICATES, Array, student
from loopscale.stats.fitting import (
    LawFit,
    best_form,
    margin_of,
    rate_of_course,
    with_pooled_noise,
)
from loopscale.stats.learning import Emergence
from loopscale.stats.milestones import KINDS, Milestone, is_milestone, measure_of
from loopscale.stats.verdict_rule import LEAST_VALUES, RateVerdict, judge_rate
from loopscale.theory.bounds.base import Bound
from loopscale.theory.prediction import is_regret_of_last_query, predict

if TYPE_CHECKING:  # few studies hold out values or have looks, see `study_laws`
    from loopscale.analysis.laws.at_looks import LastLook, LooksAtLaw
    from loopscale.analysis.laws.held_out import HeldOutValues, PredictedValue
    from loopscale.stats.prediction import Score
    from loopscale.studies.held_out import HoldOut

NO_TEST = "no held-out test"
NO_LAW: Literal["no law"] = "no law"
OF_PROGRAM = ("shape", "theta", "censored", "trainings")
"""The attributes of a law that no answer has."""
MOST_REVERSED = 0.25
"""The largest turn against the direction of a law, as a share of the range of its values. All forms are monotonous."""


@dataclass(frozen=True)
class LawJudgement:
    """The verdict on a rate, with its reason and with the data that would decide."""

    verdict: RateVerdict | Literal["not learnt", "no law"]
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
class Law(LawFit):
    """A fitted law beside its theory, with its judgement."""

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
    judgement: LawJudgement | None = None
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
    def why(self) -> str:
        """The reason of the verdict, and the note."""
        return "; ".join(filter(None, (self.judgement.because if self.judgement else "", self.note)))

    @property
    def axis(self) -> str:
        """The axis, with the settings that vary in step."""
        return axis_name(self.along, self.beside)

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(replace(self, trainings=()))
        fields["low"], fields["high"] = (
            None if end is None or np.isinf(end) else end for end in (self.low, self.high)
        )
        if judgement := fields.pop("judgement"):
            judgement = {"word": judgement.pop("verdict"), **judgement}
        fields["verdict"] = judgement
        return {name: value for name, value in fields.items() if name not in OF_PROGRAM}


@dataclass(frozen=True)
class Unfitted:
    """A combination with too few finished runs for a law."""

    of: str
    along: str
    cell: str
    because: str


def comparable(kind: str, of: str, along: str) -> bool:
    """True if the bound gives the very quantity that was measured, and not only its shape."""
    bound = Bound.choices()[kind]
    at_query = axis_of(along).at_query
    if not at_query and is_regret_of_last_query(bound, of):
        return not bound.hidden_constant
    measured = f"{of} at a point" if at_query else of
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


@dataclass(frozen=True)
class Course:
    """The values that a theory gives for the axis of a law."""

    theory: str | None = None
    y: tuple[float, ...] = ()
    predicted: float | None = None
    """The rate of the same form, fitted to these values. Only rates are compared, because most bounds hide their
    constants."""
    absolute: bool = False
    problem: str = ""
    """The reason if the theory gives no values."""

    @classmethod
    def of(
        cls, asked: Mapping[str, Any], of: str, fit: LawFit, sample: Sample, look: "LastLook | None"
    ) -> "Course":
        """The course of the theory of a law over the values of the fitted law, or of its last look."""
        theory, along = asked.get("theory"), asked["along"]
        if not theory:
            return cls()
        name = theory if isinstance(theory, str) else str(theory["kind"])
        if look:
            return cls(name, look.course, look.predicted, comparable(name, of, along))
        try:
            y = tuple(predict(theory, sample.settings, along, fit.x, of))
            predicted = rate_of_course(fit.form, fit.x, y)
        except ValueError as error:
            return cls(name, problem=f"no prediction: {str(error).splitlines()[0]}")
        return cls(name, y, predicted, comparable(name, of, along))


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
        held_out = looks = None
        if asked.get("hold_out") or hold_out:
            from loopscale.analysis.laws.held_out import HeldOutValues  # few studies hold out values

            held_out = HeldOutValues(results, asked, hold_out)
        if results.study.get("until") and (hold_out is None or asked.get("hold_out")):
            from loopscale.analysis.laws.at_looks import LooksAtLaw  # few studies have looks

            looks = LooksAtLaw(results, asked)
        laws, missing = _laws(results, asked, held_out, looks)
        fitted += laws
        unfitted += missing
    return fitted, unfitted


def _laws(
    results: Results, asked: Mapping[str, Any], held_out: "HeldOutValues | None", looks: "LooksAtLaw | None"
) -> tuple[list[Law], list[Unfitted]]:
    """One law of the study's file, for each combination of the other settings."""
    of, along = asked.get("of") or "error", asked["along"]
    if of in KINDS:  # few laws are of a milestone
        of = measure_of(asked)
    forms = [asked["form"]] if isinstance(asked.get("form", "power"), str) else list(asked["form"])
    entries, unfitted = list[tuple[Sample, LawFit, "LastLook | None"]](), list[Unfitted]()
    for sample in samples(results, of, along, held_out.fitted if held_out else {}):
        try:
            look = looks.last(sample.cell, sample.settings) if looks else None
            fit = LawFit.of_form(look.fit, look.alpha) if look else fit_sample(forms, of, sample)
            entries.append((sample, fit, look))
        except ValueError as error:
            unfitted.append(Unfitted(of, along, sample.cell, str(error)))
    curve, beside = axis_of(along).curve, ()
    fits = [fit for _, fit, _ in entries]
    if curve:
        fits = with_pooled_noise(fits)
    elif entries:
        beside = in_step(results, along)
    laws = list[Law]()
    for (sample, _, look), fit in zip(entries, fits, strict=True):
        course = Course.of(asked, of, fit, sample, look)
        first_look = looks.first if looks and looks.judge(sample.cell) else ""
        pooled_over = sum(other.shape == fit.shape for other in fits) if curve else 0
        judgement = _judgement(fit, course, look, first_look, pooled_over)
        notes = [course.problem or _censored_words(fit, of)]
        if plateau := on_plateau(sample.runs, of):
            notes += [] if judgement else [f"{NOT_LEARNT}: {plateau}"]
            judgement = judgement and LawJudgement("not learnt", plateau)
        elif not is_milestone(of):
            notes.append(steps_words(sample.runs, along))
        laws.append(
            Law(
                **vars(fit),
                of=of,
                along=along,
                beside=beside,
                cell=sample.cell,
                theory=course.theory,
                predicted=course.predicted,
                theory_y=course.y,
                absolute=course.absolute,
                judgement=judgement,
                note="; ".join(filter(None, notes)),
                predictions=held_out.predicted(sample.cell) if held_out else (),
                at_look=bool(first_look),
                trainings=tuple(sample.runs),
            )
        )
    return laws, unfitted


def _judgement(
    fit: LawFit, course: Course, look: "LastLook | None", first_look: str, pooled_over: int
) -> LawJudgement | None:
    """The judgement of a law whose runs have learnt; None without a theory, unless the values refuse all forms.

    `first_look` are the replicates of the first look, in words; empty if no look judges the law.
    """
    judgement = None
    if look:
        judgement = judgement_at_look(fit, look)
    elif course.predicted is not None:
        early = LawJudgement("undecided", first_look) if first_look else None
        judgement = early or compare_rates(fit, course.predicted, pooled_over)
    if first_look and judgement and judgement.verdict != "undecided":  # a look does not withdraw a verdict
        return judgement
    return refusal(fit) or judgement


def fit_sample(forms: Sequence[str], of: str, sample: Sample) -> LawFit:
    """The law of the best form. Raises ValueError if the observations determine no law."""
    if not sample.passages:
        return LawFit.of_form(best_form(forms, sample.x, sample.y, sample.group))
    from loopscale.analysis.laws.milestones import fit_passages  # few laws are of a milestone

    milestone = Milestone.parse(of)
    assert milestone is not None
    return fit_passages(forms, sample.x, sample.passages, milestone)


def _censored_words(fit: LawFit, of: str) -> str:
    milestone = Milestone.parse(of) if fit.censored else None
    if milestone is None:
        return ""
    return f"{fit.censored} of {sum(fit.runs)} runs never {milestone.verb}, and count as censored"


def judgement_at_look(fit: LawFit, look: "LastLook") -> LawJudgement:
    """The judgement of the last look that the runs allow, corrected for the number of laws.

    The printed interval is that of the law alone, at all looks together.
    """
    corrected = replace(fit, low=look.low, high=look.high, runs=(look.seeds,))
    judgement = compare_rates(corrected, look.predicted)
    if look.verdict != judgement.verdict:  # a look does not withdraw a verdict
        judgement = LawJudgement(look.verdict, "an earlier look decided it")
    return replace(judgement, because=look.why_futile) if look.why_futile else judgement


def refusal(fit: LawFit) -> LawJudgement | None:
    """The judgement "no law" if the values refuse all forms.

    Two things together refuse a law. The values scatter about the best form by more than the noise of the replicates
    (an F test). And the values turn: against the direction of the law they move by more than a quarter of their range,
    which no form does. The F test alone would refuse laws whose cells were tuned apart, and scatter a little.
    """
    if not fit.scatter or (turned := reversal(fit.y, fit.rate)) <= MOST_REVERSED:
        return None
    because = (
        f"the values turn by {turned * 100:.0f} % of their range against the direction of the best form, and scatter "
        "by more than their noise"
    )
    return LawJudgement(NO_LAW, because)


def reversal(errors: Sequence[float], rate: float) -> float:
    """The largest move of the log errors against the direction of a rate, as a share of the range of the log errors."""
    falling = np.log(np.asarray(errors)) * (1.0 if rate >= 0 else -1.0)
    rise = float((falling - np.minimum.accumulate(falling)).max())
    span = float(np.ptp(falling))
    return rise / span if span > 0 else 0.0


def compare_rates(fit: LawFit, predicted: float, curves: int = 0) -> LawJudgement:
    """The judgement of the rate of a law beside the predicted rate.

    Parameters
    ----------
    curves
        If each run gives a whole curve, the number of laws over which the noise was pooled. Only more runs can then
        narrow the interval.
    """
    low, high, values = fit.low, fit.high, len(fit.x)
    if values < LEAST_VALUES:
        because = f"{values} values on the axis are too few; {LEAST_VALUES} could decide it"
        return LawJudgement("undecided", because, values=LEAST_VALUES)
    if low is None or high is None:
        return LawJudgement("undecided", "one replicate gives no interval; two would", replicates=2)
    margin = margin_of(fit.form, predicted)
    verdict = judge_rate(low, high, predicted, margin, values)
    if verdict == "agrees":
        flat = low <= 0 <= high
        because = f"the interval lies within {margin:.2g} of the predicted {predicted:.3g}"
        because += "; the interval holds 0, so a flat line would agree as well" * flat
        return LawJudgement(verdict, because, flat=flat)
    if verdict != "undecided":
        side = "above" if verdict == "faster" else "below"
        return LawJudgement(verdict, f"the interval lies {side} the predicted {predicted:.3g}")
    return _undecided(fit, high - low, predicted, margin, curves)


def _undecided(fit: LawFit, width: float, predicted: float, margin: float, curves: int) -> LawJudgement:
    values, runs, off = len(fit.x), min(fit.runs), abs(fit.rate - predicted)
    if not math.isfinite(width):
        because = "the data do not bound the rate; a longer axis would"
        return LawJudgement("undecided", because, values=2 * values)
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
    return LawJudgement("undecided", because, replicates, more_values)


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
    axis = axis_of(along)
    if axis.curve:
        yield from (_curve_sample(cell, of, axis) for cell in results.answered)
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


def _curve_sample(cell: CellResult, of: str, axis: LawAxis) -> Sample:
    curves = [_curve_values(run, of, axis) for run in cell.runs]
    groups = [np.full(len(x), index) for index, (x, _) in enumerate(curves)]
    x, y = (np.concatenate([curve[part] for curve in curves]) for part in (0, 1))
    return Sample(cell.label, x, y, np.concatenate(groups), cell.runs[0].evaluated, cell.runs)


def _curve_values(run: TrialResult, of: str, axis: LawAxis) -> tuple[Array, Array]:
    curve, measure = run.curve, CURVE_MEASURES.get(of, CURVE_MEASURES["error"])
    noise = run["raw_error"] - run["excess"] if of == "excess" else 0.0
    grid = curve.raw if of in ("raw_error", "excess") else getattr(curve, measure.grid)
    x, y = axis.along_curve(curve.loops, curve.points, grid, run.loop, measure)
    return x, y - noise
