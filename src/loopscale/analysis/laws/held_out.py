"""Held-out tests in reports: the predictions of a law beside the runs at the predicted values.

A prediction is foretold if the study recorded the prediction before the first predicted trial started. Without a
record, the report makes the same prediction from the fitted runs of today. The report then says "afterwards, not
foretold".
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopscale.analysis.recorded.learning import emergences
from loopscale.analysis.recorded.results import CellResult, Results
from loopscale.analysis.recorded.runs import RecordedRuns
from loopscale.questions.axes.base import axis_of
from loopscale.records.predictions import (
    RecordedPrediction,
    predict_from,
    recorded_predictions,
    tag_of,
)
from loopscale.stats.emergence_prediction import middle, score_emergence
from loopscale.stats.milestones import EMERGED_AT
from loopscale.stats.prediction import Prediction, Score, score
from loopscale.studies.held_out import HeldOutTest, HoldOut, fitted_runs, tests_of_law

AFTERWARDS = "afterwards, not foretold"


@dataclass(frozen=True)
class PredictedValue:
    """A held-out value: the law's prediction, and the runs as far as they have finished."""

    at: float
    """The value on the axis."""
    foretold: bool
    """True if the prediction was recorded before the first of the runs started."""
    prediction: Prediction
    """The prediction for the number of finished runs, or for the planned number if none has finished."""
    errors: tuple[float, ...]
    """The measure of each finished run, for no more runs than were predicted. For the step of emergence, the middle of
    the interval; for a run that never emerges, the last report."""
    score: Score | None
    """The score of the prediction; None without finished runs."""
    censored: int = 0
    """The number of finished runs that never emerge."""

    @property
    def verdict(self) -> str:
        """The verdict on the prediction: hit, miss, not judged or open.

        The score is open without finished runs, and if the interval of an emergence leaves the answer open.
        """
        if self.score is not None and not self.prediction.judged:
            return "not judged"
        if self.score is None or self.score.hit is None:
            return "open"
        return "hit" if self.score.hit else "miss"

    @property
    def came(self) -> str:
        """The result of the finished runs in words: their geometric mean."""
        return f"{'at least ' * bool(self.censored)}{math.exp(float(np.mean(np.log(self.errors)))):.3g}"

    @property
    def merit(self) -> str:
        """The verdict, and the naive predictions that are no worse: `hit, but no better than the last value`."""
        if self.verdict != "hit" or not self.score or not self.score.worse_than:
            return self.verdict
        return f"hit, but no better than {' and '.join(self.score.worse_than)}"

    @property
    def scores(self) -> str:
        """The scores of the prediction and of the naive predictions, in words."""
        assert self.score
        naive = f"last value {_score(self.score.last_value_error)}, line {_score(self.score.line_error)}"
        return f"score {_score(self.score.crps)} ({naive})"

    @property
    def label(self) -> str:
        """The score and its errors, short enough for a table."""
        text = self.merit.replace(self.verdict, f"{self.verdict} at {self.at:g}", 1)
        if self.score:
            text += f", {self.scores}"
        return text if self.foretold else f"{text}; {AFTERWARDS}"

    @property
    def words(self) -> str:
        """Prediction, result and score in one line."""
        low, middle, high = (
            math.exp(part) for part in (self.prediction.low, self.prediction.centre, self.prediction.high)
        )
        made = "foretold" if self.foretold else f"predicted ({AFTERWARDS})"
        text = f"{made} for {self.at:g}: {middle:.3g} ({low:.3g} .. {high:.3g})"
        if self.score is None:
            return f"{text}, no run has finished yet"
        verdict = f"{self.verdict}, {self.prediction.reason}" if self.prediction.reason else self.merit
        return f"{text}, came {self.came}: {verdict}; {self.scores}"


def _score(error: float) -> str:
    """The score of a prediction, or of a guess with this error; `unknown` for a guess without a value."""
    return "unknown" if math.isnan(error) else f"{abs(error):.2f}"


class HeldOutValues:
    """The held-out values of one law of a study: which cells the law is fitted to, and what the law predicts."""

    def __init__(self, results: Results, law: Mapping[str, Any], hold_out: HoldOut | None = None) -> None:
        """Find the held-out tests of the law.

        Parameters
        ----------
        hold_out
            For a law that holds out nothing: values that are held out afterwards.
        """
        self._results, self._tests = results, dict[str, HeldOutTest]()
        if not axis_of(law["along"]).not_held_out and results.trained:
            asked = {**law, "hold_out": law.get("hold_out") or hold_out}
            tests = tests_of_law(asked, results.cells, results.trained[0].settings)
            self._tests = {test.label: test for test in tests}

    @property
    def fitted(self) -> dict[str, Mapping[str, float]]:
        """The values of the fitted cells by key, by the settings that the cells share."""
        return {label: test.fitted for label, test in self._tests.items()}

    def predicted(self, label: str) -> tuple[PredictedValue, ...]:
        """The predictions for the cells that share these settings, by value. Cells without one are left out."""
        test = self._tests.get(label)
        if test is None:
            return ()
        recorded = recorded_predictions(self._results.study.get("predictions") or {})
        cells = {cell.key: cell for cell in self._results.cells}
        fitted, planned = fitted_runs(test, RecordedRuns(self._results)), _planned(self._results)
        predicted = [
            _predicted_value(
                cells[key], test, place, recorded.get(tag_of(test.of, test.along, key)), fitted, planned
            )
            for key, place in test.held_out.items()
        ]
        return tuple(sorted(filter(None, predicted), key=lambda value: value.at))


def _predicted_value(
    cell: CellResult,
    test: HeldOutTest,
    at: float,
    recorded: RecordedPrediction | None,
    fitted: Mapping[float, tuple[float, ...]],
    planned: int,
) -> PredictedValue | None:
    most = recorded.prediction.replicates if recorded else None
    runs = cell.runs if cell.replicated else ()
    emerged = [known for known in emergences(runs) if known][:most] if test.of == EMERGED_AT else []
    errors = [middle(each) for each in emerged] or _positive(run[test.of] for run in runs)[:most]
    count = len(errors) or most or planned
    prediction = recorded.for_runs(count) if recorded else predict_from(fitted, at, count, test.of)
    if prediction is None:
        return None
    scored = None
    if errors:
        scored = score_emergence(prediction, emerged) if emerged else score(prediction, np.log(errors))
    censored = sum(not each.emerged for each in emerged)
    return PredictedValue(at, recorded is not None, prediction, tuple(errors), scored, censored)


def _positive(errors: Iterator[float] | Sequence[float]) -> list[float]:
    return [error for error in errors if 0 < error < math.inf]


def _planned(results: Results) -> int:
    return int(results.study.get("replicates") or 1)
