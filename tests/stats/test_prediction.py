"""Predictions of held-out values: intervals by hand, rules of judging, scores, and coverage."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from loopscale.stats.contrasts import Array
from loopscale.stats.forms.base import variants
from loopscale.stats.prediction import (
    FORMS,
    NEAR_AICC,
    Prediction,
    predict,
    predict_batch,
    prediction_crps,
    score,
    union,
    why_not_judged,
)
from tests.stats.simulations import OTHER_TRUTHS, PAGE, TRUTHS, prediction_coverage, table_on_page

RULES = ("union", "best AICc")


def runs(
    truth: str, values: int = 5, replicates: int = 3, noise: float = 0.05, seed: int = 0
) -> tuple[Array, Array]:
    """Places and log errors at x = 1, 2, 4 .."""
    x = np.repeat(2.0 ** np.arange(values), replicates)
    return x, TRUTHS[truth](x) + noise * np.random.default_rng(seed).standard_normal(len(x))


def some(prediction: Prediction | None) -> Prediction:
    assert prediction is not None
    return prediction


def lowest(share: float, draws: int) -> float:
    """A simulated share that is lower with a chance of .1 %, if this is the true share."""
    return share - 3.1 * math.sqrt(share * (1 - share) / draws)


# The interval of one form


def test_the_interval_of_a_power_equals_the_interval_of_a_regression():
    x, logs = runs("power 1", noise=0.2)
    (power,) = predict_batch(x, logs[None], 32.0, 4, variants("power"))
    line = stats.linregress(np.log(x), logs)
    residual = logs - line.intercept - line.slope * np.log(x)
    off = np.log(x) - np.log(x).mean()
    leverage = 1 / 15 + (math.log(32) - np.log(x).mean()) ** 2 / (off**2).sum()
    within = sum(((group - group.mean()) ** 2).sum() for group in logs.reshape(5, 3))
    variance = max((residual**2).sum() / 13, within / 10)
    half = stats.t.ppf(0.975, 13) * math.sqrt(variance * (1 / 4 + leverage))
    centre = line.intercept + line.slope * math.log(32)
    assert (power.low[0], power.high[0]) == pytest.approx((centre - half, centre + half), rel=1e-5)
    square = float((residual**2).sum())
    assert power.aicc[0] == pytest.approx(15 * math.log(square / 15) + 6 * 15 / 11, rel=1e-6)


def test_values_with_more_replicates_weigh_more():
    x = np.array([1.0, 1, 2, 4, 4, 4, 8])
    logs = -np.log(x) + 0.1 * np.random.default_rng(0).standard_normal(7)
    (power,) = predict_batch(x, logs[None], 16.0, 3, variants("power"))
    line = stats.linregress(np.log(x), logs)
    assert power.centre[0] == pytest.approx(line.intercept + line.slope * math.log(16), rel=1e-5)


@pytest.mark.parametrize(
    "truth", ["power 1", "power 1 + floor .1", "exponential .2", "exponential .5 + floor .1"]
)
def test_the_true_form_predicts_a_curve_without_noise(truth: str):
    x, _ = runs(truth)
    logs = TRUTHS[truth](x) + 1e-4 * np.tile([-1, 0, 1], 5)
    prediction = some(predict(x, logs, 32.0, 3))
    assert prediction.centre == pytest.approx(TRUTHS[truth](np.array([32.0]))[0], abs=1e-3)
    assert prediction.low < prediction.centre < prediction.high


def test_new_runs_at_an_end_of_the_interval_are_just_possible():
    """The ends by a grid search: the new mean joins the fit, and the squares rise by t² times the variance."""
    x, logs = runs("power 1 + floor .1", values=4, noise=0.1)
    (floor,) = predict_batch(x, logs[None], 16.0, 3, variants("power_floor"))
    means, ahead = logs.reshape(4, 3).mean(1), 2.0 ** np.arange(5)
    rates, floors = np.linspace(0.02, 4, 400), np.concatenate([[0.0], np.geomspace(1e-4, 3, 600)])
    shapes = np.log((ahead ** -rates[:, None])[:, None] + floors[:, None])

    def squares(y: Array, shape: Array) -> float:
        off = y - shape
        return float((3 * (off - off.mean(-1, keepdims=True)) ** 2).sum(-1).min())

    least = squares(means, shapes[..., :4])
    within = ((logs.reshape(4, 3) - means[:, None]) ** 2).sum()
    variance = max((within + least) / 9, within / 8)
    for end in (floor.low[0], floor.high[0]):
        rise = squares(np.append(means, end), shapes) - least
        assert rise / variance == pytest.approx(stats.t.ppf(0.975, 9) ** 2, rel=0.03)


@pytest.mark.slow
def test_further_steps_of_the_search_leave_the_ends(monkeypatch: pytest.MonkeyPatch):
    """A search that refuses the value of its convergence doubles the distance by the last bit of a step."""
    x, _ = runs("power 1 + floor .1")
    noise = 0.05 * np.random.default_rng(0).standard_normal((40, len(x)))
    truths = ("power 1 + floor .1", "power .7 + floor .03", "exponential .5 + floor .1")
    logs = np.concatenate([TRUTHS[truth](x) + noise for truth in truths])
    with_floor = [form for form in variants("exponential") + variants("power_floor") if form.size > 2]

    def ends(steps: int) -> Array:
        monkeypatch.setattr("loopscale.stats.prediction.PROFILE_STEPS", steps)
        return np.array([(one.low, one.high) for one in predict_batch(x, logs, 32.0, 3, with_floor)])

    first = ends(8)
    for steps in (9, 12, 16):
        np.testing.assert_allclose(ends(steps), first, atol=1e-3)


def test_more_new_runs_narrow_the_interval():
    ends = [some(predict(*runs("power 1"), 32.0, count)) for count in (1, 3, 100)]
    widths = [one.high - one.low for one in ends]
    assert widths == sorted(widths, reverse=True)


# The union


def test_the_interval_is_the_union_of_the_forms_near_the_best():
    x, logs = runs("power .7 + floor .03", noise=0.15)
    prediction = some(predict(x, logs, 32.0, 3))
    found = predict_batch(x, logs[None], 32.0, 3)
    least = min(float(one.aicc[0]) for one in found)
    near = [
        one.first() for one in sorted(found, key=lambda one: one.aicc[0]) if one.aicc[0] <= least + NEAR_AICC
    ]
    assert list(prediction.forms) == near
    assert len(near) > 1
    low, high = min(one.low for one in near), max(one.high for one in near)
    assert (prediction.low, prediction.high) == (low, high)
    assert [float(end[0]) for end in union(found)] == [low, high]


def test_a_form_far_from_the_best_does_not_contribute():
    prediction = some(predict(*runs("exponential .2", noise=0.02), 32.0, 3))
    assert {one.form for one in prediction.forms} <= {"exponential", "exponential with floor"}


def test_many_sets_of_runs_have_the_predictions_of_each():
    x, _ = runs("power 1")
    logs = np.stack([runs("power 1 + floor .1", seed=seed, noise=0.1)[1] for seed in range(5)])
    low, high = union(predict_batch(x, logs, 32.0, 3))
    for place, own in enumerate(logs):
        alone = some(predict(x, own, 32.0, 3))
        assert (alone.low, alone.high) == pytest.approx((low[place], high[place]), rel=1e-3)


def test_a_value_of_zero_leaves_the_forms_without_a_logarithm():
    x = np.repeat([0.0, 1, 2, 3, 4], 2)
    logs = -0.5 * x + 0.01 * np.tile([-1, 1], 5)
    prediction = some(predict(x, logs, 5.0, 2))
    assert {one.form for one in prediction.forms} <= {"exponential", "exponential with floor"}
    assert prediction.judged
    below = some(predict(x - 4, logs, 1.0, 2))
    assert (below.centre, below.line) == pytest.approx((-2.5, -2.5), abs=1e-6)


def test_one_run_at_each_value_gives_no_prediction():
    x = 2.0 ** np.arange(6)
    assert predict(x, -np.log(x), 64.0, 1) is None
    assert predict(np.repeat(x[:2], 3), np.zeros(6), 4.0, 3) is None


# What is judged


@pytest.mark.parametrize(
    ("values", "at", "reason"),
    [
        ([1, 2, 4, 8], 16, ""),
        ([1, 2, 3, 4], 5, ""),
        ([3, 6, 11, 22], 45, ""),
        ([3, 6, 11, 22], 200, "further away than 3 steps"),
        ([10, 100, 1000, 10_000], 100_000, ""),
        ([1, 2, 4, 8], 64, ""),
        ([1, 2, 4, 8], 128, "further away than 3 steps"),
        ([1, 2, 3, 4], 8, ""),
        ([1, 2, 3, 4], 10, "further away than 3 steps"),
        ([1, 2, 4], 8, "too few"),
        ([1, 2, 4, 8, 16], 12, "not lie beyond"),
        ([0, 1, 2, 3], 4, ""),
        ([0, 1, 2, 3], 6, ""),
        ([0, 1, 2, 3], 12, "further away than 3 steps"),
    ],
)
def test_values_up_to_three_steps_after_four_values_are_judged(values: list[int], at: int, reason: str):
    because = why_not_judged(np.array(values, dtype=np.float64), float(at))
    assert reason in because
    assert bool(because) == bool(reason)


@pytest.mark.parametrize(("at", "steps"), [(16.0, 1), (32.0, 2), (64.0, 3)])
def test_the_interval_of_a_far_value_grows_by_the_steps(at: float, steps: int):
    x, logs = runs("power 1 + floor .1", values=4)
    prediction = some(predict(x, logs, at, 3))
    low, high = (float(end[0]) for end in union(predict_batch(x, logs[None], at, 3)))
    assert prediction.judged
    assert prediction.high - prediction.low == pytest.approx(steps * (high - low), rel=1e-3)
    assert prediction.high + prediction.low == pytest.approx(high + low, rel=1e-3)


@pytest.mark.slow
def test_a_far_value_is_covered_about_as_often_as_the_next_value():
    for truth in ("power .7 + floor .03", "(ln(1 + x))^-1"):
        following, far = (prediction_coverage(truth, 6, 3, 0.05, ahead, 60) for ahead in (1, 3))
        assert far["widened"] >= following["union"] - 0.03
        if truth in OTHER_TRUTHS:
            assert far["union"] < following["union"] - 0.2


def test_an_extrapolation_is_scored_without_hit_or_miss():
    x, logs = runs("power 1", values=4)
    prediction = some(predict(x, logs, 128.0, 2))
    assert not prediction.judged
    assert score(prediction, np.array([-3.4, -3.5])).hit is None


def test_the_score_names_a_hit_and_the_errors_of_naive_predictions():
    x = np.repeat(2.0 ** np.arange(4), 2)
    logs = -np.log(x) + 0.05 * np.tile([-1, 1], 4)
    prediction = some(predict(x, logs, 16.0, 2))
    truth = -math.log(16)
    hit = score(prediction, np.array([truth, truth]))
    assert hit.hit
    assert hit.log_error == pytest.approx(0, abs=1e-6)
    assert hit.last_value_error == pytest.approx(-math.log(2))
    assert hit.line_error == pytest.approx(0, abs=1e-9)
    miss = score(prediction, np.array([truth + 3.0, truth + 3.0]))
    assert miss.hit is False
    assert miss.log_error == pytest.approx(3.0)


@pytest.mark.parametrize("came", [-2.0, -0.4, 0.0, 1.3])
def test_the_score_of_a_symmetric_prediction_is_that_of_a_normal_distribution(came: float):
    prediction = some(predict(*runs("power 1"), 32.0, 2))
    sd = 0.3
    half = sd * stats.norm.ppf(0.975)
    normal = replace(prediction, centre=0.0, low=-half, high=half)
    z = came / sd
    exact = sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    assert prediction_crps(normal, came) == pytest.approx(exact, rel=2e-3)


def test_a_hit_of_a_wide_interval_is_worse_than_a_near_guess():
    prediction = some(predict(*runs("power 1"), 32.0, 2))
    wide = replace(prediction, centre=0.0, low=-1.5, high=1.5, last_value=1.2, line=5.0)
    found = score(wide, np.array([0.9, 0.9]))
    assert found.hit
    assert found.crps > abs(found.last_value_error)
    assert found.worse_than == ("the last value",)
    assert score(replace(wide, low=-math.inf), np.array([0.9, 0.9])).worse_than == (
        "the last value",
        "a straight line",
    )


def test_a_hit_ends_at_the_edges_of_the_interval():
    prediction = some(predict(*runs("power 1"), 32.0, 2))
    for end, outwards in ((prediction.low, -1e-9), (prediction.high, 1e-9)):
        assert score(prediction, np.array([end - outwards] * 2)).hit
        assert not score(prediction, np.array([end + outwards] * 2)).hit


def test_another_number_of_runs_needs_another_prediction():
    prediction = some(predict(*runs("power 1"), 32.0, 3))
    with pytest.raises(ValueError, match="predict from the same fitted runs for 2"):
        score(prediction, np.array([-3.4, -3.5]))


# Coverage


def test_the_union_covers_the_next_value_of_every_truth():
    """The page's table, which `test_simulations.py` computes again, has the least coverage of 200 draws in each row."""
    table = table_on_page(PAGE.read_text(), "predictions")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    covered = {tuple(row[:3]): [int(cell.split()[0]) for cell in row[3:]] for row in rows if row[0] == "next"}
    assert len(covered) == 6
    for least, _, alone in covered.values():
        assert least / 100 >= lowest(0.93, 200)
        assert least > alone


def test_without_the_true_form_the_union_misses():
    shares = prediction_coverage("exponential .5 + floor .1", 4, 3, 0.05, 1, 200)
    assert shares["three forms"] < 0.05
    assert shares["union"] >= lowest(0.91, 200)


def test_a_power_without_a_floor_misses_a_power_with_a_floor():
    shares = prediction_coverage("power 1 + floor .1", 6, 3, 0.05, 1, 200)
    assert shares["power"] < 0.05
    assert shares["exponential"] < 0.05


@pytest.mark.slow
def test_the_form_with_the_best_aicc_alone_covers_too_little():
    shares = prediction_coverage("power .7 + floor .03", 5, 3, 0.05, 1, 600)
    assert shares["best AICc"] < 0.9 < shares["union"]


def test_each_form_is_fitted_with_and_without_a_floor():
    assert [form.size for form in FORMS] == [2, 2, 3, 3]
