"""The verdicts of a study's claims: one family, corrected for the number of claims.

A claim says that a cell has less regret than another cell, or than a classical algorithm. The claim *holds* if the
whole interval of the ratio lies below 1, and *does not hold* if the interval lies above 1. Both sides are *level* if
the interval lies within the margin. Otherwise the claim is *undecided*. These intervals have the level of the family.
Beside the verdict stands the 95 % interval of the claim alone.

Only runs that have left the plateau are compared. A verdict that leaves out other runs holds *among learnt runs*, and
names how many runs of each side have learnt. If learnt runs decide nothing, the counts may show that one side *learns
more often*. A claim is *not learnt* if too few runs have learnt for a ratio, and the counts decide nothing either.

A claim of `emerged_at` asks which net leaves the plateau first. Runs on the plateau belong to its answer, if only one
side has them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pandas as pd

from loopscale.analysis.answers.comparisons import family_notes
from loopscale.analysis.recorded.learning import NOT_LEARNT, learnt
from loopscale.analysis.recorded.looks import decisions_of, length_words
from loopscale.analysis.recorded.results import CellResult, Results, mean
from loopscale.analysis.recorded.runs import RecordedRuns
from loopscale.analysis.table import Column, Interval, frame
from loopscale.core.config import leaves
from loopscale.questions.claim import CLAIM_VERDICTS, CellSide, ClaimSpec, ClaimVerdict, SolverSide
from loopscale.questions.claim_evidence import Sides, compare_sides
from loopscale.questions.claim_verdict import ClaimJudgement, judge
from loopscale.questions.measures import CURVE_MEASURES
from loopscale.questions.until import family_hash
from loopscale.records.decisions import Decision
from loopscale.stats.learning import MeanFloor

OF_RATIOS: tuple[ClaimVerdict, ...] = ("holds", "does not hold", "level", "undecided")
"""The verdicts on the ratio of both sides."""
EQUAL_COST = 1.1
"""Trainings whose FLOPs differ by less than this factor cost the same."""


@dataclass(frozen=True)
class JudgedClaim:
    """A claim of the study's file with its verdict."""

    spec: ClaimSpec
    sides: Sides[CellResult]
    verdict: ClaimVerdict
    """The verdict, corrected for the number of claims."""
    alone: ClaimVerdict
    """The verdict of the claim alone, without correction."""
    family: int
    """The number of claims that are judged together."""
    p: float
    replicates: int | None = None
    """The replicates of each cell that would decide an undecided claim, if the ratio stays the same. None above 1,000,
    without an interval, and for every other verdict."""
    decision: Decision | None = None
    """The last decision of a study with `until: decided` on the answering runs of this claim, if its claims and looks
    are as they were."""

    @property
    def futile(self) -> bool:
        """True if the study has given the claim up, because more replicates will probably not decide it."""
        return self.verdict == "undecided" and self.decision is not None and self.decision.step == "futile"

    @property
    def text(self) -> str:
        return self.spec.text

    @property
    def statement(self) -> str:
        """The sentence that has the verdict, with the measure that was compared."""
        return self.spec.statement_on(self.sides.first, self.sides.second, self.sides.of)

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the ratio, without correction for the number of claims, see `Sides.interval`."""
        return Interval(*self.sides.interval) if self.sides.interval else None

    @property
    def movement(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """The smallest and the largest value of the setting that pairs the cells, each with the ratio there.

        None unless the claim pairs the cells over one setting, with numbers as values.
        """
        if not self.sides.ratios or len(self.spec.over) != 1:
            return None
        values = [dict(leaves(pair[0].values)).get(self.spec.over[0]) for pair in self.sides.pairs]
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return None
        ordered = sorted(zip(cast(list[float], values), self.sides.ratios, strict=True))
        return ordered[0], ordered[-1]

    @property
    def more_trials(self) -> int | None:
        """The trainings that would decide an undecided claim."""
        if self.replicates is None or self.sides.contrast is None:
            return None
        trained = self.sides.replicates if self.sides.among_learnt else self.sides.contrast.seeds
        return len(self.sides.cells) * (self.replicates - trained)

    @property
    def verdict_in_words(self) -> str:
        """The verdict in words, as in `holds among learnt runs`."""
        among = self.sides.among_learnt and self.verdict in OF_RATIOS
        return f"{self.verdict} among learnt runs" if among else self.verdict

    @property
    def learnt_in_words(self) -> str | None:
        """The runs that have learnt, as in `6 of 6`, or as in `2 of 3 and 3 of 3` if some have not.

        None if the records do not say.
        """
        counted = learnt(self.sides.runs)
        if not counted.of:
            return None
        return f"{counted.of} of {counted.of}" if counted.all else self.sides.learnt_words

    @property
    def ratio_in_words(self) -> str:
        """The ratio with its interval, in words."""
        ratio, interval = self.sides.ratio, self.interval
        if ratio is None:
            return f"no ratio: {self._why_no_ratio}"
        if interval is None:
            return f"{ratio:.3g} (no interval: {self.sides.why})"
        return f"{ratio:.3g} (95 % interval {interval.low:.3g} to {interval.high:.3g})"

    @property
    def _why_no_ratio(self) -> str:
        if self.sides.no_logarithm:
            return "a run has a value of 0 or below, which has no logarithm"
        return "too few runs have learnt" if self.sides.blocked else "too little has finished"

    @property
    def sentence(self) -> str:
        """The claim with its verdict, the ratio, and what would decide the claim."""
        verdict = f"{self.statement}: {self.verdict_in_words} (“{self.text}”)"
        if self.sides.no_logarithm:
            return " ".join(f"{part}." for part in (verdict, *self.remarks))
        if self.sides.ratio is None:
            return f"{verdict}."
        ratio = f"The ratio is {self.ratio_in_words}"
        return " ".join(f"{part}." for part in (verdict, ratio, *self.remarks))

    @property
    def remarks(self) -> list[str]:
        """Sentences beside the verdict, without their full stops."""
        remarks = list[str]()
        if self.sides.among_learnt or self.verdict == NOT_LEARNT:
            remarks.append(f"Runs that have learnt: {self.sides.learnt_words}")
        if self.sides.blocked:
            remarks.append("Too few runs have learnt at the same seeds to compare them")
        remarks += self.sides.notes
        if self.sides.ratios:
            low, high = min(self.sides.ratios), max(self.sides.ratios)
            remarks.append(f"The ratios of single pairs lie between {low:.3g} and {high:.3g}")
        if self.movement:
            (low, first), (high, last) = self.movement
            axis = self.spec.over[0]
            remarks.append(
                f"The ratio moves from {first:.3g} at {axis}={low:g} to {last:.3g} at {axis}={high:g}"
            )
        if self.verdict == "undecided" and self.alone != "undecided":
            remarks.append(f"Alone the claim would be decided, but not as one of {self.family} claims")
        if self.futile and self.decision:
            remarks.append(self.decision.why_futile)
        elif self.verdict == "undecided" and self.sides.contrast:
            count = f"About {self.replicates:,}" if self.replicates else "More than 1,000"
            remarks.append(f"{count} replicates would decide the claim")
        return remarks

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for programs."""
        return {name: value for column in CLAIM_COLUMNS for name, value in _plain(column, self)} | {
            "verdict": self.verdict,
            "among_learnt_runs": self.verdict_in_words != self.verdict,
            "alone": self.alone,
            "p": self.p,
            "remarks": self.remarks,
        }


CLAIM_COLUMNS: list[Column[JudgedClaim]] = [
    Column(("claim",), "in the words of its author", lambda claim: claim.text, leaves=True),
    Column(("statement",), "statement", lambda claim: claim.statement),
    Column(("verdict",), "verdict", lambda claim: claim.verdict_in_words),
    Column(("ratio",), "ratio", lambda claim: claim.sides.ratio),
    Column(("low", "high"), "95 % interval", lambda claim: claim.interval),
    Column(("learnt",), "learnt", lambda claim: claim.learnt_in_words),
    Column(("measure",), "measure", lambda claim: claim.sides.of),
    Column(("of",), "first side", lambda claim: claim.sides.first),
    Column(("over",), "second side", lambda claim: claim.sides.second),
    Column(("decided by",), "replicates to decide", lambda claim: claim.replicates, leaves=True),
]

READ_COLUMNS = [
    next(column for column in CLAIM_COLUMNS if column.names[0] == name)
    for name in ("statement", "verdict", "ratio", "low", "learnt", "decided by", "claim")
]
"""The columns for people. The statement has the verdict, and the claim is its author's text."""


def _plain(column: Column[JudgedClaim], claim: JudgedClaim) -> list[tuple[str, Any]]:
    value = column.value(claim)
    values = (value,) if len(column.names) == 1 else value or (None,) * len(column.names)
    return list(zip(column.names, values, strict=True))


def sides_in_words(results: Results, spec: ClaimSpec) -> Sides[CellResult]:
    """The evidence of a claim. `of` is the measure in words, and the notes say why errors are compared."""
    sides = compare_sides(RecordedRuns(results), spec)
    if not sides.pairs:
        return sides
    notes = list(sides.notes)
    if length := length_words(sides.cells):
        notes.insert(len(notes) - bool(sides.ratios), length)
    words, measure = sides.of.replace("_", " "), CURVE_MEASURES.get(spec.of)
    if measure and measure.grid == "regret":
        floors = [floor for cell in sides.cells if (floor := results.floor(cell)) and floor.how != "none"]
        if sides.of != spec.of:
            notes.append(f"{_why_no_regret(spec, floors, len(sides.cells))}, so errors are compared")
        else:
            measures = {floor.measure.replace("_", " ") for floor in floors}
            words = measures.pop() if len(measures) == 1 else "error above the floor"
    return replace(sides, of=words, notes=tuple(notes))


def _why_no_regret(spec: ClaimSpec, floors: list[MeanFloor], cells: int) -> str:
    """Why the regrets of a claim have no ratio."""
    other = spec.sides[1]
    if len(floors) < cells:
        return "No floor is known"
    if isinstance(other, SolverSide) and other.settings["kind"] in {floor.name for floor in floors}:
        return f"The algorithm is the {_floor_word(floors[0])}"
    return f"A side is not above the {_floor_word(floors[0])}"


def _floor_word(floor: MeanFloor) -> str:
    word = "floor" if floor.how in ("bayes", "exact") else floor.how
    return f"{word} {floor.name.replace('_', ' ')}"


def judged_claims(results: Results, specs: Sequence[ClaimSpec] | None = None) -> tuple[JudgedClaim, ...]:
    """The claims of a study with their verdicts, as one family.

    Parameters
    ----------
    specs
        By default the claims of the study.
    """
    specs = results.claim_specs if specs is None else specs
    sides = [sides_in_words(results, spec) for spec in specs]
    decisions = _last_decisions(results, specs)
    return tuple(
        _judged(spec, data, verdict, len(specs), decisions.get(spec.text))
        for spec, data, verdict in zip(specs, sides, judge(specs, sides), strict=True)
    )


def _last_decisions(results: Results, specs: Sequence[ClaimSpec]) -> dict[str, Decision]:
    """The last decision on every claim, by its text, if claims and looks are those of the decision."""
    if not (decisions := decisions_of(results)):
        return {}
    claims = [spec.model_dump(mode="json") for spec in specs]
    family = family_hash({**results.study, "claims": claims})
    own = [each for each in decisions if each.family == family and each.kind == "claim"]
    return {decision.text: decision for decision in own}


def _judged(
    spec: ClaimSpec,
    sides: Sides[CellResult],
    judgement: ClaimJudgement,
    family: int,
    decision: Decision | None,
) -> JudgedClaim:
    verdict, needed = judgement.verdict, judgement.replicates
    if decision and decision.steps_factor != max((run.steps_factor for run in sides.runs), default=1):
        decision = None  # of shorter trainings
    if decision and decision.step == "decided":
        verdict, needed = cast(ClaimVerdict, decision.verdict), None  # a look does not withdraw a verdict
    return JudgedClaim(spec, sides, verdict, judgement.alone, family, judgement.p, needed, decision)


def claims_table(claims: Sequence[JudgedClaim]) -> pd.DataFrame:
    """One row for each claim: the verdict, the ratio with its interval, and the replicates that would decide."""
    kinds = {"ratio": float, "low": float, "high": float, "decided by": "Int64"}
    return frame(CLAIM_COLUMNS, claims).astype(kinds)


def claim_notes(claims: Sequence[JudgedClaim]) -> list[str]:
    """Sentences that explain a table of claims."""
    if not claims:
        return []
    notes = ["Intervals are 95 % intervals of a claim alone."]
    if schedule := next((claim.sides.looks.schedule for claim in claims if claim.sides.looks), None):
        seeds = ", ".join(map(str, schedule.seeds))
        notes = [
            "Intervals are repeated 95 % confidence intervals of a claim alone: they hold at all looks together"
            f" ({seeds} replicates)."
        ]
    lost = sum(claim.verdict == "undecided" != claim.alone for claim in claims)
    notes += family_notes(len(claims), "claims", lost)
    said = Counter(note for claim in claims for note in claim.sides.notes)
    notes += [f"{note} ({count} of {len(claims)} claims)." for note, count in said.items()]
    return notes


def at_equal_flops(results: Results, claim: JudgedClaim) -> Sides[CellResult] | None:
    """The comparison of a claim after equal FLOPs of training, from the histories of the trainings.

    The schedules of the dearer trainings were not complete there, so the comparison is indicative.

    Returns
    -------
    Sides or None
        None for a claim about an algorithm, about a number of loops, or at equal cost. None if the trainings cost the
        same within `EQUAL_COST`. None if the histories are too short.
    """
    sides = claim.spec.sides
    nets = isinstance(sides[1], CellSide) and sides[0].loop is None and sides[1].loop is None
    if (
        not nets
        or claim.spec.basis != "steps"
        or claim.spec.of not in CURVE_MEASURES
        or len(claim.sides.cells) < 2
    ):
        return None
    costs = [[mean([run["flops"] for run in cell.runs]) for cell in pair] for pair in claim.sides.pairs]
    if not any(max(of_pair) > EQUAL_COST * min(of_pair) for of_pair in costs):
        return None
    compared = sides_in_words(results, claim.spec.model_copy(update={"basis": "flops"}))
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
    counts = Counter(claim.verdict for claim in claims)
    return ", ".join(f"{word} {counts[word]}" for word in CLAIM_VERDICTS if counts[word])
