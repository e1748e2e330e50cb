"""Studies that evaluate on another task than they train on, and laws of other measures of a task."""

import json
from typing import Any

import pandas as pd
import pytest

from loopscale.analysis.recorded.results import Results
from loopscale.notation.mistakes import Mistakes
from loopscale.records.model import Run
from loopscale.records.tables import trial_row
from loopscale.studies.spec import Study
from loopscale.tasks.clustering import Clustering


def study(**changes: Any) -> Study:
    fixed = {
        "task": {"kind": "clustering", "components": 2, "dim": 3, "points": 20},
        "model": {"kind": "encoder", "layers": 1, "heads": 2, "width": 8},
        "training": {"steps": 4},
    }
    return Study.parse({"question": "?", "fixed": fixed} | changes)


def test_cells_and_their_baselines_are_evaluated_on_the_changed_task():
    made = study(
        scientific={"task.condition": [1, 9], "task.data": ["gaussian", "digits"]},
        where="task.condition == 1 or task.data == 'gaussian'",
        evaluate={"task": {"data": ["iris", "wine"], "condition": 1}},
        baselines=[{"kind": "lloyd"}],
    )
    expected = Clustering(components=2, dim=3, points=20, data=("iris", "wine"))
    assert set(made.tasks().values()) == {expected}
    assert all(trial.task.data in ("gaussian", "digits") for trial in made.layout.trials.values())
    assert [solver.kind for solver in made.baselines_for(made.cells()[0])] == ["lloyd"]
    assert made.document()["evaluate"]["task"] == {"data": ["iris", "wine"], "condition": 1}


def test_the_evaluation_does_not_change_the_keys_of_trials():
    plain, other = study(), study(evaluate={"task": {"snr": 2}})
    assert [cell.key for cell in plain.cells()] == [cell.key for cell in other.cells()]
    assert plain.at(plain.cells()[0], {}, 1).key == other.at(other.cells()[0], {}, 1).key
    assert plain.evaluate.key != other.evaluate.key


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluate": {"task": {"dim": 4}}}, "evaluate.task: trials read 20 tokens of 3 numbers"),
        ({"evaluate": {"task": {"snrr": 4}}}, "task has no setting 'snrr'; did you mean snr"),
        ({"evaluate": {"task": {"kind": "clusters"}}}, "no task 'clusters'"),
        (
            {"scientific": {"task.data": ["iris", "digits"]}, "evaluate": {"task": {"data": "iris"}}},
            "evaluate.task: trials are trained on iris; evaluate on other tables",
        ),
        (
            {"scientific": {"task.snr": [1, 2]}, "laws": [{"of": "arri", "along": "task.snr"}]},
            "a law along task.snr is of 'arri', which is not measured there; did you mean ari?",
        ),
        ({"laws": [{"of": "ari", "along": "loop"}]}, "a law along loop is of 'ari'"),
        ({"laws": [{"of": "emerged_at", "along": "loop"}]}, "a law along loop is of 'emerged_at'"),
        ({"laws": [{"of": "reached", "along": "task.snr"}]}, "write regret: 0.05"),
        (
            {"scientific": {"task.snr": [1, 2]}, "laws": [{"along": "task.snr", "basis": "flops"}]},
            "basis is the unit of emerged_at and reached, and this is of error; leave out basis",
        ),
        (
            {
                "scientific": {"task.snr": [1, 2, 3, 4, 5]},
                "laws": [{"of": "reached", "regret": 0.1, "along": "task.snr", "hold_out": 1}],
            },
            "records during a study know the step of emergence alone; ask of emerged_at in steps",
        ),
        (
            {"evaluate": {"task": {"data": "iris"}}, "baselines": [{"kind": "mixture_posterior"}]},
            "baseline mixture_posterior on clustering: .* write data: gaussian",
        ),
    ],
)
def test_an_impossible_evaluation_is_one_mistake(changes: dict[str, Any], message: str):
    with pytest.raises(Mistakes, match=message) as caught:
        study(**changes)
    assert len(str(caught.value).splitlines()) == 1


def test_a_law_may_be_of_any_measure_of_the_task():
    law = {"of": "misclassification", "along": "task.snr", "form": "exponential", "theory": "gmm_minimax"}
    assert study(scientific={"task.snr": [1, 2, 3]}, laws=[law]).laws[0].of == "misclassification"


def compared_study(of: str, similar_to: list[Any]) -> Study:
    """GPT-2 of 1, 2 and 4 layers on linear regression, with a claim and a law of one measure."""
    return Study.parse(
        {
            "question": "?",
            "fixed": {
                "task": {"kind": "linear_regression", "dim": 2, "points": 4},
                "model": {"kind": "gpt2", "width": 8, "heads": 2},
                "training": {"steps": 4, "similar_to": similar_to},
            },
            "scientific": {"model.layers": [1, 2, 4]},
            "claims": [
                {"text": "?", "first": {"model.layers": 1}, "second": {"model.layers": 4}, "of": of},
            ],
            "laws": [{"of": of, "along": "model.layers", "form": "power"}],
        }
    )


def test_a_claim_and_a_law_may_be_of_the_match_with_a_solver():
    made = compared_study("match_newton", [{"solver": "newton", "iterates": 20}])
    assert made.claims[0].measure == made.laws[0].of == "match_newton"
    plain = compared_study("error", [])
    assert [cell.key for cell in made.cells()] == [cell.key for cell in plain.cells()]
    with pytest.raises(Mistakes, match="a claim is of 'match_newton', which is not measured"):
        compared_study("match_newton", [])
    with pytest.raises(Mistakes, match="did you mean match_newton"):
        compared_study("match_newtn", [{"solver": "newton"}])


@pytest.mark.parametrize(
    ("of", "along"), [("regret", "loop"), ("regret_last", "task.snr"), ("emerged_at", "task.snr")]
)
def test_a_law_may_be_of_regret_or_of_emergence(of: str, along: str):
    asked = study(scientific={"task.snr": [1, 2, 3]}, laws=[{"of": of, "along": along}])
    assert asked.laws[0].of == of


@pytest.mark.parametrize(
    ("tag", "columns"),
    [
        ('{"kind": "clustering", "snr": 2}', {"evaluate.task.kind": "clustering", "evaluate.task.snr": 2}),
        ("", {}),
        ("[1]", {}),
        ("{not JSON", {}),
    ],
)
def test_the_tag_of_the_evaluated_task_becomes_columns_if_it_is_valid(tag: str, columns: dict[str, Any]):
    run = Run("1", "FINISHED", 0, 1, tags={"trial": "t", "evaluated_task": tag}, params={"task.snr": "4"})
    assert json.loads(trial_row(run, "s")["settings"]) == {"task.snr": 4} | columns


def row(**columns: Any) -> dict[str, Any]:
    names = {"trial": columns.get("label", "t"), "cell": "c", "role": "replicate", "outcome": "finished"}
    return names | {"label": "", "number": 0, "seed": 1, "error": 0.5} | columns


def test_bounds_and_baselines_belong_to_the_evaluated_task():
    task = {"task.kind": "clustering", "task.snr": 4.0, "model.width": 8}
    rows = [row(**task, **{"evaluate.task.kind": "clustering", "evaluate.task.snr": 2.0})]
    rows += [
        row(role="baseline", cell="", label=label, **{"task.kind": "clustering", "task.snr": snr})
        for label, snr in (("trained", 4.0), ("evaluated", 2.0))
    ]
    description = {"name": "s", "cells": [{"key": "c", "label": "c", "values": {}}]}
    curves, history = (pd.DataFrame(columns=columns) for columns in (["trial", "loop"], ["trial", "step"]))
    (cell,) = Results(description, pd.DataFrame(rows), curves, history).cells
    (trial,) = cell.runs
    assert trial.evaluated == {"task.kind": "clustering", "task.snr": 2, "model.width": 8}
    assert trial.settings == {"task.kind": "clustering", "task.snr": 4, "model.width": 8}
    assert [baseline.label for baseline in cell.baselines] == ["evaluated"]
