"""Matched steps: the steps of an iterative algorithm after which its error is that of a trained net.

Net and algorithm have the same prompts. The matched steps are the first crossing: the smallest number of steps after
which the algorithm's error is at most that of the net. Between two recorded steps the logarithm of the error follows a
line. The error of an algorithm may rise again later, and the first crossing ignores the rise.

If the net has more error than the first recorded step, the matched steps are fewer than this step. If no recorded step
has the net's error, the matched steps are more than the last recorded step. Both results are censored, and neither is
replaced by a number.

The interval inverts the comparison of a net with an algorithm. A step lies in the interval if the errors of the net and
of the algorithm after this step do not differ clearly. Two noises are added as variances of the logarithm. The noise of
training comes from `contrast_with_value`, as in every comparison with an algorithm. The noise of the evaluation prompts
comes from the standard errors of both sides. The records have no covariance of the two sides, so the sides count as
independent. The mean over queries counts its queries as fully dependent. Both choices widen the interval.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from loopscale.analysis.recorded.learning import learnt_words
from loopscale.analysis.recorded.results import (
    Array,
    CellResult,
    Query,
    Results,
    TrialCurve,
    TrialResult,
    mean,
    part_of,
)
from loopscale.analysis.table import Column, Interval
from loopscale.core.plugins import MissingPlugin
from loopscale.questions.claim_evidence import EXACT
from loopscale.stats.contrasts import contrast_with_value, student
from loopscale.theory.bounds.imitation import LayersForSteps

SAME = 1e-9
"""An algorithm whose errors differ by less than this share takes one step only."""
Censored = Literal["", "fewer", "more"]


@dataclass(frozen=True)
class Match:
    """The steps of an algorithm that match one error of a net."""

    first: int
    """The first recorded step of the algorithm."""
    last: int
    """The last recorded step."""
    place: float
    """The first crossing; 0 for fewer steps than `first`, infinite for more steps than `last`."""
    interval: Interval | None
    """The ends of the 95 % interval, with 0 and infinity as in `place`; None with fewer than two replicates."""

    @property
    def censored(self) -> Censored:
        """Whether the matched steps lie outside the recorded steps."""
        if math.isinf(self.place):
            return "more"
        return "fewer" if self.place == 0 else ""

    @property
    def steps(self) -> float | None:
        """The matched steps; None if they are censored."""
        return None if self.censored else self.place

    @property
    def words(self) -> str:
        """The matched steps in words, as `12.3` or `more than 64`."""
        if self.censored:
            return f"{self.censored} than {self.last if self.censored == 'more' else self.first}"
        return f"{self.place:.3g}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for programs. An end beyond the recorded steps is None."""
        low, high = self.interval or (math.nan, math.nan)
        known = {"low": low if low > 0 else None, "high": high if math.isfinite(high) else None}
        return {
            "steps": self.steps,
            "censored": self.censored,
            **known,
            "first": self.first,
            "last": self.last,
        }


@dataclass(frozen=True)
class MatchedSteps:
    """A cell beside one iterative algorithm on its task."""

    cell: str
    """The key of the cell."""
    label: str
    baseline: str
    loop: int
    """T, the loops or layers of the nets."""
    mean: Match
    """The match of the mean error over queries."""
    at_last: Match
    """The match of the error of the last query."""
    in_theory: int | None
    """The most steps for which the net's layers suffice by a theorem; None if the conditions of no theorem hold."""
    learnt: str
    """The number of runs that have left the plateau, in words."""

    def of(self, query: Query) -> Match:
        """The match of the error of these queries."""
        return self.mean if query == "mean" else self.at_last

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for programs."""
        plain = {
            name: getattr(self, name) for name in ("cell", "label", "baseline", "loop", "in_theory", "learnt")
        }
        return plain | {"mean": self.mean.to_dict(), "last": self.at_last.to_dict()}


MATCHED_COLUMNS: list[Column[MatchedSteps]] = [
    Column.attribute("label", "cell"),
    Column.attribute("baseline", "algorithm"),
    Column.attribute("loop", "T"),
    Column(("steps",), "steps (mean error)", lambda row: row.mean.words),
    Column(("low", "high"), "95 % interval", lambda row: row.mean.interval),
    Column(("steps_last",), "steps (last query)", lambda row: row.at_last.words),
    Column(("low_last", "high_last"), "95 % interval", lambda row: row.at_last.interval),
    Column(("recorded",), "recorded", lambda row: row.mean.last),
    Column.attribute("in_theory", "theory"),
    Column.attribute("learnt"),
]


def matched_steps(results: Results) -> list[MatchedSteps]:
    """Every cell beside every iterative algorithm that ran on its task. Algorithms of a single step have no row."""
    return [
        MatchedSteps(
            cell.key,
            cell.label,
            baseline.solver,
            cell.runs[0].loop,
            match_query(results, cell, baseline, "mean"),
            match_query(results, cell, baseline, "last"),
            steps_in_theory(cell.runs[0], baseline),
            learnt_words(cell),
        )
        for cell in results.answered
        if cell.curves
        for baseline in iterative_baselines(cell)
    ]


def matched_notes(rows: Sequence[MatchedSteps]) -> list[str]:
    """Sentences that explain a table of matched steps."""
    if not rows:
        return []
    notes = [
        "Each interval is that of its row alone, with the noise of training and of the evaluation prompts.",
        "An end of 0 or inf lies outside the recorded steps.",
    ]
    if any(row.in_theory is not None for row in rows):
        notes.append("Steps in theory: the most steps for which the net's layers suffice by a theorem.")
    return notes


def iterative_baselines(cell: CellResult) -> list[TrialResult]:
    """The algorithms on a cell's task whose recorded error changes from step to step."""
    return [baseline for baseline in cell.baselines if _changes(baseline.curve)]


def _changes(curve: TrialCurve) -> bool:
    if len(curve.loops) < 2:
        return False
    errors = curve.by_loop()
    errors = errors[np.isfinite(errors)]
    return len(errors) > 1 and bool(errors.max() > errors.min() * (1 + SAME) + EXACT)


def match_query(results: Results, cell: CellResult, baseline: TrialResult, query: Query) -> Match:
    """The match of the mean error over queries, or of the error of the last query."""
    logs = results.logs("error" if query == "mean" else "error_last")
    return _match(cell, baseline, logs, query)


def match_points(results: Results, cell: CellResult, baseline: TrialResult) -> Iterator[tuple[int, Match]]:
    """The match at every query that both sides have, with the number of pairs seen before the query."""
    own = cell.curves[0].points.tolist()
    for point in (point for point in baseline.curve.points.tolist() if point in own):

        def error(_: CellResult, trial: TrialResult, point: int = point) -> float:
            return (
                float(_errors(trial.curve, "error", point)[trial.curve.row(trial.loop)])
                if trial.curve
                else math.nan
            )

        yield point, _match(cell, baseline, results.table_by_seed(error), point)


def _errors(curve: TrialCurve, grid: Literal["error", "sem"], query: Query | int) -> Array:
    """The values of a grid of a curve at the last query, at the query after some pairs, or their mean, [loops]."""
    values: Array = getattr(curve, grid)
    if query == "mean":
        return curve.by_loop(grid)
    if query == "last":
        return values[:, -1]
    return values[:, curve.points == query].mean(1) if query in curve.points else np.full(len(values), np.nan)


def _match(cell: CellResult, baseline: TrialResult, logs: Array, query: Query | int) -> Match:
    """The match of the errors of some queries. The logarithms of the nets' errors are `logs` [cells, seeds]."""
    steps, errors = baseline.curve.loops.astype(np.float64), _errors(baseline.curve, "error", query)
    overflown = ~np.isfinite(errors)
    course = np.where(overflown, np.inf, np.log(np.maximum(np.where(overflown, 1.0, errors), EXACT)))
    log = mean(logs[cell.index])
    place = first_crossing(steps, course, log)
    compared = contrast_with_value(logs, cell.index, 1.0) if cell.replicated else None
    if compared is None:
        return Match(int(steps[0]), int(steps[-1]), place, None)
    prompts = student(math.inf) * np.hypot(_prompt_noise(cell, query), _relative_noise(baseline.curve, query))
    half = np.hypot(compared.half_width(), np.where(np.isfinite(prompts), prompts, 0.0))
    low, high = (first_crossing(steps, course + sign * half, log) for sign in (-1, 1))
    return Match(int(steps[0]), int(steps[-1]), place, Interval(low, high))


def _prompt_noise(cell: CellResult, query: Query | int) -> float:
    """The standard error over prompts of the logarithm of the nets' error at T. All replicates share the prompts."""
    runs = [run for run in cell.runs if run.curve]
    return mean([float(_relative_noise(run.curve, query)[run.curve.row(run.loop)]) for run in runs])


def _relative_noise(curve: TrialCurve, query: Query | int) -> Array:
    """The standard error over prompts of the logarithm of an error, [loops]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return _errors(curve, "sem", query) / _errors(curve, "error", query)


def first_crossing(steps: Array, course: Array, log: float) -> float:
    """The place at which a course first reaches a value.

    Parameters
    ----------
    steps
        The recorded steps, rising, [steps].
    course
        The logarithm of the algorithm's error after each step, [steps]; infinite where the algorithm overflows.
    log
        The logarithm of the net's error.

    Returns
    -------
    float
        The place on the line between two steps. 0 if the first step lies below `log` already, infinite if no step
        reaches `log`.
    """
    if math.isnan(log):
        return math.nan
    reached = np.flatnonzero(course <= log)
    if not len(reached):
        return math.inf
    place = int(reached[0])
    if place == 0:
        return float(steps[0]) if course[0] == log else 0.0
    above, below = float(course[place - 1]), float(course[place])
    if math.isinf(above):
        return float(steps[place])
    share = (above - log) / (above - below)
    return float(steps[place - 1]) + share * (float(steps[place]) - float(steps[place - 1]))


def steps_in_theory(net: TrialResult, baseline: TrialResult) -> int | None:
    """The most steps of the algorithm for which the layers of the net suffice, by a bound whose conditions hold."""
    solver = {path: value for path, value in baseline.settings.items() if path.startswith("solver.")}
    for bound in LayersForSteps.imitating(str(solver.get("solver.kind", ""))):
        try:
            stated = bound.for_trial(net.evaluated | solver)
            layers = _layers(net)
        except (ValueError, MissingPlugin):
            continue  # a condition of the statement does not hold, or the net has no layers
        return stated.steps_within(layers)
    return None


def _layers(net: TrialResult) -> int:
    """The layers that a net runs until T. Raises ValueError for a net without layers."""
    from loopscale.models.architecture import LoopedArchitecture  # imports torch, which few tables need
    from loopscale.models.base import Model

    model = Model.model_validate(part_of(net.settings, "model."))
    if isinstance(model, LoopedArchitecture):
        around = model.layers_before + getattr(model, "layers_after", 0)
        return around + model.layers_within * net.loop
    if model.depth is None:
        raise ValueError(f"{model.kind} has no layers; choose a transformer")
    return net.loop
