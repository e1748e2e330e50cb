"""Predictions of laws as records: tags of a study's parent run, written before the predicted trials start.

A tag holds the prediction and the fitted log errors. If fewer runs finish than were planned, the interval for their
number follows from the recorded errors, and never from errors that came later.

For a law of the step of emergence, each fitted run has two numbers in place of a log error: the last report before the
emergence, and the first report after. The second number of a run that never emerges is infinite.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from loopscale.records.model import DAMAGE, PREDICTION, STUDY, Note, tags_below
from loopscale.stats.milestones import EMERGED_AT
from loopscale.stats.prediction import FormPrediction, Prediction, predict

LONGEST_TAG = 7_500
"""Characters. MLflow keeps 8,000. A longer tag is written without the fitted errors."""
DIGITS = 10
"""Significant digits of recorded numbers."""


@dataclass(frozen=True)
class RecordedPrediction:
    """A prediction of one cell."""

    of: str
    """The measure of the law."""
    along: str
    """The axis of the law."""
    cell: str
    """The key of the predicted cell."""
    prediction: Prediction
    """The prediction for the planned number of replicates."""
    fitted: Mapping[float, tuple[float, ...]]
    """The log errors of the fitted runs, by the value on the axis. Empty if the tag would be too long. For the step of
    emergence, the two ends of each run's interval."""
    at: int = 0
    """The time of the record, in milliseconds since 1970."""

    @property
    def tag(self) -> str:
        return tag_of(self.of, self.along, self.cell)

    def for_runs(self, count: int) -> Prediction | None:
        """The prediction of the mean of `count` runs, from the recorded errors; None if there are no such errors."""
        if count == self.prediction.replicates:
            return self.prediction
        made = predict_from(self.fitted, self.prediction.at, count, self.of)
        # A prediction that was recorded without a level stays without a level.
        return made and replace(made, reason=self.prediction.reason or made.reason)

    def note(self) -> Note:
        """The note that records the prediction."""
        note = Note(STUDY)
        content: dict[str, Any] = asdict(self.prediction) | {"time": note.at}
        fitted = {f"{value:g}": _rounded(logs) for value, logs in self.fitted.items()}
        text = json.dumps(_rounded(content) | {"fitted": fitted})
        if len(text) > LONGEST_TAG:
            text = json.dumps(_rounded(content))
        return Note(STUDY, tags={self.tag: text}, at=note.at)


def tag_of(of: str, along: str, cell: str) -> str:
    return f"{PREDICTION}{of}/{along}/{cell}"


def predict_from(
    fitted: Mapping[float, tuple[float, ...]], at: float, replicates: int, of: str = "error"
) -> Prediction | None:
    """The prediction of a measure at a value of the axis, from fitted runs by value; None if they determine no form.

    A run is a log error or, for `emerged_at`, both ends of the interval of its emergence.
    """
    width = 2 if of == EMERGED_AT else 1
    runs = np.array([number for numbers in fitted.values() for number in numbers]).reshape(-1, width)
    if not len(runs):
        return None
    x = np.repeat(np.array(list(fitted), dtype=np.float64), [len(each) // width for each in fitted.values()])
    if of == EMERGED_AT:
        from loopscale.stats.emergence_prediction import predict_emergence  # few laws are of the emergence

        return predict_emergence(x, runs[:, 0], runs[:, 1], at, replicates)
    return predict(x, runs[:, 0], at, replicates)


def recorded_predictions(tags: Mapping[str, str]) -> dict[str, RecordedPrediction]:
    """The predictions among the tags of a parent run, by tag. Damaged tags are left out."""
    found: dict[str, RecordedPrediction] = {}
    for tag, text in tags_below(PREDICTION, tags).items():
        try:
            of, along, cell = tag.removeprefix(PREDICTION).split("/")
            found[tag] = _read(of, along, cell, json.loads(text))
        except DAMAGE:
            continue
    return found


def _read(of: str, along: str, cell: str, content: dict[str, Any]) -> RecordedPrediction:
    fitted = {float(value): tuple(map(float, logs)) for value, logs in content.get("fitted", {}).items()}
    forms = tuple(FormPrediction(**_numbers(form)) for form in content["forms"])
    names = ("at", "centre", "low", "high", "last_value", "line")
    numbers = {name: float(content[name]) for name in names}
    prediction = Prediction(
        replicates=int(content["replicates"]), forms=forms, reason=str(content["reason"]), **numbers
    )
    return RecordedPrediction(of, along, cell, prediction, fitted, int(content["time"]))


def _numbers(form: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if name == "form" else float(value) for name, value in form.items()}


def _rounded(value: Any) -> Any:
    """JSON has no infinity, so an infinite number is its text, which `float` reads."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list | tuple) else value
