"""A budget of training replaces the steps: every trial gets as many steps as the budget pays for."""

import json
from typing import Any

import pytest

from loopscale.foresight.plan import plan_study
from loopscale.foresight.study_speed import with_speed
from loopscale.notation.mistakes import Mistakes
from loopscale.pricing.speed import GivenRate, MeasuredSpeed
from loopscale.pricing.training_budget import Prices, shape
from loopscale.studies.spec import Study
from loopscale.training.cost import StepCosts, step_flops, training_flops
from loopscale.training.loop import learning_rate, train
from loopscale.training.trial import Training, Trial
from tests.tuned_settings import without_tuned

TASK = {"kind": "linear_regression", "dim": 3, "points": 5}
LOOPED = {"kind": "looped", "width": 16, "heads": 2}
MODELS = [{"kind": "looped"}, {"kind": "gpt2", "layers": 2}, {"kind": "algoformer"}]
FLOPS = 5e9
LR = {"training.lr": {"real": [1e-4, 1e-2], "scale": "log"}}
WIDTH = {"model.width": {"integer": [8, 32], "step": 8}}


def tree(training: dict[str, Any], **changes: Any) -> dict[str, Any]:
    small = {"loops": 4, "window": 2, "eval_every": 20} | training
    fixed = {"task": TASK, "model": LOOPED, "training": small}
    return {"question": "Which is best at equal cost?", "fixed": fixed} | changes


def study(training: dict[str, Any], **changes: Any) -> Study:
    return Study.parse(without_tuned(tree(training, **changes)))


def trials(made: Study) -> list[Trial]:
    return [made.at(cell, {}, 1) for cell in made.cells()]


def mistakes(training: dict[str, Any], **changes: Any) -> list[str]:
    with pytest.raises(Mistakes) as caught:
        study(training, **changes)
    return str(caught.value).splitlines()


def test_every_model_gets_the_flops_of_the_budget_up_to_less_than_one_step():
    made = trials(study({"flops": FLOPS}, scientific={"model": MODELS}))
    assert len({trial.training.steps for trial in made}) == 3
    for trial in made:
        [step] = step_flops(trial).costs
        assert FLOPS - step < training_flops(trial) <= FLOPS


def test_the_schedule_ends_at_the_derived_steps():
    options = {"flops": FLOPS, "schedule": "cosine", "warmup": 10}
    for trial in trials(study(options, scientific={"model": MODELS})):
        steps = trial.training.steps
        assert learning_rate(trial.training, 11) == trial.training.lr
        assert 0 < learning_rate(trial.training, steps) < 0.002 * trial.training.lr


def test_a_curriculum_pays_for_more_steps():
    curriculum = {"dim": 1, "points": 1, "every": 10, "points_by": 2}
    [plain], [trained] = (trials(study({"flops": FLOPS, "curriculum": each})) for each in (None, curriculum))
    assert trained.training.steps > plain.training.steps
    assert training_flops(plain) == pytest.approx(training_flops(trained), rel=0.01)


def test_a_trial_with_a_budget_is_the_trial_with_the_derived_steps():
    [derived] = trials(study({"flops": FLOPS}))
    [given] = trials(study({"steps": derived.training.steps}))
    assert derived.key == given.key
    assert derived.settings["training"]["flops"] == FLOPS
    assert "flops" not in given.settings["training"]
    assert Trial.model_validate_json(derived.model_dump_json()) == derived


def test_a_cell_is_named_by_its_budget_and_not_by_the_steps():
    def keys(budget: float, width: list[int]) -> list[str]:
        nuisance = {"model.width": {"integer": width, "step": 8}}
        return [cell.key for cell in study({"flops": budget}, nuisance=nuisance).cells()]

    assert keys(FLOPS, [8, 32]) == keys(FLOPS, [16, 32]) != keys(2 * FLOPS, [8, 32])


def test_a_tuned_setting_that_changes_the_cost_changes_the_steps():
    made = study({"flops": FLOPS}, nuisance=WIDTH)
    [cell] = made.cells()
    steps = {}
    for width in (8, 16, 24, 32):
        trial = made.at(cell, {"model.width": width}, 0)
        [step] = step_flops(trial).costs
        assert FLOPS - step < training_flops(trial) <= FLOPS
        steps[width] = trial.training.steps
    assert steps[8] > steps[16] > steps[24] > steps[32]


def test_a_plan_shows_the_derived_steps_and_equal_flops():
    made = study({"flops": FLOPS}, scientific={"model": MODELS})
    planned = plan_study(made, rate=1e9, workers=1)
    assert [cell.steps for cell in planned.cells] == [(t.training.steps,) * 2 for t in trials(made)]
    for cell in planned.cells:
        assert cell.flops == pytest.approx((FLOPS, FLOPS), rel=0.02)


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "steps too": ({"flops": 1e9, "steps": 100}, {}, "training has steps and flops; keep one of them"),
    "two budgets": ({"flops": 1e9, "seconds": 9}, {}, "training has flops and seconds; keep one of them"),
    "varied steps too": (
        {"flops": 1e9},
        {"scientific": {"training.steps": [100, 200]}},
        "training has steps and flops; keep one of them",
    ),
    "negative": ({"flops": -1.0}, {}, "training.flops is -1.0; write a number above 0"),
    "text": ({"seconds": "long"}, {}, "training.seconds is 'long'; write a number"),
    "tuned steps": (
        {"flops": 1e9},
        {"nuisance": {"training.steps": {"integer": [100, 200]}}},
        "training has steps and flops; keep one of them",
    ),
    "tuned budget": (
        {},
        {"nuisance": {"training.flops": {"real": [1e9, 1e10]}}},
        "tuning would only find the largest budget; put training.flops under fixed or scientific",
    ),
    "less than a step": (
        {"flops": 10.0},
        {},
        "pays for 0 steps, less than one report; write 5.37e+08 or more",
    ),
    "warm-up": (
        {"flops": 1e9, "warmup": 300},
        {},
        "pays for 37 steps, less than the warm-up of 300; write 8.05e+09 or more, or a smaller warmup",
    ),
    "curriculum": (
        {"flops": 1e9, "curriculum": {"dim": 1, "points": 1, "every": 100}},
        {},
        "but the curriculum ends at step 200; write",
    ),
    "condition on steps": (
        {"flops": 1e10},
        {"where": "training.steps > 100"},
        "where names training.steps, which follows from the budget of each cell; name the budget",
    ),
    "condition on steps of a component": (
        {},
        {"where": "training.steps > 100", "scientific": {"training": [{"flops": 1e10}, {"flops": 2e10}]}},
        "where names training.steps, which follows from the budget of each cell; name the budget",
    ),
    "endless": ({"flops": 1e30}, {}, "write less than 2.68e+19"),
    "scheduler": (
        {"flops": 1e10},
        {"nuisance": WIDTH, "scheduler": {"kind": "asha", "first_rung": 20}},
        "asha compares trials at equal steps, but training.flops gives the trials of a cell",
    ),
    "two objectives": (
        {"flops": 1e10},
        {"nuisance": WIDTH, "search": {"kind": "nsga2", "objectives": ["error", "flops"], "trials": 4}},
        "search.objectives has flops, but training.flops gives every trial the same budget",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_line(name: str):
    training, changes, words = WRONG[name]
    lines = mistakes(training, **changes)
    assert len(lines) == 1, lines
    assert words in lines[0]


def test_of_many_cells_with_too_small_a_budget_the_most_expensive_tells_the_remedy():
    axes = {"model.width": [8, 64, 16], "training.loops": [2, 4]}
    [line] = mistakes({"flops": 1e7}, scientific=axes)
    needed = float(line.split("write ")[1].split(" or more")[0])
    assert all(trial.training.steps >= 20 for trial in trials(study({"flops": needed}, scientific=axes)))
    assert mistakes({"flops": 0.98 * needed}, scientific=axes)


def test_a_scheduler_may_prune_if_all_trials_of_a_cell_have_equal_steps():
    pruned = {"kind": "asha", "first_rung": 20}
    made = study({"flops": FLOPS}, scientific={"model": MODELS}, nuisance=LR, scheduler=pruned)
    assert len({trial.training.steps for trial in trials(made)}) == 3


def test_a_budget_outside_a_study_needs_steps():
    with pytest.raises(
        ValueError, match="flops is a budget, from which a study derives the steps; write steps"
    ):
        Training(flops=1e9)
    with pytest.raises(ValueError, match="seconds is a budget"):
        Training(seconds=10.0)


def test_recorded_prices_hold_against_a_later_count():
    made = study({"flops": FLOPS}, scientific={"model": MODELS})
    counted = trials(made)
    doubled = Prices({"flops": {shape(counted[0]): StepCosts((0,), (2 * step_flops(counted[0]).costs[0],))}})
    document = json.loads(json.dumps(made.at_prices(doubled).document()["prices"]))
    resumed = trials(made.at_prices(Prices.of_document(document)))
    assert [trial.training.steps for trial in resumed] == [
        counted[0].training.steps // 2,
        counted[1].training.steps,
        counted[2].training.steps,
    ]
    assert len(document["flops"]) == 3


def test_replicates_rates_and_schedules_share_a_price():
    first, *others = (
        Trial.model_validate(
            {"task": TASK, "model": LOOPED, "training": {"steps": 90} | changes, "seed": seed}
        )
        for changes, seed in (
            ({}, 0),
            ({"lr": 0.1, "warmup": 3, "schedule": "cosine"}, 4),
            ({"flops": 1e9}, 0),
            ({"loops": 12}, 0),
            ({"recompute": True}, 0),
        )
    )
    assert [shape(other) == shape(first) for other in others] == [True, True, False, False]


def test_seconds_wait_for_a_speed():
    made = study({"seconds": 2.0}, scientific={"model": MODELS})
    assert made.unpriced
    assert not study({"flops": FLOPS}).unpriced
    priced = with_speed(made, rate=1e9)
    assert not priced.unpriced
    [of_flops, of_seconds] = trials(study({"flops": 2e9})), trials(priced)
    assert of_flops[0].training.steps == of_seconds[0].training.steps
    assert [cell.key for cell in priced.cells()] == [cell.key for cell in made.cells()]


def test_the_measured_speed_of_the_first_start_gives_the_same_steps_on_every_machine():
    made = study({"seconds": 600}, scientific={"model": MODELS}, nuisance=WIDTH)
    first = with_speed(made)
    assert isinstance(first.prices.speed, MeasuredSpeed)
    document = json.loads(json.dumps(first.document()["prices"]))
    elsewhere = with_speed(made.at_prices(Prices.of_document(document)), rate=1e3)
    for before, after in zip(first.cells(), elsewhere.cells(), strict=True):
        for width in (8, 16, 32):
            point = {"model.width": width}
            assert first.at(before, point, 1) == elsewhere.at(after, point, 1)
    assert elsewhere.prices == first.prices


def test_a_budget_of_seconds_below_one_report_is_one_line():
    with pytest.raises(Mistakes) as caught:
        with_speed(study({"seconds": 1.0}, scientific={"model": MODELS}), rate=1e6)
    [line] = str(caught.value).splitlines()
    assert "training.seconds 1 pays for 0 steps, less than one report; write" in line


def test_seconds_on_a_gpu_that_this_machine_lacks_need_a_rate(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    made = study({"seconds": 2.0}, resources={"gpu": 1})
    with pytest.raises(Mistakes, match="this machine has no GPU; give the FLOP/s of one trial as --rate"):
        with_speed(made)
    assert with_speed(made, rate=1e9).prices.speed == GivenRate(1e9)


def test_settings_without_a_budget_are_recorded_as_before():
    made = study({"steps": 90})
    assert "prices" not in made.document()
    assert not {"flops", "seconds"} & trials(made)[0].settings["training"].keys()


def test_the_budgeted_steps_are_trained():
    [trial] = trials(study({"flops": 1e9, "schedule": "cosine"}))
    assert [progress.step for progress in train(trial)] == [20, 37]


def test_a_training_stopped_half_way_goes_on_exactly_after_a_new_derivation():
    options = {"flops": 2e9, "schedule": "cosine", "warmup": 5}
    [trial] = trials(study(options))
    whole = [(progress.step, progress.metrics) for progress in train(trial)]
    stopped = next(train(trial))
    state, first = stopped.state(), (stopped.step, stopped.metrics)
    document = study(options).at_prices(Prices()).document()["prices"]
    [again] = trials(study(options).at_prices(Prices.of_document(document)))
    assert [first, *((progress.step, progress.metrics) for progress in train(again, state))] == whole
