"""Held-out tests in reports: the predictions of a law beside the runs at the predicted values.

A prediction that was recorded before the first predicted trial started is foretold. Without such a record, the same
prediction can be made from the fitted runs as they are now. It is then named "afterwards, not foretold".
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopscale.analysis.results import CellResult, Results
from loopscale.records.predictions import RecordedPrediction, predict_from, recorded_predictions, tag_of
from loopscale.stats.prediction import Prediction, Score, score
from loopscale.studies.held_out import UNSUITED, HeldOutTest, HoldOut, tests_of_law

AFTERWARDS = "afterwards, not foretold"


@dataclass(frozen=True)
class PredictedValue:
    """A held-out value: the law's prediction, and the runs as far as they have finished.

    Attributes
    ----------
    at
        The value on the axis.
    foretold
        True if the prediction was recorded before the first of the runs started.
    prediction
        For the number of finished runs, or for the planned number if none has finished.
    errors
        The measure of each finished run, at most as many as were predicted.
    score
        None without finished runs.
    """

    at: float
    foretold: bool
    prediction: Prediction
    errors: tuple[float, ...]
    score: Score | None

    @property
    def word(self) -> str:
        """The score in a word: hit, miss, not judged, or open without finished runs."""
        if self.score is None:
            return "open"
        return "not judged" if self.score.hit is None else "hit" if self.score.hit else "miss"

    @property
    def label(self) -> str:
        """The score and its errors, short enough for a table."""
        text = f"{self.word} at {self.at:g}"
        if self.score:
            naive = f"last value {self.score.last_value_error:+.2f}, line {self.score.line_error:+.2f}"
            text += f", log error {self.score.log_error:+.2f} ({naive})"
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
        came = math.exp(float(np.mean(np.log(self.errors))))
        errors = f"log error {self.score.log_error:+.2f}"
        naive = f"last value {self.score.last_value_error:+.2f}, straight line {self.score.line_error:+.2f}"
        verdict = f"{self.word}, {self.prediction.reason}" if self.prediction.reason else self.word
        return f"{text}, came {came:.3g}: {verdict}; {errors} ({naive})"


def law_tests(
    results: Results, law: Mapping[str, Any], hold_out: HoldOut | None = None
) -> dict[str, HeldOutTest]:
    """The held-out tests of a law, by the settings that their cells share.

    Parameters
    ----------
    hold_out
        For a law that holds out nothing: values that are held out afterwards.
    """
    asked = law.get("hold_out") or hold_out
    if asked is None or law["along"] in UNSUITED or not results.trained:
        return {}
    tests = tests_of_law({**law, "hold_out": asked}, results.cells, results.trained[0].settings)
    return {test.label: test for test in tests}


def predicted_values(results: Results, test: HeldOutTest) -> tuple[PredictedValue, ...]:
    """The predictions of a test, by value. A cell without a prediction is left out."""
    recorded = recorded_predictions(results.study.get("predictions") or {})
    cells = {cell.key: cell for cell in results.cells}
    fitted = fitted_logs(cells, test)
    predicted = [
        _predicted_value(
            cells[key], test, place, recorded.get(tag_of(test.of, test.along, key)), fitted, _planned(results)
        )
        for key, place in test.held_out.items()
    ]
    return tuple(sorted(filter(None, predicted), key=lambda value: value.at))


def fitted_logs(cells: Mapping[str, CellResult], test: HeldOutTest) -> dict[float, tuple[float, ...]]:
    """The log errors of the fitted cells, by value."""
    fitted: dict[float, tuple[float, ...]] = {}
    for key, place in sorted(test.fitted.items(), key=lambda item: item[1]):
        errors = _positive(run[test.of] for run in cells[key].runs)
        fitted[place] = (*fitted.get(place, ()), *map(math.log, errors))
    return fitted


def _predicted_value(
    cell: CellResult,
    test: HeldOutTest,
    at: float,
    recorded: RecordedPrediction | None,
    fitted: Mapping[float, tuple[float, ...]],
    planned: int,
) -> PredictedValue | None:
    most = recorded.prediction.replicates if recorded else None
    errors = _positive(run[test.of] for run in (cell.runs if cell.replicated else ()))[:most]
    count = len(errors) or most or planned
    prediction = recorded.for_runs(count) if recorded else predict_from(fitted, at, count)
    if prediction is None:
        return None
    scored = score(prediction, np.log(errors)) if errors else None
    return PredictedValue(at, recorded is not None, prediction, tuple(errors), scored)


def _positive(errors: Iterator[float] | Sequence[float]) -> list[float]:
    return [error for error in errors if 0 < error < math.inf]


def _planned(results: Results) -> int:
    return int(results.study.get("replicates") or 1)
