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
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd

from loopscale.analysis.answers.comparisons import EXACT, compare_with_baseline
from loopscale.analysis.learning import NOT_LEARNT, learnt, on_plateau
from loopscale.analysis.results import Array, CellResult, Results, TrialResult, mean, settings_label
from loopscale.analysis.table import Column, Interval, frame
from loopscale.records.decisions import Decision
from loopscale.stats.contrasts import (
    ALPHA,
    Contrast,
    contrast,
    contrast_with_value,
    deciding_replicates,
    why_none,
)
from loopscale.stats.floors import MeanFloor
from loopscale.stats.looks import ClaimLooks, looks_at, looks_at_value
from loopscale.stats.multiplicity import ClaimVerdict, judge_claims
from loopscale.studies.claims import OF_CURVES, VERDICTS, WORDS, CellSide, ClaimSpec, SolverSide, Word
from loopscale.studies.until import family_hash

EQUAL_COST = 1.1
"""Trainings whose FLOPs differ by less than this factor cost the same."""


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
    whole
        True if every run of the cells has a value above 0.
    looks
        The looks of a study with `until: decided`. The last one gives `contrast`.
    """

    first: str
    second: str
    of: str = "error"
    cells: tuple[CellResult, ...] = ()
    ratio: float | None = None
    contrast: Contrast | None = None
    why: str = ""
    notes: tuple[str, ...] = ()
    whole: bool = False
    looks: ClaimLooks | None = None

    @property
    def runs(self) -> list[TrialResult]:
        """The runs of the cells."""
        return [run for cell in self.cells for run in cell.runs]

    @property
    def ratio_in_words(self) -> str:
        """The ratio with its interval, as in `0.9 (0.8 to 1)`."""
        if self.contrast is None:
            return f"{self.ratio:.3g} (no interval: {self.why})"
        _, low, high = self.contrast.ratio()
        return f"{self.ratio:.3g} ({low:.3g} to {high:.3g})"

    @property
    def plateau(self) -> str:
        """The runs on the plateau, in words; empty if all have left the plateau, or if their states are unknown."""
        return on_plateau(self.runs)


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
    decision: Decision | None = None
    """The last decision of a study with `until: decided` on this claim, if its claims and looks are as they were."""

    @property
    def futile(self) -> bool:
        """True if the study has given the claim up, because more replicates will probably not decide it."""
        return self.word == "undecided" and self.decision is not None and self.decision.step == "futile"

    @property
    def text(self) -> str:
        return self.spec.text

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the ratio, without correction for the number of claims.

        With looks, the intervals of all looks cover together, so the interval of one look is wider.
        """
        if self.sides.looks:
            low, high = self.sides.looks.interval()
            return Interval(math.exp(low), math.exp(high))
        return Interval(*self.sides.contrast.ratio()[1:]) if self.sides.contrast else None

    @property
    def more_trials(self) -> int | None:
        """The trainings that would decide an undecided claim."""
        if self.replicates is None or self.sides.contrast is None:
            return None
        return len(self.sides.cells) * (self.replicates - self.sides.contrast.seeds)

    @property
    def learnt_in_words(self) -> str | None:
        """The runs that have learnt, as in `4 of 6`; None if the records do not say."""
        counted = learnt(self.sides.runs)
        return f"{counted.emerged} of {counted.of}" if counted.of else None

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
        remarks = [self.sides.plateau] if self.word == NOT_LEARNT else []
        remarks += self.sides.notes
        if self.word == "undecided" and self.alone != "undecided":
            remarks.append(f"Alone the claim would be decided, but not as one of {self.family} claims")
        if self.futile and self.decision:
            remarks.append(futile_words(self.decision))
        elif self.word == "undecided" and self.sides.contrast:
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
    Column(("learnt",), "learnt", lambda claim: claim.learnt_in_words),
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
    verdicts = judge_claims([data.looks or data.contrast for data in sides], [spec.margin for spec in specs])
    decisions = _last_decisions(results, specs)
    return tuple(
        _judged(spec, data, verdict, len(specs), decisions.get(spec.text))
        for spec, data, verdict in zip(specs, sides, verdicts, strict=True)
    )


def _last_decisions(results: Results, specs: Sequence[ClaimSpec]) -> dict[str, Decision]:
    """The last decision on every claim, by its text, if claims and looks are those of the decision."""
    if not results.decisions:
        return {}
    claims = [spec.model_dump(mode="json") for spec in specs]
    family = family_hash({**results.study, "claims": claims})
    return {decision.text: decision for decision in results.decisions if decision.family == family}


def futile_words(decision: Decision) -> str:
    """Why a claim or law was given up, and what its verdict would cost."""
    chance = f"the chance of a verdict was {decision.chance:.0%} after {decision.runs} replicates"
    if not math.isfinite(decision.needed):
        return f"Futile: {chance}, and the estimate names no number of runs that would decide"
    return f"Futile: {chance}. A verdict would take about {decision.needed:,.0f} more runs"


def _judged(
    spec: ClaimSpec, sides: Sides, verdict: ClaimVerdict, family: int, decision: Decision | None
) -> JudgedClaim:
    word = "not run" if sides.ratio is None else VERDICTS[verdict.verdict]
    if sides.ratio == math.inf:
        word = "does not hold"
    if sides.ratio is not None and sides.plateau:
        word = NOT_LEARNT
    needed = None
    if word == "undecided" and sides.contrast:
        # Holm may allow a wider level. The strictest level holds whatever the other claims show.
        alpha = ALPHA / family
        if sides.looks:
            alpha = float(sides.looks.schedule.alphas(alpha)[-1])
        needed = deciding_replicates(sides.contrast, spec.margin, 1 - alpha)
    if decision and decision.step == "decided":
        word = cast(Word, decision.word)  # a look does not withdraw a verdict
    return JudgedClaim(spec, sides, word, VERDICTS[verdict.alone], family, verdict.p, needed, decision)


def claims_table(claims: Sequence[JudgedClaim]) -> pd.DataFrame:
    """One row for each claim: the verdict, the ratio with its interval, and the replicates that would decide."""
    kinds = {"ratio": float, "low": float, "high": float, "decided by": "Int64"}
    return frame(COLUMNS, claims).astype(kinds)


def claim_notes(claims: Sequence[JudgedClaim]) -> list[str]:
    """What a reader of a table of claims must know, as sentences."""
    if not claims:
        return []
    notes = ["Intervals are 95 % intervals of a claim alone."]
    if schedule := next((claim.sides.looks.schedule for claim in claims if claim.sides.looks), None):
        seeds = ", ".join(map(str, schedule.seeds))
        notes = [
            f"Intervals of a claim alone cover in 95 % of studies at all looks together ({seeds} replicates)."
        ]
    if len(claims) > 1:
        notes.append(f"Verdicts are corrected for {len(claims)} claims.")
    lost = sum(claim.word == "undecided" != claim.alone for claim in claims)
    if lost:
        notes.append(f"Alone {lost} more would be decided.")
    said = Counter(note for claim in claims for note in claim.sides.notes)
    notes += [f"{note} ({count} of {len(claims)} claims)." for note, count in said.items()]
    return notes


def at_equal_flops(results: Results, claim: JudgedClaim) -> Sides | None:
    """The comparison of a claim after equal FLOPs of training, from the histories of the trainings.

    The schedules of the dearer trainings were not complete there, so the comparison is indicative.

    Returns
    -------
    Sides or None
        None if the claim is not one of two cells after all their steps, if the trainings cost the same within
        `EQUAL_COST`, or if the histories do not say.
    """
    sides = claim.spec.sides
    nets = isinstance(sides[1], CellSide) and sides[0].loop is None and sides[1].loop is None
    if (
        not nets
        or claim.spec.basis != "steps"
        or claim.spec.of not in OF_CURVES
        or len(claim.sides.cells) < 2
    ):
        return None
    costs = [mean([run["flops"] for run in cell.runs]) for cell in claim.sides.cells]
    if not max(costs) > EQUAL_COST * min(costs):
        return None
    compared = compare_sides(results, claim.spec.model_copy(update={"basis": "flops"}))
    return compared if compared.ratio is not None else None


def equal_flops_notes(results: Results, claims: Sequence[JudgedClaim]) -> list[str]:
    """The ratios at equal FLOPs of claims whose trainings do not cost the same, as sentences."""
    found = [(claim, sides) for claim in claims if (sides := at_equal_flops(results, claim))]
    if not found:
        return []
    ratios = "; ".join(
        f"{claim.text}: {claim.sides.ratio:.3g} after equal steps, {sides.ratio_in_words} after equal FLOPs"
        for claim, sides in found
    )
    return [
        f"Equal steps are not equal cost. {ratios} (indicative: the dearer training was not complete there)."
    ]


def count_words(claims: Sequence[JudgedClaim]) -> str:
    """The number of claims with each verdict: `holds 2, undecided 3`."""
    counts = Counter(claim.word for claim in claims)
    return ", ".join(f"{word} {counts[word]}" for word in WORDS if counts[word])


def compare_sides(results: Results, spec: ClaimSpec) -> Sides:
    """The comparison that a claim asks for.

    If a claim is of a regret and no floor is known, the errors are compared. The errors are also compared if the
    algorithm is the floor, or if a side is not above the floor, because then regrets have no ratio.
    """
    one, other = spec.sides
    first = _cell(results, one)
    if isinstance(other, SolverSide):
        second = _baseline(first, other) if first else None
        cells = (first,)
    else:
        second = _cell(results, other)
        cells = (first,) if first is second else (first, second)
    answered = [cell for cell in cells if cell and cell.runs]
    if second is None or len(answered) < len(cells):
        return Sides(_label(one), _label(other) if isinstance(other, CellSide) else _solver_label(other))
    pair = _Pair(results, spec, tuple(answered), second)
    if not spec.of.startswith("regret"):
        return pair.sides(spec.of)
    error = spec.of.replace("regret", "error")
    floors = [floor for cell in answered if (floor := results.floor(cell)) and floor.how != "none"]
    if len(floors) < len(answered):
        return pair.sides(error, note="No floor is known, so errors are compared")
    if isinstance(other, SolverSide) and other.settings["kind"] == floors[0].name:
        return pair.sides(
            error, note=f"The algorithm is the {_floor_word(floors[0])}, so errors are compared"
        )
    measures = {floor.measure.replace("_", " ") for floor in floors}
    sides = pair.sides(spec.of, measures.pop() if len(measures) == 1 else "error above the floor")
    if sides.whole:
        return sides
    return pair.sides(error, note=f"A side is not above the {_floor_word(floors[0])}, so errors are compared")


def _floor_word(floor: MeanFloor) -> str:
    word = "floor" if floor.how in ("bayes", "exact") else floor.how
    return f"{word} {floor.name.replace('_', ' ')}"


def _cell(results: Results, side: CellSide) -> CellResult | None:
    """The recorded cell of a side; None if the records have no such cell, or several."""
    cells = [cell for cell in results.cells if side.names(cell.values)]
    return cells[0] if len(cells) == 1 else None


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


def _label(side: CellSide) -> str:
    label = settings_label(side.settings) or "the only cell"
    return f"{label} after {side.loop} loops" if side.loop else label


def _solver_label(side: SolverSide) -> str:
    return str(side.settings["kind"]).replace("_", " ")


@dataclass(frozen=True)
class _Pair:
    """Two sides that have answers."""

    results: Results
    spec: ClaimSpec
    cells: tuple[CellResult, ...]
    second: CellResult | TrialResult

    def sides(self, of: str, words: str = "", note: str = "") -> Sides:
        """The comparison by one measure; `words` is its name in texts."""
        words = words or of.replace("_", " ")
        if isinstance(self.second, TrialResult):
            sides = self._with_solver(of, self.second)
        elif self.second is self.cells[0]:
            sides = self._with_itself(of)
        else:
            sides = self._with_cell(of)
        return replace(sides, of=words, notes=(*sides.notes, *([note] if note else [])))

    def _with_cell(self, of: str) -> Sides:
        """Two cells, seed by seed."""
        first, second = self.cells
        one, other = self.spec.sides
        assert isinstance(other, CellSide)
        notes = ()
        if self.spec.basis == "steps" or self._trained_for_cost:
            logs = self.results.logs(of).copy()
            for side, cell in ((one, first), (other, second)):
                if side.loop:
                    logs[cell.index] = _logs_after(self.results, cell, side.loop, of)[cell.index]
        else:
            logs = self._logs_at_cost(of)
            notes = (
                f"Indicative: validation errors at equal {self.spec.basis}, in the middle of a schedule",
            )
        rows = logs[first.index], logs[second.index]
        if schedule := self.results.look_schedule:
            compared = looks_at(logs, first.index, second.index, schedule)
        else:
            compared = contrast(logs, first.index, second.index)
        return self._sides((_label(one), _label(other)), compared, rows, notes)

    @property
    def _why_unknown(self) -> str:
        if schedule := self.results.look_schedule:
            return f"the first look is at {schedule.seeds[0]} replicates"
        return "the noise is not known"

    @property
    def _trained_for_cost(self) -> bool:
        """True if all nets were trained for the same cost in the unit of the basis, with complete schedules."""
        path = f"training.{self.spec.basis}"
        costs = {run.settings.get(path) for cell in self.cells for run in cell.runs}
        return len(costs) == 1 and None not in costs

    def _logs_at_cost(self, of: str) -> Array:
        """The logarithms of a measure at the largest cost that all runs of both cells have reached, [cells, seeds]."""
        from loopscale.analysis.answers.equal_cost import (  # imports torch, which most claims do not need
            common_budget,
            error_at_cost,
            study_prices,
        )

        basis, priced = self.spec.basis, study_prices(self.results)
        budget = common_budget((run for cell in self.cells for run in cell.runs), priced, basis)
        budgets = {basis: budget}

        def value(_: CellResult, trial: TrialResult) -> float:
            if not common_budget([trial], priced, basis) >= budget:
                return math.nan
            return error_at_cost(trial, **budgets, of=of, price=priced[trial.trial])  # pyright: ignore[reportArgumentType]

        return self.results.table_by_seed(value)

    def _with_solver(self, of: str, baseline: TrialResult) -> Sides:
        """A cell and an algorithm on the same prompts, after equally many steps unless the claim says otherwise.

        The algorithm has no seed, so all noise is that of nets.
        """
        cell, (one, other) = self.cells[0], self.spec.sides
        assert isinstance(other, SolverSide)
        steps = other.step or one.loop or cell.runs[0].loop
        labels = _label(one), f"{baseline.solver} after {steps} steps"
        value = _value_after(baseline, of, steps)
        logs = _logs_after(self.results, cell, one.loop, of) if one.loop else self.results.logs(of)
        if not (math.isfinite(value) and value > EXACT):
            return Sides(*labels, cells=self.cells)
        compared = self._compare_with_value(logs, cell.index, value)
        return self._sides(labels, compared, (logs[cell.index] - math.log(value),))

    def _compare_with_value(self, logs: Array, row: int, value: float) -> Contrast | ClaimLooks | None:
        if schedule := self.results.look_schedule:
            return looks_at_value(logs, row, value, schedule)
        return contrast_with_value(logs, row, value)

    def _with_itself(self, of: str) -> Sides:
        """One cell after two numbers of loops, run by run. The noise is that of all cells after as many times T loops.

        If a run overflows, the ratio is infinite and the claim does not hold.
        """
        cell, (one, other) = self.cells[0], self.spec.sides
        assert isinstance(other, CellSide)
        trained = cell.runs[0].loop
        shares = [(side.loop or trained) / trained for side in (one, other)]

        def change(_: CellResult, trial: TrialResult) -> float:
            if "training.loops" not in trial.settings or not trial.curve:
                return math.nan
            after, before = (_value_after(trial, of, max(1, round(share * trial.loop))) for share in shares)
            return math.inf if math.isnan(after) else after / before

        logs = self.results.table_by_seed(change)
        labels = _label(one), _label(other)
        if np.isposinf(logs[cell.index]).any():
            return Sides(*labels, cells=self.cells, ratio=math.inf, why="a net overflows", whole=True)
        return self._sides(labels, self._compare_with_value(logs, cell.index, 1.0), (logs[cell.index],))

    def _sides(
        self,
        labels: tuple[str, str],
        compared: Contrast | ClaimLooks | None,
        rows: tuple[Array, ...],
        notes: tuple[str, ...] = (),
    ) -> Sides:
        """The data of a claim from the rows of both sides, or from one row relative to a value."""
        runs = [sum(run.seed is not None for run in cell.runs) for cell in self.cells]
        whole = all(np.isfinite(row).sum() == count for row, count in zip(rows, runs, strict=True))
        sides = Sides(*labels, cells=self.cells, notes=notes, whole=whole)
        if isinstance(compared, ClaimLooks):
            present = compared.contrasts[-1]
            return replace(sides, ratio=present.ratio()[0], contrast=present, looks=compared)
        if compared:
            return replace(sides, ratio=compared.ratio()[0], contrast=compared)
        means = [mean(row[np.isfinite(row)]) for row in rows]
        difference = means[0] - (means[1] if len(means) > 1 else 0.0)
        ratio = None if math.isnan(difference) else math.exp(difference)
        return replace(sides, ratio=ratio, why=why_none(*rows) or self._why_unknown)


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
