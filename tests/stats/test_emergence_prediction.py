"""Predictions of the step of emergence: coverage, censored runs, and the score of intervals."""

import math

import numpy as np
import pytest

from loopscale.stats.emergence_prediction import predict_emergence, score_emergence
from loopscale.stats.learning import Emergence
from loopscale.stats.prediction import Prediction
from tests.stats.simulated_emergence import DISTRIBUTIONS, censored
from tests.stats.simulations import emergence_coverage

NEVER = math.inf


def predicted(values: int = 4, at: float = 16.0, replicates: int = 3, last: float = NEVER) -> Prediction:
    """The prediction from runs whose step of emergence falls as the power -.5 of the axis."""
    rng = np.random.default_rng(1)
    x = np.repeat(2.0 ** np.arange(values), 3)
    after, by = censored(2000 * x**-0.5 * np.exp(0.1 * rng.standard_normal(len(x))), 20, last)
    found = predict_emergence(x, after, by, at, replicates)
    assert found
    return found


def test_the_prediction_follows_the_law_beside_naive_predictions():
    found = predicted()
    assert found.judged
    assert found.forms[0].form == "power"
    assert found.centre == pytest.approx(math.log(500), abs=0.2)
    assert found.last_value == pytest.approx(math.log(2000 / math.sqrt(8)), abs=0.2)
    assert found.line == pytest.approx(math.log(500), abs=0.4)


def test_censored_runs_count_and_can_leave_naive_predictions_unknown():
    late = predicted(at=0.5, last=1000.0)
    assert late.reason == "the value does not lie beyond the fitted values"
    x = np.repeat([1.0, 2, 4, 8], 3)
    after, by = censored(np.repeat([300.0, 500, 800, 2000], 3) * np.tile([0.9, 1, 1.1], 4), 20, 1200)
    found = predict_emergence(x, after, by, 16.0, 3)
    assert found
    assert found.centre > math.log(1200)
    assert math.isnan(found.last_value)
    assert math.isnan(found.line)


def test_runs_that_determine_no_law_give_no_prediction():
    x = np.repeat([1.0, 2, 4, 8], 3)
    assert predict_emergence(x, np.full(12, 900.0), np.full(12, NEVER), 16.0, 3) is None


@pytest.mark.parametrize(
    ("runs", "hit"),
    [
        ([(490, 500)] * 3, True),
        ([(4900, 5000)] * 3, False),
        ([(49, 50)] * 3, False),
        ([(490, 500), (490, 500), (400, NEVER)], None),
        ([(4000, NEVER)] * 3, False),
        ([(490, 500), (490, 500), (10**6, NEVER)], False),
        ([(0, 500)] * 3, None),
        ([(0, 5)] * 3, False),
    ],
)
def test_the_score_is_what_the_intervals_of_the_runs_allow(runs: list[tuple[float, float]], hit: bool | None):
    prediction = predicted()
    scored = score_emergence(prediction, [Emergence(float(after), float(by)) for after, by in runs])
    assert scored.hit is hit


def test_a_prediction_is_for_its_number_of_runs():
    with pytest.raises(ValueError, match="2 runs, and the prediction is for 3"):
        score_emergence(predicted(), [Emergence(490.0, 500.0)] * 2)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("form", ["power", "exponential"])
def test_the_interval_covers_the_next_value_with_censored_runs(form: str, distribution: str):
    covered, share = emergence_coverage(form, 4, 3, 2000.0, 1, 100, distribution)  # pyright: ignore[reportArgumentType]
    assert share > 0.05
    assert covered >= 0.95 - 3.1 * math.sqrt(0.95 * 0.05 / 100)
