"""The expected share of learnt runs: from the shipped table, and from a study's own records."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from loopscale.foresight.learning_times import (
    ANY,
    EMERGENCE_FILE,
    EmergenceTable,
    PlannedRuns,
    RecordedCell,
    shipped_times,
)
from loopscale.foresight.recipes import ANY_RECIPE, USUAL, Covariates, Recipe
from loopscale.training.trial import Trial

ADAM, MUON = Recipe("adam", "0.02"), Recipe("muon", "0.1")


def planned(
    steps: int, model: str = "looped", task: str = "linear_regression", label: str = ""
) -> PlannedRuns:
    return PlannedRuns(label, task, model, steps, 3, ADAM)


def test_the_expected_share_grows_with_the_steps_of_the_study():
    shares = [shipped_times().expected_learning([planned(steps)])[0].share for steps in (200, 1_000, 8_000)]
    assert shares == sorted(shares)
    assert shares[0] < 0.2
    assert shares[1] == pytest.approx(0.35, abs=0.15)
    assert shares[2] > 0.9


def test_an_unknown_model_has_the_row_of_the_task():
    known, model = (
        shipped_times().expected_learning([planned(1_000, kind)])[0] for kind in ("looped", "new")
    )
    assert known.source == "looped on linear_regression with adam and init_std 0.02"
    assert model.source == "all models on linear_regression"
    assert model.runs > known.runs


def test_of_a_task_without_a_recorded_net_nothing_is_known_but_by_own_records():
    runs = [planned(1_000, task="new"), planned(1_000, "gpt2", task="new"), planned(1_000)]
    assert [each.source for each in shipped_times().expected_learning(runs)] == [
        "looped on linear_regression with adam and init_std 0.02"
    ]
    assert shipped_times().chance_that_all_learn(runs) == shipped_times().chance_that_all_learn(runs[2:])
    (sentence,) = shipped_times().unknown_learning(runs)
    assert sentence.startswith(
        "how many looped and gpt2 learn on new is not known, because no net was recorded there"
    )
    own = [RecordedCell("own", "a", "new", "looped", 1_000, ((200.0, 300.0),) * 3, ADAM)]
    assert shipped_times().expected_learning(runs, own)[0].source == "all models on all tasks"
    (sentence,) = shipped_times().unknown_learning(runs, own)
    assert sentence.startswith("how many gpt2 learn on new")


def test_own_records_come_first():
    never = ((4_000.0, math.inf),) * 4
    own = [RecordedCell("own", "a", "linear_regression", "looped", 4_000, never, ADAM)]
    of_cell, of_other = (
        shipped_times().expected_learning([planned(4_000, label=label)], own)[0] for label in ("a", "b")
    )
    (without,) = shipped_times().expected_learning([planned(4_000)])
    assert of_cell.share < 0.4 < of_other.share < without.share
    assert (of_cell.own, without.own) == (4, 0)
    assert shipped_times().chance_that_all_learn([planned(4_000, label="a")], own) < of_cell.share


def test_models_learn_independently():
    both = [planned(1_000), planned(1_000, "gpt2")]
    assert shipped_times().chance_that_all_learn(both) == pytest.approx(
        shipped_times().chance_that_all_learn(both[:1]) * shipped_times().chance_that_all_learn(both[1:])
    )
    assert shipped_times().chance_that_all_learn([]) == 1


def test_rows_count_their_studies_runs_and_steps_and_equal_the_rows_of_their_file():
    runs = ((100.0, 200.0), (300.0, 400.0), (1_000.0, math.inf))
    cells = [
        RecordedCell(study, label, "pca", model, steps, runs, ADAM)
        for study, model, steps in (("first", "encoder", 1_000), ("second", "looped", 2_000))
        for label in ("a", "b")
    ]
    table = EmergenceTable.of(cells)
    rows = table.rows
    assert [(row.task, row.model) for row in rows] == [
        (ANY, ANY),
        ("pca", ANY),
        ("pca", "encoder"),
        ("pca", "looped"),
    ]
    assert [(row.studies, row.runs, row.emerged) for row in rows] == [(2, 12, 8)] * 2 + [(1, 6, 4)] * 2
    assert [(row.least_steps, row.most_steps) for row in rows[1:3]] == [(1_000, 2_000), (1_000, 1_000)]
    read = EmergenceTable.read(table.text).rows
    assert [row.times.share(1_000, USUAL) for row in read] == pytest.approx(
        [row.times.share(1_000, USUAL) for row in rows], abs=1e-3
    )


def test_the_table_is_part_of_the_package():
    file = Path(__file__).parents[2] / "src/loopscale/foresight" / EMERGENCE_FILE
    assert EmergenceTable.read(file.read_text()) == shipped_times()


# Covariates


def test_covariates_are_doublings_and_settings_that_are_absent_are_usual():
    settings = {"task.dim": 8, "task.condition": 16, "training.loops": 2}
    assert Covariates.of(settings) == (1, 4, -1)
    assert Covariates.of(settings).dimension == 8
    assert Covariates.of({}) == Covariates.of({"task.dim": 4, "training.loops": 32}) == USUAL
    trial = Trial.model_validate(
        {
            "task": {"kind": "linear_regression", "dim": 8, "condition": 16},
            "model": {"kind": "looped"},
            "training": {"loops": 2, "window": 2},
        }
    )
    assert Covariates.of_trial(trial) == (1, 4, -1)


def test_fewer_learn_in_more_dimensions_and_with_one_loop_and_a_plan_says_what_it_extrapolates():
    usual = planned(1_000)
    cases = [
        [replace(usual, covariates=Covariates.of({"task.dim": dim, "training.loops": loops}))]
        for dim, loops in ((2, 4), (4, 4), (4, 1), (64, 1))
    ]
    expected = [shipped_times().expected_learning(case)[0] for case in cases]
    shares = [each.share for each in expected]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[2] + 0.3
    assert [each.extrapolations for each in expected] == [[]] * 3 + [
        ["no recorded task has as many dimensions"]
    ]
    chances = [shipped_times().chance_that_all_learn(case) for case in cases]
    assert chances == sorted(chances, reverse=True)


# Recipes


def test_a_recipe_is_an_optimizer_and_initial_weights_and_older_records_have_the_defaults():
    assert Recipe.of({}) == ADAM
    assert Recipe.of({"training.optimizer.kind": "muon", "model.init_std": 0.1}) == MUON
    assert Recipe.of({"model.init": "scaled", "model.init_std": 0.02}) == Recipe("adam", "scaled")
    trial = Trial.model_validate(
        {
            "task": {"kind": "linear_regression"},
            "model": {"kind": "looped", "init_std": 0.1},
            "training": {"optimizer": "muon"},
        }
    )
    assert Recipe.of_trial(trial) == MUON


EARLY, NEVER = ((100.0, 200.0),) * 10, ((800.0, math.inf),) * 10


@pytest.fixture(scope="module")
def two_recipes() -> EmergenceTable:
    """Records of Adam, with which nets do not learn within 800 steps, and of Muon, with which all learn by step 200."""
    cells = [
        RecordedCell(study, str(recipe), "pca", "looped", 800, runs, recipe)
        for study in ("first", "second", "third")
        for recipe, runs in ((ADAM, NEVER), (MUON, EARLY))
    ]
    return EmergenceTable.of(cells)


def test_each_recipe_has_a_row_where_several_are_recorded(two_recipes: EmergenceTable):
    assert [row.recipe for row in two_recipes.rows] == [ANY_RECIPE] * 3 + [ADAM, MUON]
    adam = planned(800, task="pca")
    shares = [
        two_recipes.expected_learning([replace(adam, recipe=recipe)])[0].share
        for recipe in (ADAM, Recipe("sgd", "1"), MUON)
    ]
    assert shares == sorted(shares)
    assert shares[0] < 0.3
    assert shares[2] > 0.9


def test_a_plan_names_the_recipe_with_which_more_nets_learn(two_recipes: EmergenceTable):
    adam = planned(800, task="pca")
    [remark] = two_recipes.recipe_remarks([adam])
    start, _, end = remark.partition(" % of looped on pca are expected to learn within 800 steps; ")
    assert start.startswith("with adam and init_std 0.02, ")
    assert end.startswith("with muon and init_std 0.1, ")
    assert end.endswith(
        "(30 of 30 recorded nets have learnt): write training.optimizer: muon and model.init_std: 0.1"
    )
    assert not list(two_recipes.recipe_remarks([replace(adam, recipe=MUON)]))


def test_a_recipe_is_not_blamed_where_no_better_one_is_recorded():
    assert not list(shipped_times().recipe_remarks([planned(200, task="autoregression", model="algoformer")]))


def test_no_recipe_is_named_where_hardly_more_nets_would_learn(two_recipes: EmergenceTable):
    adam = planned(5, task="pca")
    own, other = (
        two_recipes.expected_learning([replace(adam, recipe=recipe)])[0].share for recipe in (ADAM, MUON)
    )
    assert 0 < other - own < 0.1
    assert not list(two_recipes.recipe_remarks([adam]))
