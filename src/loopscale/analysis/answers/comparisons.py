"""Comparisons of cells, as claims that are made on the spot.

A cell is compared with the best cell of its task, with classical algorithms, and with a cell of another study.

`questions.claim_evidence` compares the two sides and `questions.claim_verdict` judges them, as for the claims of a
study's file. Only runs that have left the plateau are compared. If results may choose the number of replicates of a
cell, the interval is that of the looks. A comparison has the ratio of the first error to the second (geometric means
over replicates), its 95 % interval and a verdict: `less` if the whole interval lies below 1, `more` if it lies above
1, else `undecided`.

The comparisons of one table are one family, and `stats.multiplicity` corrects their verdicts. The printed interval is
not corrected. The cells of a task are compared with the cell of lowest error, which the data choose. Their family is
therefore all pairs of cells of a task.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from loopscale.analysis.recorded.learning import on_plateau
from loopscale.analysis.recorded.looks import cells_with_looks
from loopscale.analysis.recorded.results import (
    CellResult,
    Results,
    TrialResult,
    mean,
)
from loopscale.analysis.recorded.runs import RecordedRuns, RunsOfStudies
from loopscale.analysis.table import Interval
from loopscale.questions.claim import ClaimSpec, ClaimVerdict
from loopscale.questions.claim_evidence import Sides, compare_pairs
from loopscale.questions.claim_verdict import ClaimJudgement, judge
from loopscale.questions.runs import Runs

ComparisonVerdict = Literal[
    "less",
    "more",
    "level",
    "learns more often",
    "learns less often",
    "undecided",
    "not learnt",
    "no interval",
    "no answer",
]
NO_INTERVAL: Literal["no interval"] = "no interval"
VERDICTS_OF_CLAIMS: dict[ClaimVerdict, ComparisonVerdict] = {
    "holds": "less",
    "does not hold": "more",
    "level": "level",
    "learns more often": "learns more often",
    "learns less often": "learns less often",
    "undecided": "undecided",
    "not learnt": "not learnt",
    "not run": "no answer",
}
"""The verdict on a comparison, by the verdict on the claim that its first side has less error."""
REVERSED: dict[ComparisonVerdict, ComparisonVerdict] = {
    "less": "more",
    "more": "less",
    "learns more often": "learns less often",
    "learns less often": "learns more often",
}
"""The verdict on the second side beside the first, where it is another one."""
READERS_VERDICTS = {"less": "better", "more": "worse"}
"""Verdicts on the first error beside the second, as readers say them."""


@dataclass(frozen=True)
class Comparison:
    """A ratio of two errors."""

    first: str
    """The name of the first cell or algorithm."""
    second: str
    """The name of the second cell or algorithm."""
    ratio: float | None = None
    """The first error over the second error; None if one of the two has no answer yet."""
    low: float | None = None
    """The lower end of the 95 % interval of `ratio`; None without an interval."""
    high: float | None = None
    """The upper end of this interval."""
    verdict: ComparisonVerdict = "no answer"
    """The verdict, corrected for the number of comparisons of the table."""
    seeds: int = 0
    """The replicates of each side that the interval took; 0 without an interval."""
    replicates: int | None = None
    """The number of replicates that would decide an undecided comparison, if the ratio stays the same. None above
    1,000, and for every other verdict."""
    why: str = ""
    """The reason if there is no interval."""
    plateau: str = ""
    """The runs on the plateau, in words. Empty if all have left the plateau, or if their states are unknown."""
    among_learnt: bool = False
    """True if runs on the plateau are left out of the ratio."""
    alone: ComparisonVerdict = "no answer"
    """The verdict of the interval, without correction."""
    adjusted_p: float | None = None
    """The p-value with the correction; None without an interval."""
    family: int = 1
    """The number of comparisons for which the verdict is corrected."""

    def to_dict(self) -> dict[str, Any]:
        """The ratio, its interval, both verdicts, and the number of replicates that would decide."""
        keys = {"word": "verdict"}  # keys of JSON that differ from the attribute
        names = ("ratio", "low", "high", "word", "alone", "adjusted_p", "replicates")
        return {name: getattr(self, keys.get(name, name)) for name in names}

    @property
    def reversed(self) -> "Comparison":
        """The second error over the first error."""
        ends = (self.ratio, self.high, self.low)
        ratio, low, high = (None if end is None else 1 / end if end else math.inf for end in ends)
        return replace(
            self,
            first=self.second,
            second=self.first,
            ratio=ratio,
            low=low,
            high=high,
            verdict=REVERSED.get(self.verdict, self.verdict),
            alone=REVERSED.get(self.alone, self.alone),
        )

    @property
    def verdict_in_words(self) -> str:
        """The corrected verdict for readers: `better` for a smaller error."""
        among = self.among_learnt and self.verdict in ("less", "more", "level", "undecided")
        return READERS_VERDICTS.get(self.verdict, self.verdict) + " among learnt runs" * among

    @property
    def uncorrected(self) -> str:
        """The verdict without correction, for readers."""
        return READERS_VERDICTS.get(self.alone, self.alone)

    @property
    def lost(self) -> bool:
        """True if the comparison is decided alone, but not as one of its family."""
        return self.verdict == "undecided" != self.alone

    @property
    def interval(self) -> Interval | None:
        return Interval.of(self.low, self.high)

    @property
    def span(self) -> str:
        """The ratio with its interval, in words."""
        if self.ratio is None:
            return f"no ratio: {self.why or 'too little has finished'}"
        if self.low is None or self.high is None:
            return f"{self.ratio:.3g} (no interval: {self.why})"
        return f"{self.ratio:.3g} (95 % interval {self.low:.3g} to {self.high:.3g})"


_Asked = tuple[ClaimSpec, Sides[CellResult]]
"""A claim on two errors that is made on the spot, and its data."""


def _claim(first: dict[str, Any], second: dict[str, Any]) -> ClaimSpec:
    """The claim that one error is less than another.

    The caller names the cells, so the notation of a study's file is left out, and with it the check of the notation.
    """
    return ClaimSpec.model_construct(text="", first=first, second=second, of="error", margin=None)


def _runs_of_tables(results: Results) -> Callable[..., RecordedRuns]:
    """The runs of a study for the comparison of some of its cells: with looks if a look may order their replicates."""
    chosen = cells_with_looks(results)
    looked, fixed = RecordedRuns(results), RecordedRuns(results, looks=False)
    return lambda *cells: looked if any(cell.key in chosen for cell in cells) else fixed


def _beside_cell(runs: Runs[CellResult], first: CellResult, second: CellResult) -> _Asked:
    """The comparison of two cells."""
    claim = _claim({}, {})
    answered = bool(first.runs and second.runs)
    sides = compare_pairs(runs, claim, [(first, second)], [second]) if answered else Sides[CellResult]("", "")
    return claim, replace(sides, first=first.label, second=second.label)


def _beside_baseline(
    runs: Runs[CellResult], cell: CellResult, baseline: TrialResult, step: int | None
) -> _Asked:
    """The comparison of a cell and an algorithm after a number of steps, by default the cell's T."""
    claim = _claim({"loop": step} if step else {}, {"solver": {"kind": baseline.solver}})
    if not cell.runs:
        return claim, Sides(cell.label, baseline.solver)
    return claim, replace(compare_pairs(runs, claim, [(cell,)], [baseline]), first=cell.label)


def _judged(asked: Sequence[_Asked], unlisted: int = 0) -> list[Comparison]:
    """The verdicts of the comparisons of one table, as one family.

    Parameters
    ----------
    unlisted
        The number of comparisons that the data could have chosen for the table, but have not.
    """
    judgements = judge([claim for claim, _ in asked], [sides for _, sides in asked], unlisted)
    family = len(asked) + unlisted
    return [
        _comparison(sides, judgement, family) for (_, sides), judgement in zip(asked, judgements, strict=True)
    ]


def _comparison(sides: Sides[CellResult], judgement: ClaimJudgement, family: int) -> Comparison:
    labels = sides.first, sides.second
    verdict, alone = VERDICTS_OF_CLAIMS[judgement.verdict], VERDICTS_OF_CLAIMS[judgement.alone]
    if sides.no_logarithm:
        return Comparison(
            *labels, verdict=NO_INTERVAL, why="an error that is 0", alone=NO_INTERVAL, family=family
        )
    if sides.ratio is None and not sides.blocked:
        return Comparison(*labels, family=family)
    known = Comparison(
        *labels,
        sides.ratio,
        verdict=verdict,
        why="too few runs have learnt" if sides.blocked else sides.why,
        plateau=on_plateau(sides.runs),
        among_learnt=sides.among_learnt,
        alone=alone,
        family=family,
    )
    if sides.contrast is None or sides.interval is None:
        # Counts of learnt runs need no ratio, and so have a verdict without an interval.
        words = {"verdict": NO_INTERVAL} if verdict == "undecided" else {}
        return replace(known, alone=NO_INTERVAL, **words)
    return replace(
        known,
        low=sides.interval[0],
        high=sides.interval[1],
        seeds=sides.replicates if sides.among_learnt else sides.contrast.seeds,
        replicates=judgement.replicates,
        adjusted_p=judgement.adjusted_p,
    )


def correction_notes(comparisons: Iterable[Comparison], of_pairs: bool = False) -> list[str]:
    """Sentences for how many comparisons the verdicts of a table are corrected.

    Parameters
    ----------
    of_pairs
        True if the family is all pairs of cells, because the data choose the lowest cell.
    """
    listed = list(comparisons)
    family = listed[0].family if listed else 0
    reason = " (all pairs of cells, because the data choose the lowest cell)" if of_pairs else ""
    return family_notes(family, "comparisons" + reason, sum(compared.lost for compared in listed))


def family_notes(family: int, what: str, lost: int) -> list[str]:
    """Sentences for the size of a family, and for the number of verdicts that the correction withdraws."""
    notes = [f"Verdicts are corrected for {family:,} {what}."] if family > 1 else []
    return [*notes, f"Without the correction, {lost} more would be decided."] if lost else notes


def compare_with_lowest(results: Results) -> dict[str, Comparison]:
    """Every cell beside the cell of lowest error on its task, by the key of the cell.

    The cell of lowest error has no comparison. The family is all pairs of cells of the same task, because any cell
    could have been the lowest.
    """
    runs, asked, pairs = _runs_of_tables(results), dict[str, _Asked](), 0
    for cells in results.tasks.values():
        lowest = lowest_first(cells)[0]
        pairs += len(cells) * (len(cells) - 1) // 2
        asked |= {
            cell.key: _beside_cell(runs(cell, lowest), cell, lowest) for cell in cells if cell is not lowest
        }
    judged = _judged(list(asked.values()), unlisted=pairs - len(asked))
    return dict(zip(asked, judged, strict=True))


def lowest_first(cells: Iterable[CellResult]) -> list[CellResult]:
    """The cells by their mean error."""
    return sorted(cells, key=lambda cell: mean(cell.values_of("error")))


def compare_studies(
    results: tuple[Results, Results], pairs: Sequence[tuple[CellResult, CellResult]]
) -> list[Comparison]:
    """Pairs of a cell of one study and a cell of another study, seed by seed, with the noise of both studies.

    The pairs are one family. A cell whose trials are in both studies counts once. Its ratio is 1, and has
    an interval if other cells tell the noise.
    """
    runs = RunsOfStudies(cell for study in results for cell in study.cells)
    asked = list[_Asked]()
    for pair in pairs:
        claim, sides = _beside_cell(runs, *map(runs.placed, pair))
        if sides.contrast and not math.isfinite(sides.contrast.half_width()):
            # The runs differ in nothing, and no other cell tells their noise.
            sides = replace(sides, contrast=None, why="the studies have the same runs")
        asked.append((claim, sides))
    return _judged(asked)


def compare_with_baselines(
    results: Results, rows: Sequence[tuple[CellResult, TrialResult, int | None]]
) -> list[Comparison]:
    """Cells and classical algorithms on the same prompts, after equally many steps, as one family.

    Each row has a cell, an algorithm and a number of steps, by default the cell's T. If the algorithm was recorded for
    fewer steps, its last step is used. The algorithm has no seed, so all noise is that of nets: by default of all
    cells, each at its own T. With a number of steps, only cells that were trained for at least that many loops count.
    If the number is beyond T, all cells that were evaluated that far count.
    """
    runs = _runs_of_tables(results)
    return _judged([_beside_baseline(runs(row[0]), *row) for row in rows])


def ratios_to_solver(results: Results, solver: str) -> pd.DataFrame:
    """The ratio of every cell's error to the error of a classical algorithm, after each step up to T.

    The columns are cell, step, ratio, low, high and verdict: better, worse, undecided or not run. The rows are one
    family. The intervals are not corrected.
    """
    words = {"less": "better", "more": "worse", "no answer": "not run"}
    name = solver.replace("_", " ")
    beside = {
        cell: next((baseline for baseline in cell.baselines if baseline.solver == name), None)
        for cell in results.answered
    }
    places = [(cell, step) for cell in results.answered for step in range(1, cell.runs[0].loop + 1)]
    asked = [(cell, baseline, step) for cell, step in places if (baseline := beside[cell])]
    compared = iter(compare_with_baselines(results, asked))
    rows = []
    for cell, step in places:
        if beside[cell] is None:
            rows.append((cell.label, step, None, None, None, "not run"))
            continue
        row = next(compared)
        rows.append((cell.label, step, row.ratio, row.low, row.high, words.get(row.verdict, "undecided")))
    return pd.DataFrame(rows, columns=["cell", "step", "ratio", "low", "high", "verdict"])


def baseline_error(baseline: TrialResult, step: int) -> float:
    """The error of a classical algorithm after a step, or after its last step if that is earlier."""
    return baseline.curve.error_after(step) if baseline.curve else baseline["error"]
