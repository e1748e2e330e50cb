"""Held-out values of laws: which cells a law has to predict, and mistakes that are found before anything runs."""

from typing import Any

import pytest
import yaml

from loopscale.foresight.plan import plan_study
from loopscale.notation.mistakes import Mistakes
from loopscale.studies.held_out import has_circle, held_out_tests, waits_for
from loopscale.studies.spec import Study

LOOPS = [1, 2, 4, 8, 16]
BASE: dict[str, Any] = {
    "question": "Does the law predict?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 3},
        "model": {"kind": "looped", "width": 4, "heads": 1},
        "training": {"steps": 90, "eval_every": 10, "window": 1},
    },
    "scientific": {"training.loops": LOOPS},
    "replicates": 2,
}
WRONG = """\
hold_out leaves 0 values of training.loops: {laws: [{hold_out: 5}]}
hold_out leaves 2 values of training.loops for the fit of the law; leave at least 3: {laws: [{hold_out: 3}]}
hold_out names 7, which is no value of training.loops; write some of 1, 2, 4, 8: {laws: [{hold_out: [7]}]}
hold_out is 0; write a number of values: {laws: [{hold_out: 0}]}
hold_out is True; write a number of values: {laws: [{hold_out: true}]}
hold_out is []; write a number of values: {laws: [{hold_out: []}]}
each run is a whole curve along loop: {laws: [{along: loop, hold_out: 1}]}
each run is a whole curve along point: {laws: [{along: point, hold_out: 1}]}
the FLOPs of a cell may follow from its tuning: {laws: [{along: flops, hold_out: 1}]}
training.batch_size is tuned:
  laws: [{along: prompts, hold_out: 1}]
  study:
    scientific: {training.steps: [100, 200, 400, 800]}
    nuisance: {training.batch_size: {choice: [8, 16]}}
"write replicates: 2 or more": {laws: [{hold_out: 1}], study: {replicates: 1}}
two laws of error along training.loops hold out different values: {laws: [{hold_out: 1}, {hold_out: 2}]}
no combination of the other settings has 3 fitted values:
  laws: [{hold_out: 1}]
  study:
    scientific: {training.loops: [1, 2, 4, 8], model.heads: [1, 2]}
    where: model.heads == 1 and training.loops <= 4 or model.heads == 2 and training.loops >= 2
hold out each other's cells: {laws: [{hold_out: [1]}, {of: error_last, hold_out: [16]}]}
"""
"""The words of the mistake, with the laws and the changes of the study that make it."""
NOT_JUDGED = [
    (
        2,
        "the predictions of training.loops 8 and 16 are recorded, but not judged: 3 fitted values are too few",
    ),
    ([2], "the prediction of training.loops 2 is recorded, but not judged: the value does not lie beyond"),
]


def study(*laws: dict[str, Any], **changes: Any) -> Study:
    return Study.parse(BASE | {"laws": [{"along": "training.loops"} | law for law in laws]} | changes)


def find_tests(made: Study):
    return held_out_tests([law.model_dump() for law in made.laws], made.cells(), made.layout.shared_settings)


@pytest.mark.parametrize(("hold_out", "values"), [(1, [16]), (2, [8, 16]), ([2], [2]), ([16, 1], [1, 16])])
def test_the_largest_or_the_named_values_are_held_out(hold_out: Any, values: list[float]):
    [test] = find_tests(study({"hold_out": hold_out}))
    assert sorted(test.held_out.values()) == values
    assert sorted(test.fitted.values()) == [value for value in LOOPS if value not in values]


def test_every_combination_of_the_other_settings_is_a_test_of_its_own():
    axes = {"training.loops": LOOPS, "model.heads": [1, 2]}
    one, two = find_tests(study({"hold_out": 1}, {"hold_out": 1, "form": "exponential"}, scientific=axes))
    assert (one.label, two.label) == ("heads=1", "heads=2")
    assert not {*one.fitted, *one.held_out} & {*two.fitted, *two.held_out}


def test_a_combination_with_too_few_fitted_values_has_no_test():
    axes = {"training.loops": LOOPS, "training.window": [1, 4]}
    [test] = find_tests(
        study({"hold_out": 1}, scientific=axes, where="training.window == 1 or training.loops >= 8")
    )
    assert test.label == "window=1"


def test_prompts_are_held_out_by_the_steps_of_the_cells():
    [test] = find_tests(
        study({"along": "prompts", "hold_out": 1}, scientific={"training.steps": [10, 20, 40, 80]})
    )
    assert list(test.held_out.values()) == [80 * 64]


def test_crossed_laws_wait_without_a_circle():
    axes = {"training.loops": LOOPS, "task.noise": [0.1, 0.2, 0.4, 0.8]}
    made = study({"hold_out": 1}, {"along": "task.noise", "hold_out": 1}, scientific=axes)
    assert not has_circle(waits_for(find_tests(made)))


@pytest.mark.parametrize(("words", "case"), yaml.safe_load(WRONG).items())
def test_a_hold_out_that_predicts_nothing_is_one_line_before_anything_runs(words: str, case: dict[str, Any]):
    with pytest.raises(Mistakes) as caught:
        study(*case["laws"], **case.get("study", {}))
    assert len(caught.value.items) == 1
    assert words in str(caught.value)


def prediction_warnings(hold_out: Any) -> list[str]:
    warnings = plan_study(study({"hold_out": hold_out}), rate=1e9, workers=2).warnings
    return [line for line in warnings if "prediction" in line]


def test_the_plan_does_not_warn_of_a_judged_prediction():
    assert not prediction_warnings(1)


@pytest.mark.parametrize(("hold_out", "begin"), NOT_JUDGED)
def test_the_plan_says_in_one_line_that_a_prediction_is_not_judged(hold_out: Any, begin: str):
    [line] = prediction_warnings(hold_out)
    assert line.startswith(begin)
