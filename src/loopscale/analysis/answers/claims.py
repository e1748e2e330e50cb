"""The verdicts of a study's claims: one family, corrected for the number of claims.

A claim says that a cell has less regret than another cell, or than a classical algorithm. The claim *holds* if the
whole interval of the ratio lies below 1, and *does not hold* if the interval lies above 1. Both sides are *level* if
the interval lies within the margin. Otherwise the claim is *undecided*. These intervals have the level of the family.
Beside the verdict stands the 95 % interval of the claim alone.

A claim is *not learnt* if a run of its cells has not left the plateau: such runs say which seeds learn, and not which
net is better.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from loopscale.analysis.answers.comparisons import compare_with_baseline
from loopscale.analysis.results import Array, CellResult, Results, TrialResult, mean, settings_label
from loopscale.analysis.table import Column, Interval, frame
from loopscale.stats.contrasts import (
    ALPHA,
    Contrast,
    Judgement,
    contrast,
    contrast_with_value,
    deciding_replicates,
    why_none,
)
from loopscale.stats.multiplicity import ClaimVerdict, judge_claims
from loopscale.studies.claims import CellSide, ClaimSpec, SolverSide

Word = Literal["holds", "does not hold", "level", "undecided", "not learnt", "not run"]
WORDS: tuple[Word, ...] = get_args(Word)
VERDICTS: dict[Judgement, Word] = {
    "less": "holds",
    "more": "does not hold",
    "level": "level",
    "undecided": "undecided",
}


@dataclass(frozen=True)
class Sides:
    """The data of one claim.

    Attributes
    ----------
    first, second
        The names of the two sides.
    of
        The measure in words.
    cells
        The cells whose runs are compared.
    ratio
        The first value over the second (geometric means over replicates); None if a side has no answer.
    contrast
        None if there is no interval.
    why
        The reason if there is no interval.
    notes
        What a reader must know about the comparison: another measure than the claim's, or an indicative basis.
    """

    first: str
    second: str
    of: str = "error"
    cells: tuple[CellResult, ...] = ()
    ratio: float | None = None
    contrast: Contrast | None = None
    why: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class JudgedClaim:
    """A claim of the study's file with its verdict.

    Attributes
    ----------
    word
        The verdict, corrected for the number of claims.
    alone
        The verdict of the claim alone, without correction.
    family
        The number of claims that are judged together.
    replicates
        The replicates of each cell that would decide an undecided claim, if the ratio stays the same. None above
        1,000, without an interval, and for every other verdict.
    """

    spec: ClaimSpec
    sides: Sides
    word: Word
    alone: Word
    family: int
    p: float
    replicates: int | None = None

    @property
    def text(self) -> str:
        return self.spec.text

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the ratio, without correction."""
        return Interval(*self.sides.contrast.ratio()[1:]) if self.sides.contrast else None

    @property
    def more_trials(self) -> int | None:
        """The trainings that would decide an undecided claim."""
        if self.replicates is None or self.sides.contrast is None:
            return None
        return len(self.sides.cells) * (self.replicates - self.sides.contrast.seeds)

    @property
    def ratio_in_words(self) -> str:
        """The ratio with its interval, in words."""
        ratio, interval = self.sides.ratio, self.interval
        if ratio is None:
            return "no ratio: too little has finished"
        if interval is None:
            return f"{ratio:.3g} (no interval: {self.sides.why})"
        return f"{ratio:.3g} (95 % interval {interval.low:.3g} to {interval.high:.3g})"

    @property
    def sentence(self) -> str:
        """The claim with its verdict, the ratio, and what would decide the claim."""
        if self.sides.ratio is None:
            return f"{self.text}: {self.word}."
        first, second = self.sides.first, self.sides.second
        verdict = f"{self.text}: {self.word}"
        ratio = f"The {self.sides.of} of {first} is {self.ratio_in_words} times that of {second}"
        return " ".join(f"{part}." for part in (verdict, ratio, *self.remarks))

    @property
    def remarks(self) -> list[str]:
        """Sentences beside the verdict, without their full stops."""
        remarks = list(self.sides.notes)
        if self.word == "undecided" and self.alone != "undecided":
            remarks.append(f"Alone the claim would be decided, but not as one of {self.family} claims")
        if self.word == "undecided" and self.sides.contrast:
            count = f"About {self.replicates:,}" if self.replicates else "More than 1,000"
            remarks.append(f"{count} replicates would decide the claim")
        return remarks

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for programs."""
        return {name: value for column in COLUMNS for name, value in _plain(column, self)} | {
            "alone": self.alone,
            "p": self.p,
            "remarks": self.remarks,
        }


COLUMNS: list[Column[JudgedClaim]] = [
    Column(("claim",), "claim", lambda claim: claim.text),
    Column(("verdict",), "verdict", lambda claim: claim.word),
    Column(("ratio",), "ratio", lambda claim: claim.sides.ratio),
    Column(("low", "high"), "95 % interval", lambda claim: claim.interval),
    Column(("measure",), "measure", lambda claim: claim.sides.of),
    Column(("of",), "of", lambda claim: claim.sides.first),
    Column(("over",), "over", lambda claim: claim.sides.second),
    Column(("decided by",), "decided by", lambda claim: claim.replicates),
]


def _plain(column: Column[JudgedClaim], claim: JudgedClaim) -> list[tuple[str, Any]]:
    value = column.value(claim)
    values = (value,) if len(column.names) == 1 else value or (None,) * len(column.names)
    return list(zip(column.names, values, strict=True))


def judged_claims(results: Results, specs: Sequence[ClaimSpec] | None = None) -> tuple[JudgedClaim, ...]:
    """The claims of a study with their verdicts, as one family.

    Parameters
    ----------
    specs
        By default the claims of the study.
    """
    specs = results.claim_specs if specs is None else specs
    sides = [compare_sides(results, spec) for spec in specs]
    verdicts = judge_claims([data.contrast for data in sides], [spec.margin for spec in specs])
    return tuple(map(_judged, specs, sides, verdicts, [len(specs)] * len(specs)))


def _judged(spec: ClaimSpec, sides: Sides, verdict: ClaimVerdict, family: int) -> JudgedClaim:
    word = "not run" if sides.ratio is None else VERDICTS[verdict.verdict]
    if sides.ratio == math.inf:
        word = "does not hold"
    needed = None
    if word == "undecided" and sides.contrast:
        # Holm may allow a wider level. The strictest level holds whatever the other claims show.
        needed = deciding_replicates(sides.contrast, spec.margin, 1 - ALPHA / family)
    return JudgedClaim(spec, sides, word, VERDICTS[verdict.alone], family, verdict.p, needed)


def claims_table(claims: Sequence[JudgedClaim]) -> pd.DataFrame:
    """One row for each claim: the verdict, the ratio with its interval, and the replicates that would decide."""
    kinds = {"ratio": float, "low": float, "high": float, "decided by": "Int64"}
    return frame(COLUMNS, claims).astype(kinds)


def claim_notes(claims: Sequence[JudgedClaim]) -> list[str]:
    """What a reader of a table of claims must know, as sentences."""
    if not claims:
        return []
    notes = ["Intervals are 95 % intervals of a claim alone."]
    if len(claims) > 1:
        notes.append(f"Verdicts are corrected for {len(claims)} claims.")
    lost = sum(claim.word == "undecided" != claim.alone for claim in claims)
    if lost:
        notes.append(f"Alone {lost} more would be decided.")
    said = Counter(note for claim in claims for note in claim.sides.notes)
    notes += [f"{note} ({count} of {len(claims)} claims)." for note, count in said.items()]
    return notes


def count_words(claims: Sequence[JudgedClaim]) -> str:
    """The number of claims with each verdict: `holds 2, undecided 3`."""
    counts = Counter(claim.word for claim in claims)
    return ", ".join(f"{word} {counts[word]}" for word in WORDS if counts[word])


def compare_sides(results: Results, spec: ClaimSpec) -> Sides:
    """The comparison that a claim asks for."""
    one, other = spec.sides
    first = _cell(results, one)
    if isinstance(other, SolverSide):
        return _with_solver(results, spec, one, first, other)
    second = _cell(results, other)
    labels = _label(one), _label(other)
    if first is None or second is None or not (first.runs and second.runs):
        return Sides(*labels)
    if first is second:
        return _with_itself(results, spec, labels, first)
    of, words, notes = _measure(spec, (first, second))
    logs = results.logs(of).copy()
    for side, cell in ((one, first), (other, second)):
        if side.loop:
            logs[cell.index] = _logs_after(results, cell, side.loop, of)[cell.index]
    rows = logs[first.index], logs[second.index]
    compared = contrast(logs, first.index, second.index)
    return _sides(labels, words, (first, second), compared, rows, notes)


def _cell(results: Results, side: CellSide) -> CellResult | None:
    """The recorded cell of a side; None if the records have no such cell, or several."""
    cells = [cell for cell in results.cells if side.names(cell.values)]
    return cells[0] if len(cells) == 1 else None


def _label(side: CellSide) -> str:
    label = settings_label(side.settings) or "the only cell"
    return f"{label} after {side.loop} loops" if side.loop else label


def _measure(spec: ClaimSpec, cells: Sequence[CellResult]) -> tuple[str, str, tuple[str, ...]]:
    """The measure that is compared, its name in texts, and a note if it is not the measure of the claim."""
    of = spec.of.replace("regret", "error")
    return of, of.replace("_", " "), ()


def _with_solver(
    results: Results, spec: ClaimSpec, one: CellSide, cell: CellResult | None, other: SolverSide
) -> Sides:
    """A cell and an algorithm on the same prompts, after equally many steps unless the claim says otherwise.

    The algorithm has no seed, so all noise is that of nets.
    """
    name = str(other.settings["kind"]).replace("_", " ")
    baseline = _baseline(cell, other) if cell else None
    if cell is None or not cell.runs or baseline is None:
        return Sides(_label(one), name)
    steps = other.step or one.loop or cell.runs[0].loop
    labels = _label(one), f"{baseline.solver} after {steps} steps"
    of, words, notes = _measure(spec, (cell,))
    value = _value_after(baseline, of, steps)
    logs = _logs_after(results, cell, one.loop, of) if one.loop else results.logs(of)
    if not (math.isfinite(value) and value > 0):
        return Sides(*labels, words)
    compared = contrast_with_value(logs, cell.index, value)
    return _sides(labels, words, (cell,), compared, (logs[cell.index] - math.log(value),), notes)


def _baseline(cell: CellResult, side: SolverSide) -> TrialResult | None:
    """The recorded run of an algorithm on the task of a cell."""
    for baseline in cell.baselines:
        recorded = {
            path.removeprefix("solver."): value
            for path, value in baseline.settings.items()
            if path.startswith("solver.")
        }
        if side.names({"kind": baseline.solver.replace(" ", "_")} | recorded):
            return baseline
    return None


def _with_itself(results: Results, spec: ClaimSpec, labels: tuple[str, str], cell: CellResult) -> Sides:
    """One cell after two numbers of loops, run by run. The noise is that of all cells after as many times T loops.

    If a run overflows, the ratio is infinite and the claim does not hold.
    """
    of, words, notes = _measure(spec, (cell,))
    trained = cell.runs[0].loop
    shares = [(side.loop or trained) / trained for side in spec.sides if isinstance(side, CellSide)]

    def change(other: CellResult, trial: TrialResult) -> float:
        if "training.loops" not in trial.settings or not trial.curve:
            return math.nan
        after, before = (_value_after(trial, of, max(1, round(share * trial.loop))) for share in shares)
        return math.inf if math.isnan(after) else after / before

    logs = results.table_by_seed(change)
    if np.isposinf(logs[cell.index]).any():
        return Sides(*labels, words, (cell,), math.inf, why="a net overflows", notes=notes)
    compared = contrast_with_value(logs, cell.index, 1.0)
    return _sides(labels, words, (cell,), compared, (logs[cell.index],), notes)


def _sides(
    labels: tuple[str, str],
    of: str,
    cells: tuple[CellResult, ...],
    compared: Contrast | None,
    rows: tuple[Array, ...],
    notes: tuple[str, ...],
) -> Sides:
    """The data of a claim from the rows of both sides, or from one row relative to a value."""
    if compared:
        return Sides(*labels, of, cells, compared.ratio()[0], compared, notes=notes)
    means = [mean(row[np.isfinite(row)]) for row in rows]
    difference = means[0] - (means[1] if len(means) > 1 else 0.0)
    ratio = None if math.isnan(difference) else math.exp(difference)
    return Sides(*labels, of, cells, ratio, why=why_none(*rows) or "the noise is not known", notes=notes)


def _logs_after(results: Results, cell: CellResult, loop: int, of: str) -> Array:
    """The logarithms of a measure after a number of loops, [cells, seeds].

    Up to the T of `cell`, all cells count that were trained for at least so many loops. Beyond T, all cells count that
    were evaluated so far.
    """
    beyond = loop > cell.runs[0].loop

    def value(other: CellResult, trial: TrialResult) -> float:
        reach = trial.curve.last_loop if beyond else trial.loop
        if other is not cell and (not other.replicated or reach < loop):
            return math.nan
        return _value_after(trial, of, loop)

    return results.table_by_seed(value)


def _value_after(trial: TrialResult, of: str, loop: int) -> float:
    """A measure of a net or an algorithm after a number of steps, or after its last step if that is earlier."""
    if not trial.curve:
        return trial[of]
    values = getattr(trial.curve, of.removesuffix("_last"))[trial.curve.row(loop)]
    return float(values[-1]) if of.endswith("_last") else mean(values)


def ratios_to_solver(results: Results, solver: str) -> pd.DataFrame:
    """The ratio of every cell's error to the error of a classical algorithm, after each step up to T.

    The columns are cell, step, ratio, low, high and verdict: better, worse, undecided or not run. Each verdict is that
    of its own interval.
    """
    words = {"less": "better", "more": "worse", "no answer": "not run"}
    name = solver.replace("_", " ")
    rows = []
    for cell in results.answered:
        baseline = next((baseline for baseline in cell.baselines if baseline.solver == name), None)
        for step in range(1, cell.runs[0].loop + 1):
            if baseline is None:
                rows.append((cell.label, step, None, None, None, "not run"))
                continue
            compared = compare_with_baseline(results, cell, baseline, step)
            verdict = words.get(compared.word, "undecided")
            rows.append((cell.label, step, compared.ratio, compared.low, compared.high, verdict))
    return pd.DataFrame(rows, columns=["cell", "step", "ratio", "low", "high", "verdict"])
