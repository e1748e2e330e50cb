"""The evidence of a claim: the cells or algorithms of its two sides, their runs, and the contrast between them.

Only runs that have left the plateau are compared. A claim of a milestone counts the other runs by their last step. A
study with looks is compared at each of its looks, and any other study once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal

import numpy as np

from loopscale.questions.claim import BASES, CellSide, ClaimSpec, SolverSide
from loopscale.questions.measures import CURVE_MEASURES, game_noise
from loopscale.questions.runs import C, Run, Runs, learnt_of
from loopscale.stats.contrasts import (
    Array,
    Contrast,
    contrast,
    contrast_with_value,
    exp_of_log,
    why_none,
)
from loopscale.stats.games import GameNoise, shared_variance
from loopscale.stats.learning_chances import LearningLooks, looks_at_learning
from loopscale.stats.looks import ClaimLooks, LookSchedule, Mask, looks_at, looks_at_value
from loopscale.stats.milestones import Milestone

EXACT = 1e-9
"""Algorithms run in float64. Their errors below this value are rounding, and have no ratio."""
GAMES_NOTE = "The interval counts the noise of the games of play too"
RatioIs = Literal["known", "at most", "at least", "unknown"]
"""A run that never passed a milestone has only a lower bound of its time. The ratio is then bounded from one side, or
from none if both sides have such runs."""


@dataclass(frozen=True)
class Sides(Generic[C]):
    """The data of one claim."""

    first: str
    """The name of the first side."""
    second: str
    """The name of the second side."""
    of: str = "error"
    """The measure that is compared: the claim's, or its error where regrets have no ratio."""
    pairs: tuple[tuple[C, ...], ...] = ()
    """The cells of both sides, pair by pair. A pair has one cell beside an algorithm, or beside the same cell."""
    ratio: float | None = None
    """The first value over the second (geometric means over replicates); None if a side has no answer. Infinite if a
    net overflows after more loops."""
    contrast: Contrast | None = None
    """The contrast of the two sides; None if there is no interval."""
    why: str = ""
    """The reason if there is no interval."""
    ratios: tuple[float, ...] = ()
    """The ratio of each pair; empty for a single pair."""
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
    no_logarithm: bool = False
    """True if there is no contrast because a run has a value of 0 or below, which has no ratio. To leave such runs out
    would favour the other side."""
    valued: int = 0
    """The number of seeds with a value in all cells, whether the nets have learnt or not."""
    compared: int = 0
    """The number of these seeds at which all nets have learnt."""

    @property
    def cells(self) -> tuple[C, ...]:
        """The cells whose runs are compared."""
        return tuple(cell for pair in self.pairs for cell in pair)

    @property
    def runs(self) -> list[Any]:
        """The runs of the cells."""
        return [run for cell in self.cells for run in cell.runs]

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio, without correction for the number of claims. None without a contrast.

        With looks, the intervals of all looks cover together, so the interval of one look is wider.
        """
        if self.looks:
            low, high = self.looks.interval()
            return exp_of_log(low), exp_of_log(high)
        return self.contrast.ratio()[1:] if self.contrast else None

    @property
    def ratio_in_words(self) -> str:
        """The ratio with its interval, as in `0.9 (0.8 to 1)`."""
        if self.interval is None:
            return f"{self.ratio:.3g} (no interval: {self.why})"
        low, high = self.interval
        return f"{self.ratio:.3g} ({low:.3g} to {high:.3g})"

    @property
    def replicates(self) -> int:
        """The replicates that every cell has, whether they have learnt or not."""
        return min((len(cell.runs) for cell in self.cells), default=0)

    @property
    def learnt_words(self) -> str:
        """The learnt runs of each side, as in `5 of 6 and 6 of 6`. Empty if the records do not say."""
        sides = [dict.fromkeys(cell.key for cell in side) for side in zip(*self.pairs, strict=True)]
        cells = {cell.key: cell for cell in self.cells}
        counts = [learnt_of(run for key in side for run in cells[key].runs) for side in sides]
        return " and ".join(f"{count.emerged} of {count.of}" for count in counts if count.of)


def compare_sides(runs: Runs[C], spec: ClaimSpec) -> Sides[C]:
    """The comparison that a claim asks for.

    Regrets that are unknown, or not above 0, have no ratio. Neither has the regret of the algorithm that is the floor.
    Such claims compare the errors.
    """
    _, other = spec.sides
    pairs = spec.pairs(runs.cells)
    seconds: list[C | Run | None] = [
        runs.baseline(pair[0], other) if isinstance(other, SolverSide) else pair[1] for pair in pairs
    ]
    return compare_pairs(runs, spec, pairs, seconds)


def compare_pairs(
    runs: Runs[C], spec: ClaimSpec, pairs: Sequence[tuple[C, ...]], seconds: Sequence[C | Run | None]
) -> Sides[C]:
    """The comparison of a claim whose cells are known.

    Parameters
    ----------
    pairs
        The cells of both sides, pair by pair; of the first side alone if the second side is an algorithm.
    seconds
        The second side of each pair: a cell, or the run of an algorithm. None if there is no run.
    """
    _, other = spec.sides
    pairs = [pair[:1] if pair[0] is pair[-1] else pair for pair in pairs]
    unanswered = any(not cell.runs for pair in pairs for cell in pair)
    if not pairs or None in seconds or unanswered:
        return Sides(*spec.names)
    compared = _Compared(runs, spec, tuple(pairs), tuple(each for each in seconds if each is not None))
    if milestone := Milestone.parse(spec.measure):
        return compared.milestone(milestone)
    measure = CURVE_MEASURES.get(spec.of)
    if measure is None or measure.grid == "error":
        return compared.sides(spec.of)
    floors = {pair[0].runs[0].floor_solver for pair in pairs}
    is_floor = isinstance(other, SolverSide) and other.settings["kind"] in floors
    sides = None if is_floor else compared.sides(spec.of)
    return sides if sides and sides.whole else compared.sides(measure.of_error)


@dataclass(frozen=True)
class _Compared(Generic[C]):
    """The cells of a claim that have answers."""

    study: Runs[C]
    spec: ClaimSpec
    pairs: tuple[tuple[C, ...], ...]
    seconds: tuple[Any, ...]
    """The second side of each pair: a cell, or the run of an algorithm."""

    def sides(self, of: str) -> Sides[C]:
        """The comparison by one measure."""
        if isinstance(self.spec.sides[1], SolverSide):
            sides = self._with_solver(of)
        elif self.seconds[0] is self.pairs[0][0]:
            sides = self._with_itself(of)
        else:
            sides = self._with_cells(of)
        sides = replace(sides, of=of)
        if not sides.whole and self._has_no_logarithm(sides):
            note = f"The {of.replace('_', ' ')} of a run is 0 or below, so there is no ratio"
            without = replace(sides, ratio=None, ratios=(), contrast=None, looks=None, blocked=False)
            return replace(without, notes=(*sides.notes, note), no_logarithm=True)
        return self._beside_games(sides)

    def _has_no_logarithm(self, sides: Sides[C]) -> bool:
        """True if enough runs can be compared, and one of them has a value of 0 or below.

        The regret of a run may be below 0, and then the errors are compared.
        """
        rows = [cell.index for cell in sides.cells]
        if sides.blocked and (self.study.learnt_by_seed[rows] == 1).all(axis=0).sum() < 2:
            return False
        counted = [run for run in sides.runs if not self.spec.gated or run.learnt != 0]
        return any(run[sides.of] <= 0 for run in counted)

    def _beside_games(self, sides: Sides[C]) -> Sides[C]:
        """The comparison with the noise of the games of play, which all replicates share.

        The same net after two numbers of loops has one set of games and no second side.
        """
        if sides.contrast is None or self.seconds[0] is self.pairs[0][0]:
            return sides
        noises = [
            (self._game_noise(pair[0].runs, sides.of), self._game_noise(_runs_of(second), sides.of))
            for pair, second in zip(self.pairs, self.seconds, strict=True)
        ]
        shared = shared_variance(noises)
        if not shared:
            return sides
        return replace(
            sides,
            contrast=sides.contrast.beside(shared),
            looks=sides.looks and sides.looks.beside(shared),
            notes=(*sides.notes, GAMES_NOTE),
        )

    def _game_noise(self, runs: Sequence[Run], of: str) -> GameNoise:
        counted = [run for run in runs if not self.spec.gated or run.learnt != 0] or runs
        return GameNoise.of_replicates(
            [noise for run in counted if (noise := game_noise(run.__getitem__, of))]
        )

    def milestone(self, milestone: Milestone) -> Sides[C]:
        """The comparison of the steps, FLOPs or seconds until a milestone.

        A run that never passed would have passed after its last step, and counts with this step. With such runs on
        the second side alone the true ratio is at most the compared ratio, so a claim may hold and nothing else. Cells
        beside the claim that have such runs lend no noise.
        """
        passed = self.study.passed(milestone)
        missing = {
            cell.key
            for cell in self.study.cells
            if any((each := passed(run)) and not each.emerged for run in cell.runs)
        }
        late = [any(cell.key in missing for cell in of_side) for of_side in zip(*self.pairs, strict=True)]
        of_claim = {cell.key for pair in self.pairs for cell in pair}

        def cost(cell: C, run: Run) -> float:
            each = passed(run)
            if not each or cell.key in missing - of_claim:
                return math.nan
            return each.by if each.emerged else each.after

        logs = self.study.table_by_seed(cost)
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

    @property
    def _schedule(self) -> LookSchedule | None:
        return self.study.schedule

    def _with_cells(self, of: str) -> Sides[C]:
        """Pairs of cells, seed by seed."""
        one, other = self.spec.sides
        assert isinstance(other, CellSide)
        at_cost = None if self.spec.basis == "steps" else self.study.at_cost(self.pairs, self.spec.basis, of)
        if at_cost is not None:
            where = f"at equal {BASES[self.spec.basis]}, in the middle of a schedule"
            return self._contrast(at_cost, (f"Indicative: validation errors {where}",))
        logs = self.study.logs(of).copy()
        for side, cells in zip((one, other), zip(*self.pairs, strict=True), strict=True):
            for cell in cells if side.loop else ():
                logs[cell.index] = _logs_after(self.study, cell, side.loop or 0, of)[cell.index]
        return self._contrast(logs)

    def _contrast(self, logs: Array, notes: tuple[str, ...] = ()) -> Sides[C]:
        """Pairs of cells, seed by seed, from the logarithms of all cells [cells, seeds]."""
        firsts, others = self._rows
        if self._schedule:
            compared = looks_at(logs, firsts, others, self._schedule, self._comparable)
        else:
            compared = contrast(self._of_learnt(logs), firsts, others)
        table = self.study.learnt_by_seed
        learning = looks_at_learning(table[firsts], table[others], self._schedule)
        return replace(self._sides(self.spec.names, compared, logs, notes=notes), learning=learning)

    @property
    def _comparable(self) -> Mask | None:
        """False for runs that have not learnt [cells, seeds]. None for a milestone, which counts these runs too."""
        return self.study.learnt_by_seed != 0 if self.spec.gated else None

    def _of_learnt(self, logs: Array) -> Array:
        """The logarithms [cells, seeds] without those of runs that have not learnt."""
        return logs if self._comparable is None else np.where(self._comparable, logs, np.nan)

    @property
    def _why_unknown(self) -> str:
        if self._schedule:
            return f"the first look is at {self._schedule.seeds[0]} replicates"
        return "the noise is not known"

    def _with_solver(self, of: str) -> Sides[C]:
        """Cells and an algorithm on the same prompts, after equally many steps unless the claim says otherwise.

        The algorithm has no seed, so all noise is that of nets.
        """
        one, other = self.spec.sides
        assert isinstance(other, SolverSide)
        logs = self.study.logs(of).copy()
        values, steps = list[float](), list[int]()
        for (cell,), baseline in zip(self.pairs, self.seconds, strict=True):
            if one.loop:
                logs[cell.index] = _logs_after(self.study, cell, one.loop, of)[cell.index]
            steps.append(other.step or one.loop or cell.runs[0].loop)
            values.append(baseline.after(steps[-1], of))
        labels = self.spec.names[0], f"{self.seconds[0].solver} after {_span(steps)} steps"
        if not all(math.isfinite(value) and value > EXACT for value in values):
            return Sides(*labels, pairs=self.pairs)
        return self._sides(labels, self._compare_with_values(logs, values), logs, np.log(values))

    def _compare_with_values(self, logs: Array, values: list[float]) -> Contrast | ClaimLooks | None:
        [rows] = self._rows
        if self._schedule:
            return looks_at_value(logs, rows, values, self._schedule, self._comparable)
        return contrast_with_value(self._of_learnt(logs), rows, values)

    def _with_itself(self, of: str) -> Sides[C]:
        """Cells after two numbers of loops or layers, run by run.

        The noise is that of all cells after as many times T loops. Loops lend no noise to layers, and layers none to
        loops.

        If a run overflows, the ratio is infinite and the claim does not hold.
        """
        one, other = self.spec.sides
        assert isinstance(other, CellSide)
        of_claim = {pair[0].key: pair[0].runs[0].loop for pair in self.pairs}
        usual = self.pairs[0][0].runs[0].loop  # of cells beside the claim, which lend their noise
        looped = self.pairs[0][0].runs[0].looped

        def change(cell: C, run: Run) -> float:
            if run.looped != looped or not run.last_loop:
                return math.nan
            trained = of_claim.get(cell.key, usual)
            shares = [(side.loop or trained) / trained for side in (one, other)]
            after, before = (run.after(max(1, round(share * run.loop)), of) for share in shares)
            return math.inf if math.isnan(after) else after / before

        logs = self.study.table_by_seed(change)
        labels = self.spec.names
        [rows] = self._rows
        if np.isposinf(self._of_learnt(logs)[rows]).any():
            valued = int((~np.isnan(logs[rows])).all(axis=0).sum())
            why = "a net overflows"
            return Sides(*labels, pairs=self.pairs, ratio=math.inf, why=why, whole=True, valued=valued)
        return self._sides(labels, self._compare_with_values(logs, [1.0] * len(rows)), logs)

    def _sides(
        self,
        labels: tuple[str, str],
        compared: Contrast | ClaimLooks | None,
        logs: Array,
        values: Array | None = None,
        notes: tuple[str, ...] = (),
    ) -> Sides[C]:
        """The data of a claim from the logarithms of all cells [cells, seeds] and of the algorithm's values [pairs]."""
        sides = Sides[C](*labels, pairs=self.pairs)
        rows = [cell.index for cell in sides.cells]
        valued = np.isfinite(logs[rows]).all(axis=0)
        whole, logs = self._is_whole(logs), self._of_learnt(logs)
        means = [[_mean(logs[cell.index]) for cell in pair] for pair in self.pairs]
        others = np.zeros(len(means)) if values is None else values
        of_pairs = [
            pair[0] - (pair[1] if len(pair) > 1 else other) for pair, other in zip(means, others, strict=True)
        ]
        ratios = ()
        if len(of_pairs) > 1 and all(map(math.isfinite, of_pairs)):
            ratios = tuple(map(math.exp, of_pairs))
            over = " and ".join(self.spec.over)
            notes = (*notes, f"The ratio is the geometric mean over {len(of_pairs)} values of {over}")
        among = self.spec.gated and not learnt_of(sides.runs).all
        enough = self._schedule is None or valued.sum() >= self._schedule.seeds[0]
        sides = replace(
            sides,
            notes=notes,
            whole=whole,
            ratios=ratios,
            among_learnt=among,
            blocked=bool(among and compared is None and enough),
            valued=int(valued.sum()),
            compared=int((valued & np.isfinite(logs[rows]).all(axis=0)).sum()),
        )
        if isinstance(compared, ClaimLooks):
            present = compared.contrasts[-1]
            return replace(sides, ratio=present.ratio()[0], contrast=present, looks=compared)
        if compared:
            return replace(sides, ratio=compared.ratio()[0], contrast=compared)
        difference = float(np.mean(of_pairs))
        ratio = None if math.isnan(difference) else math.exp(difference)
        return replace(sides, ratio=ratio, why=why_none(*(logs[row] for row in rows)) or self._why_unknown)

    def _is_whole(self, logs: Array) -> bool:
        """True if every run of the cells has a value. If some runs have learnt, only these runs count."""
        cells = [cell for pair in self.pairs for cell in pair]
        runs = [[run for run in cell.runs if run.seed is not None] for cell in cells]
        learnt = [[run for run in of_cell if not self.spec.gated or run.learnt != 0] for of_cell in runs]
        logs, counted = (self._of_learnt(logs), learnt) if any(learnt) else (logs, runs)
        values = [int(np.isfinite(logs[cell.index]).sum()) for cell in cells]
        return values == [len(of_cell) for of_cell in counted]


def _runs_of(side: Any) -> Sequence[Run]:
    """The runs of a cell, or the single run of an algorithm."""
    return getattr(side, "runs", (side,))


def _logs_after(runs: Runs[C], cell: C, loop: int, of: str) -> Array:
    """The logarithms of a measure after a number of loops, [cells, seeds].

    Up to the T of `cell`, the cells that were trained for at least `loop` loops count. Beyond T, the cells that were
    evaluated up to this loop count.
    """
    beyond = loop > cell.runs[0].loop

    def value(other: C, run: Run) -> float:
        reach = run.last_loop if beyond else run.loop
        if other is not cell and (not other.replicated or reach < loop):
            return math.nan
        return run.after(loop, of)

    return runs.table_by_seed(value)


def _mean(logs: Array) -> float:
    """The mean of the finite values; NaN if there are none."""
    kept = logs[np.isfinite(logs)]
    return float(kept.mean()) if kept.size else math.nan


def _span(steps: Sequence[int]) -> str:
    low, high = min(steps), max(steps)
    return str(low) if low == high else f"{low} to {high}"
