"""Predictions of laws as records: tags of a study's parent run, written before the predicted trials start.

A tag holds the prediction and the fitted log errors. If fewer runs finish than were planned, the interval for their
number follows from the recorded errors, and never from errors that came later.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from loopscale.records.model import STUDY, Note
from loopscale.stats.prediction import FormPrediction, Prediction, predict

PREDICTION = "prediction/"
"""Prefix of the tags `prediction/<measure>/<axis>/<cell>`."""
LONGEST_TAG = 7_500
"""Characters. MLflow keeps 8,000. A longer tag is written without the fitted errors."""
DIGITS = 10
"""Significant digits of recorded numbers."""


@dataclass(frozen=True)
class RecordedPrediction:
    """A prediction of one cell.

    Attributes
    ----------
    of, along
        The measure and the axis of the law.
    cell
        The key of the predicted cell.
    prediction
        The prediction for the planned number of replicates.
    fitted
        The log errors of the fitted runs, by the value on the axis. Empty if the tag would be too long.
    at
        The time of the record, in milliseconds since 1970.
    """

    of: str
    along: str
    cell: str
    prediction: Prediction
    fitted: Mapping[float, tuple[float, ...]]
    at: int = 0

    @property
    def tag(self) -> str:
        return tag_of(self.of, self.along, self.cell)

    def for_runs(self, count: int) -> Prediction | None:
        """The prediction of the mean of `count` runs, from the recorded errors; None if there are no such errors."""
        if count == self.prediction.replicates:
            return self.prediction
        return predict_from(self.fitted, self.prediction.at, count)

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


def prediction_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that hold a prediction."""
    return {name: text for name, text in tags.items() if name.startswith(PREDICTION)}


def predict_from(fitted: Mapping[float, tuple[float, ...]], at: float, replicates: int) -> Prediction | None:
    """The prediction at a value of the axis from log errors by value; None if they determine no form."""
    x = np.array([value for value, logs in fitted.items() for _ in logs], dtype=np.float64)
    logs = np.array([log for logs in fitted.values() for log in logs], dtype=np.float64)
    return predict(x, logs, at, replicates) if len(x) else None


def recorded_predictions(tags: Mapping[str, str]) -> dict[str, RecordedPrediction]:
    """The predictions among the tags of a parent run, by tag. Damaged tags are left out."""
    found: dict[str, RecordedPrediction] = {}
    for tag, text in prediction_tags(tags).items():
        try:
            of, along, cell = tag.removeprefix(PREDICTION).split("/")
            found[tag] = _read(of, along, cell, json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError):
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
