"""The expected share of learnt runs: from the shipped table, and from a study's own records."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from loopscale.studies import learning_times
from loopscale.studies.csv_rows import read_rows, write_rows
from loopscale.studies.learning_times import (
    ANY,
    EMERGENCE_FILE,
    EmergenceRow,
    PlannedRuns,
    RecordedCell,
    chance_that_all_learn,
    emergence_rows,
    expected_learning,
    recipe_remarks,
    shipped_times,
    unknown_learning,
)
from loopscale.studies.recipes import ANY_RECIPE, Recipe
from loopscale.training.trial import Trial

ADAM, MUON = Recipe("adam", "0.02"), Recipe("muon", "0.1")


def planned(
    steps: int, model: str = "looped", task: str = "linear_regression", label: str = ""
) -> PlannedRuns:
    return PlannedRuns(label, task, model, steps, 3, ADAM)


def test_the_expected_share_grows_with_the_steps_of_the_study():
    shares = [expected_learning([planned(steps)])[0].share for steps in (200, 1_000, 8_000)]
    assert shares == sorted(shares)
    assert shares[0] < 0.2
    assert shares[1] == pytest.approx(0.5, abs=0.15)
    assert shares[2] > 0.9


def test_an_unknown_model_has_the_row_of_the_task():
    known, model = (expected_learning([planned(1_000, kind)])[0] for kind in ("looped", "new"))
    assert known.source == "looped on linear_regression with adam and init_std 0.02"
    assert model.source == "all models on linear_regression"
    assert model.runs > known.runs


def test_of_a_task_without_a_recorded_net_nothing_is_known_but_by_own_records():
    runs = [planned(1_000, task="new"), planned(1_000, "gpt2", task="new"), planned(1_000)]
    assert [each.source for each in expected_learning(runs)] == [
        "looped on linear_regression with adam and init_std 0.02"
    ]
    assert chance_that_all_learn(runs) == chance_that_all_learn(runs[2:])
    (sentence,) = unknown_learning(runs)
    assert sentence.startswith(
        "how many looped and gpt2 learn on new is not known, because no net was recorded there"
    )
    own = [RecordedCell("own", "a", "new", "looped", 1_000, ((200.0, 300.0),) * 3, ADAM)]
    assert expected_learning(runs, own)[0].source == "all models on all tasks"
    (sentence,) = unknown_learning(runs, own)
    assert sentence.startswith("how many gpt2 learn on new")


def test_own_records_come_first():
    never = ((4_000.0, math.inf),) * 4
    own = [RecordedCell("own", "a", "linear_regression", "looped", 4_000, never, ADAM)]
    of_cell, of_other = (expected_learning([planned(4_000, label=label)], own)[0] for label in ("a", "b"))
    (without,) = expected_learning([planned(4_000)])
    assert of_cell.share < 0.2 < of_other.share < without.share
    assert (of_cell.own, without.own) == (4, 0)
    assert chance_that_all_learn([planned(4_000, label="a")], own) < of_cell.share


def test_models_learn_independently():
    both = [planned(1_000), planned(1_000, "gpt2")]
    assert chance_that_all_learn(both) == pytest.approx(
        chance_that_all_learn(both[:1]) * chance_that_all_learn(both[1:])
    )
    assert chance_that_all_learn([]) == 1


def test_rows_count_their_studies_runs_and_steps_and_equal_the_rows_of_their_file():
    runs = ((100.0, 200.0), (300.0, 400.0), (1_000.0, math.inf))
    cells = [
        RecordedCell(study, label, "pca", model, steps, runs, ADAM)
        for study, model, steps in (("first", "encoder", 1_000), ("second", "looped", 2_000))
        for label in ("a", "b")
    ]
    rows = emergence_rows(cells)
    assert [(row.task, row.model) for row in rows] == [
        (ANY, ANY),
        ("pca", ANY),
        ("pca", "encoder"),
        ("pca", "looped"),
    ]
    assert [(row.studies, row.runs, row.emerged) for row in rows] == [(2, 12, 8)] * 2 + [(1, 6, 4)] * 2
    assert [(row.least_steps, row.most_steps) for row in rows[1:3]] == [(1_000, 2_000), (1_000, 1_000)]
    read = read_rows(EmergenceRow, write_rows(EmergenceRow, rows))
    assert [row.times.share(1_000) for row in read] == pytest.approx(
        [row.times.share(1_000) for row in rows], abs=1e-3
    )


def test_the_table_is_part_of_the_package():
    file = Path(__file__).parents[2] / "src/loopscale/studies" / EMERGENCE_FILE
    assert {
        (row.task, row.model, row.recipe): row for row in read_rows(EmergenceRow, file.read_text())
    } == shipped_times()


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


@pytest.fixture
def two_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of Adam, with which nets do not learn within 800 steps, and of Muon, with which all learn by step 200."""
    cells = [
        RecordedCell(study, str(recipe), "pca", "looped", 800, runs, recipe)
        for study in ("first", "second", "third")
        for recipe, runs in ((ADAM, NEVER), (MUON, EARLY))
    ]
    rows = {(row.task, row.model, row.recipe): row for row in emergence_rows(cells)}
    monkeypatch.setattr(learning_times, "shipped_times", lambda: rows)


@pytest.mark.usefixtures("two_recipes")
def test_each_recipe_has_a_row_where_several_are_recorded():
    assert [row.recipe for row in learning_times.shipped_times().values()] == [ANY_RECIPE] * 3 + [ADAM, MUON]
    adam = planned(800, task="pca")
    shares = [
        expected_learning([replace(adam, recipe=recipe)])[0].share
        for recipe in (ADAM, Recipe("sgd", "1"), MUON)
    ]
    assert shares == sorted(shares)
    assert shares[0] < 0.3
    assert shares[2] > 0.9


@pytest.mark.usefixtures("two_recipes")
def test_a_plan_names_the_recipe_with_which_more_nets_learn():
    adam = planned(800, task="pca")
    [remark] = recipe_remarks([adam])
    start, _, end = remark.partition(" % of looped on pca are expected to learn within 800 steps; ")
    assert start.startswith("with adam and init_std 0.02, ")
    assert end.startswith("with muon and init_std 0.1, ")
    assert end.endswith(
        "(30 of 30 recorded nets have learnt): write training.optimizer: muon and model.init_std: 0.1"
    )
    assert not list(recipe_remarks([replace(adam, recipe=MUON)]))


def test_a_recipe_is_not_blamed_where_no_better_one_is_recorded():
    assert not list(recipe_remarks([planned(200, task="autoregression", model="algoformer")]))
