"""Standings: cells beside the classical algorithms that ran on their tasks."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from loopscale.analysis.answers.comparisons import (
    Comparison,
    baseline_error,
    compare_with_baselines,
    correction_notes,
)
from loopscale.analysis.recorded.results import (
    CellResult,
    Results,
    TrialResult,
    mean,
)
from loopscale.analysis.table import Column
from loopscale.core.titles import readable
from loopscale.questions.claim_evidence import EXACT


@dataclass(frozen=True)
class Standing:
    """A cell beside a classical algorithm on the same prompts, after the same number of steps."""

    cell: str
    label: str
    baseline: str
    loop: int
    """The number of steps."""
    error: float
    """The mean error of the cell."""
    baseline_error: float
    """The mean error of the algorithm."""
    comparison: Comparison
    """The ratio of the cell's geometric mean error to the algorithm's error. The interval describes the noise of
    training only: both errors come from the same prompts, and an algorithm has no seed."""

    @property
    def algorithm(self) -> str:
        """The name of the algorithm for readers."""
        return readable(self.baseline)

    @property
    def ratio(self) -> float | None:
        """None for an error that is rounding, and if too few runs have learnt."""
        return self.comparison.ratio

    @property
    def verdict(self) -> str:
        return "exact" if self.exact else self.comparison.verdict

    @property
    def verdict_in_words(self) -> str:
        """The verdict for readers: `better` if the net has the smaller error."""
        return "exact" if self.exact else self.comparison.verdict_in_words

    @property
    def exact(self) -> bool:
        """True if the algorithm's error is rounding, so that a ratio has no meaning."""
        return self.baseline_error < EXACT

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        del record["comparison"]
        return record | self.comparison.to_dict()


STANDINGS: list[Column[Standing]] = [
    Column.attribute("label", "cell"),
    Column.attribute("baseline", "algorithm"),
    Column.attribute("loop", "steps"),
    Column.attribute("error", "error of the net", "1 = predicting nothing"),
    Column.attribute("baseline_error", "error of the algorithm", "1 = predicting nothing"),
    Column.attribute("ratio"),
    Column(("low", "high"), "95 % interval", lambda standing: standing.comparison.interval),
    Column(("word",), "verdict", lambda standing: standing.verdict_in_words),
    Column(
        ("alone",),
        "uncorrected",
        lambda standing: None if standing.exact else standing.comparison.uncorrected,
    ),
]


def standings(results: Results) -> list[Standing]:
    """Every cell beside every classical algorithm that ran on its task, as one family.

    The algorithm's error is taken after as many steps as the cell has loops or layers, or after its last recorded step.
    An algorithm whose error is rounding gets no verdict, so its rows do not count in the family.
    """
    rows = [(cell, baseline) for cell in results.answered for baseline in cell.baselines]
    exact = [baseline_error(baseline, cell.runs[0].loop) < EXACT for cell, baseline in rows]
    compared = iter(
        compare_with_baselines(
            results, [(*row, None) for row, is_exact in zip(rows, exact, strict=True) if not is_exact]
        )
    )
    found = [
        Comparison(cell.label, baseline.solver) if is_exact else next(compared)
        for (cell, baseline), is_exact in zip(rows, exact, strict=True)
    ]
    return [
        _standing(cell, baseline, found[place])
        for place, (cell, baseline) in enumerate(rows)
        if exact[place] or found[place].verdict != "no answer"
    ]


def _standing(cell: CellResult, baseline: TrialResult, compared: Comparison) -> Standing:
    loop = cell.runs[0].loop
    steps = min(loop, baseline.curve.last_loop) if baseline.curve else loop
    errors = mean(cell.values_of("error")), baseline_error(baseline, loop)
    return Standing(cell.key, cell.label, baseline.solver, steps, *errors, compared)


def standings_notes(rows: Iterable[Standing]) -> list[str]:
    """Sentences that explain the verdicts of a table of standings."""
    return correction_notes(row.comparison for row in rows if not row.exact)
