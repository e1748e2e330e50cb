"""The two sides of a claim: their cells or algorithms, their runs, and the contrast between them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from loopscale.analysis.answers.comparisons import EXACT
from loopscale.analysis.learning import learnt
from loopscale.analysis.looks import length_words, schedule_of
from loopscale.analysis.milestones import passages
from loopscale.analysis.results import Array, CellResult, Results, TrialResult, mean
from loopscale.stats.contrasts import (
    Contrast,
    contrast,
    contrast_with_value,
    why_none,
)
from loopscale.stats.learning import MeanFloor
from loopscale.stats.learning_chances import LearningLooks, looks_at_learning
from loopscale.stats.looks import ClaimLooks, Mask, looks_at, looks_at_value
from loopscale.stats.milestones import Milestone
from loopscale.studies.claims import BASES, OF_CURVES, CellSide, ClaimSpec, SolverSide

RatioIs = Literal["known", "at most", "at least", "unknown"]
"""A run that never passed a milestone has only a lower bound of its time. The ratio is then bounded from one side, or
from none if both sides have such runs."""


@dataclass(frozen=True)
class Sides:
    """The data of one claim."""

    first: str
    """The name of the first side."""
    second: str
    """The name of the second side."""
    of: str = "error"
    """The measure in words."""
    pairs: tuple[tuple[CellResult, ...], ...] = ()
    """The cells of both sides, pair by pair. A pair has one cell beside an algorithm, or beside the same cell."""
    ratio: float | None = None
    """The first value over the second (geometric means over replicates); None if a side has no answer."""
    contrast: Contrast | None = None
    """The contrast of the two sides; None if there is no interval."""
    why: str = ""
    """The reason if there is no interval."""
    spread: tuple[float, float] | None = None
    """The smallest and the largest ratio of the pairs; None for a single pair."""
    notes: tuple[str, ...] = ()
    """Facts that a reader of the comparison needs: a measure other than the claim's, or an indicative basis."""
    whole: bool = False
    """True if every run of the cells has a value above 0."""
    looks: ClaimLooks | None = None
    """The looks of a study with `until: decided`. The last one gives `contrast`."""
    ratio_is: RatioIs = "known"
    """What the ratio says of the true ratio, if runs have never passed the milestone."""
    learning: LearningLooks | None = None
    """The counts of learnt runs of both sides; None if all have learnt, or if there are no two sides of nets."""
    among_learnt: bool = False
    """True if runs that have not learnt are left out of the ratio."""
    blocked: bool = False
    """True if so few runs have learnt that no ratio counts."""

    @property
    def cells(self) -> tuple[CellResult, ...]:
        """The cells whose runs are compared."""
        return tuple(cell for pair in self.pairs for cell in pair)

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
    def replicates(self) -> int:
        """The replicates that every cell has, whether they have learnt or not."""
        return min((len(cell.runs) for cell in self.cells), default=0)

    @property
    def learnt_words(self) -> str:
        """The learnt runs of each side, as in `5 of 6 and 6 of 6`. Empty if the records do not say."""
        sides = zip(*self.pairs, strict=True)
        counts = [learnt([run for cell in side for run in cell.runs]) for side in sides]
        return " and ".join(f"{count.emerged} of {count.of}" for count in counts if count.of)


def compare_sides(results: Results, spec: ClaimSpec) -> Sides:
    """The comparison that a claim asks for.

    A claim about a regret compares the errors if no floor is known. Regrets have no ratio if the algorithm is the
    floor, or if a side is not above the floor. Such claims compare the errors too.
    """
    _, other = spec.sides
    labels = spec.names
    pairs = spec.pairs(results.cells)
    seconds: list[CellResult | TrialResult | None] = [
        _baseline(pair[0], other) if isinstance(other, SolverSide) else pair[1] for pair in pairs
    ]
    pairs = [pair[:1] if pair[0] is pair[-1] else pair for pair in pairs]
    answered = [cell for pair in pairs for cell in pair if cell.runs]
    if not pairs or None in seconds or len(answered) < sum(map(len, pairs)):
        return Sides(*labels)
    compared = _Compared(results, spec, tuple(pairs), tuple(each for each in seconds if each))
    if milestone := Milestone.parse(spec.measure):
        return compared.milestone(milestone)
    if not spec.of.startswith("regret"):
        return compared.sides(spec.of)
    error = spec.of.replace("regret", "error")
    floors = [floor for cell in answered if (floor := results.floor(cell)) and floor.how != "none"]
    if len(floors) < len(answered):
        return compared.sides(error, note="No floor is known, so errors are compared")
    if isinstance(other, SolverSide) and other.settings["kind"] in {floor.name for floor in floors}:
        return compared.sides(
            error, note=f"The algorithm is the {_floor_word(floors[0])}, so errors are compared"
        )
    measures = {floor.measure.replace("_", " ") for floor in floors}
    sides = compared.sides(spec.of, measures.pop() if len(measures) == 1 else "error above the floor")
    if sides.whole:
        return sides
    return compared.sides(
        error, note=f"A side is not above the {_floor_word(floors[0])}, so errors are compared"
    )


def _floor_word(floor: MeanFloor) -> str:
    word = "floor" if floor.how in ("bayes", "exact") else floor.how
    return f"{word} {floor.name.replace('_', ' ')}"


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


def _span(steps: Sequence[int]) -> str:
    low, high = min(steps), max(steps)
    return str(low) if low == high else f"{low} to {high}"


@dataclass(frozen=True)
class _Compared:
    """The cells of a claim that have answers."""

    results: Results
    spec: ClaimSpec
    pairs: tuple[tuple[CellResult, ...], ...]
    seconds: tuple[CellResult | TrialResult, ...]
    """The second side of each pair."""

    def sides(self, of: str, words: str = "", note: str = "") -> Sides:
        """The comparison by one measure; `words` is its name in texts."""
        words = words or of.replace("_", " ")
        baselines = [second for second in self.seconds if isinstance(second, TrialResult)]
        if baselines:
            sides = self._with_solver(of, baselines)
        elif self.seconds[0] is self.pairs[0][0]:
            sides = self._with_itself(of)
        else:
            sides = self._with_cells(of)
        return replace(sides, of=words, notes=(*sides.notes, *([note] if note else [])))

    def milestone(self, milestone: Milestone) -> Sides:
        """The comparison of the steps, FLOPs or seconds until a milestone.

        A run that never passed would have passed after its last step, and counts with this step. With such runs on
        the second side alone the true ratio is at most the compared ratio, so a claim may hold and nothing else. Cells
        beside the claim that have such runs lend no noise.
        """
        runs = [run for cell in self.results.cells for run in cell.runs]
        passed = dict(zip([run.trial for run in runs], passages(self.results, runs, milestone), strict=True))
        missing = {run.cell for run in runs if (each := passed[run.trial]) and not each.emerged}
        late = [any(cell.key in missing for cell in of_side) for of_side in zip(*self.pairs, strict=True)]
        of_claim = {cell.key for pair in self.pairs for cell in pair}

        def cost(cell: CellResult, trial: TrialResult) -> float:
            each = passed[trial.trial]
            if not each or cell.key in missing - of_claim:
                return math.nan
            return each.by if each.emerged else each.after

        logs = self.results.table_by_seed(cost)
        ratio_is: RatioIs = "known"
        notes: tuple[str, ...] = ()
        if any(late):
            ratio_is = "unknown" if all(late) else "at least" if late[0] else "at most"
            bound = f", so the true ratio is {ratio_is} this ratio" if ratio_is != "unknown" else ""
            notes = (f"Runs that never {milestone.verb} count with their last step{bound}",)
        sides = self._contrast(logs, notes)
        # If both sides have runs that never emerged, the claim says nothing of nets that learn.
        blocked = milestone.regret is None and ratio_is == "unknown"
        return replace(sides, of=milestone.words, ratio_is=ratio_is, blocked=blocked)

    @property
    def _rows(self) -> list[list[int]]:
        """The rows of the first cells, and of the second cells, in tables of all cells."""
        return [[cell.index for cell in of_side] for of_side in zip(*self.pairs, strict=True)]

    def _with_cells(self, of: str) -> Sides:
        """Pairs of cells, seed by seed."""
        one, other = self.spec.sides
        assert isinstance(other, CellSide)
        notes = ()
        if self.spec.basis == "steps" or self._trained_for_cost:
            logs = self.results.logs(of).copy()
            for side, cells in zip((one, other), zip(*self.pairs, strict=True), strict=True):
                for cell in cells if side.loop else ():
                    logs[cell.index] = _logs_after(self.results, cell, side.loop or 0, of)[cell.index]
        else:
            logs = self._logs_at_cost(of)
            notes = (
                f"Indicative: validation errors at equal {BASES[self.spec.basis]}, in the middle of a schedule",
            )
        return self._contrast(logs, notes)

    def _contrast(self, logs: Array, notes: tuple[str, ...]) -> Sides:
        """Pairs of cells, seed by seed, from the logarithms of all cells [cells, seeds]."""
        firsts, others = self._rows
        schedule, of_learnt = schedule_of(self.results), self._of_learnt(logs)
        if schedule:
            compared = looks_at(logs, firsts, others, schedule, self._comparable)
        else:
            compared = contrast(of_learnt, firsts, others)
        learning = looks_at_learning(
            self.results.learnt_by_seed[firsts], self.results.learnt_by_seed[others], schedule
        )
        return replace(self._sides(self.spec.names, compared, logs, notes=notes), learning=learning)

    @property
    def _comparable(self) -> Mask | None:
        """False for runs that have not learnt [cells, seeds]. None for a milestone, which counts these runs too."""
        return self.results.learnt_by_seed != 0 if self.spec.gated else None

    def _of_learnt(self, logs: Array) -> Array:
        """The logarithms [cells, seeds] without those of runs that have not learnt."""
        return logs if self._comparable is None else np.where(self._comparable, logs, np.nan)

    @property
    def _why_unknown(self) -> str:
        if schedule := schedule_of(self.results):
            return f"the first look is at {schedule.seeds[0]} replicates"
        return "the noise is not known"

    @property
    def _trained_for_cost(self) -> bool:
        """True if all nets were trained for the same cost in the unit of the basis, with complete schedules."""
        path = f"training.{self.spec.basis}"
        costs = [{run.settings.get(path) for cell in pair for run in cell.runs} for pair in self.pairs]
        return all(len(of_pair) == 1 and None not in of_pair for of_pair in costs)

    def _logs_at_cost(self, of: str) -> Array:
        """The logarithms of a measure at the largest cost that all runs of a pair have reached, [cells, seeds]."""
        # Imported here, because the modules import torch, which most claims do not need.
        from loopscale.analysis.answers.equal_cost import common_budget, error_at_cost
        from loopscale.analysis.prices import study_prices

        basis, priced = self.spec.basis, study_prices(self.results)
        budgets = {
            cell.key: common_budget((run for each in pair for run in each.runs), priced, basis)
            for pair in self.pairs
            for cell in pair
        }
        least = min(budgets.values())  # of cells beside the claim, which lend their noise

        def value(cell: CellResult, trial: TrialResult) -> float:
            budget = budgets.get(cell.key, least)
            if not common_budget([trial], priced, basis) >= budget:
                return math.nan
            return error_at_cost(trial, **{basis: budget}, of=of, price=priced[trial.trial])  # pyright: ignore[reportArgumentType]

        return self.results.table_by_seed(value)

    def _with_solver(self, of: str, baselines: Sequence[TrialResult]) -> Sides:
        """Cells and an algorithm on the same prompts, after equally many steps unless the claim says otherwise.

        The algorithm has no seed, so all noise is that of nets.
        """
        one, other = self.spec.sides
        assert isinstance(other, SolverSide)
        logs = self.results.logs(of).copy()
        values, steps = list[float](), list[int]()
        for (cell,), baseline in zip(self.pairs, baselines, strict=True):
            if one.loop:
                logs[cell.index] = _logs_after(self.results, cell, one.loop, of)[cell.index]
            steps.append(other.step or one.loop or cell.runs[0].loop)
            values.append(_value_after(baseline, of, steps[-1]))
        labels = self.spec.names[0], f"{baselines[0].solver} after {_span(steps)} steps"
        if not all(math.isfinite(value) and value > EXACT for value in values):
            return Sides(*labels, pairs=self.pairs)
        [rows] = self._rows
        compared = self._compare_with_values(logs, rows, values)
        return self._sides(labels, compared, logs, np.log(values))

    def _compare_with_values(
        self, logs: Array, rows: list[int], values: list[float]
    ) -> Contrast | ClaimLooks | None:
        if schedule := schedule_of(self.results):
            return looks_at_value(logs, rows, values, schedule, self._comparable)
        return contrast_with_value(self._of_learnt(logs), rows, values)

    def _with_itself(self, of: str) -> Sides:
        """Cells after two numbers of loops, run by run. The noise is that of all cells after as many times T loops.

        If a run overflows, the ratio is infinite and the claim does not hold.
        """
        one, other = self.spec.sides
        assert isinstance(other, CellSide)
        of_claim = {pair[0].key: pair[0].runs[0].loop for pair in self.pairs}
        usual = self.pairs[0][0].runs[0].loop  # of cells beside the claim, which lend their noise

        def change(cell: CellResult, trial: TrialResult) -> float:
            if "training.loops" not in trial.settings or not trial.curve:
                return math.nan
            trained = of_claim.get(cell.key, usual)
            shares = [(side.loop or trained) / trained for side in (one, other)]
            after, before = (_value_after(trial, of, max(1, round(share * trial.loop))) for share in shares)
            return math.inf if math.isnan(after) else after / before

        logs = self.results.table_by_seed(change)
        labels = self.spec.names
        [rows] = self._rows
        if np.isposinf(self._of_learnt(logs)[rows]).any():
            return Sides(*labels, pairs=self.pairs, ratio=math.inf, why="a net overflows", whole=True)
        return self._sides(labels, self._compare_with_values(logs, rows, [1.0] * len(rows)), logs)

    def _sides(
        self,
        labels: tuple[str, str],
        compared: Contrast | ClaimLooks | None,
        logs: Array,
        values: Array | None = None,
        notes: tuple[str, ...] = (),
    ) -> Sides:
        """The data of a claim from the logarithms of all cells [cells, seeds] and of the algorithm's values [pairs]."""
        sides = Sides(*labels, pairs=self.pairs)
        logs = self._of_learnt(logs)
        rows = [logs[cell.index] for cell in sides.cells]
        runs = [
            sum(run.seed is not None and (not self.spec.gated or run.learnt != 0) for run in cell.runs)
            for cell in sides.cells
        ]
        whole = all(np.isfinite(row).sum() == count for row, count in zip(rows, runs, strict=True))
        if length := length_words(sides.cells):
            notes = (*notes, length)
        means = [
            [mean(row[np.isfinite(row)]) for row in logs[[cell.index for cell in pair]]]
            for pair in self.pairs
        ]
        others = np.zeros(len(means)) if values is None else values
        of_pairs = [
            pair[0] - (pair[1] if len(pair) > 1 else other) for pair, other in zip(means, others, strict=True)
        ]
        spread = None
        if len(of_pairs) > 1 and all(map(math.isfinite, of_pairs)):
            spread = math.exp(min(of_pairs)), math.exp(max(of_pairs))
            over = " and ".join(self.spec.over)
            notes = (*notes, f"The ratio is the geometric mean over {len(of_pairs)} values of {over}")
        among = self.spec.gated and not learnt(sides.runs).all
        blocked = among and compared is None
        sides = replace(sides, notes=notes, whole=whole, spread=spread, among_learnt=among, blocked=blocked)
        if isinstance(compared, ClaimLooks):
            present = compared.contrasts[-1]
            return replace(sides, ratio=present.ratio()[0], contrast=present, looks=compared)
        if compared:
            return replace(sides, ratio=compared.ratio()[0], contrast=compared)
        difference = float(np.mean(of_pairs))
        ratio = None if math.isnan(difference) else math.exp(difference)
        return replace(sides, ratio=ratio, why=why_none(*rows) or self._why_unknown)


def _logs_after(results: Results, cell: CellResult, loop: int, of: str) -> Array:
    """The logarithms of a measure after a number of loops, [cells, seeds].

    Up to the T of `cell`, the cells that were trained for at least `loop` loops count. Beyond T, the cells that were
    evaluated up to this loop count.
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
    if not trial.curve or of not in OF_CURVES:  # acting has no curve
        return trial[of]
    values = getattr(trial.curve, of.removesuffix("_last"))[trial.curve.row(loop)]
    return float(values[-1]) if of.endswith("_last") else mean(values)
