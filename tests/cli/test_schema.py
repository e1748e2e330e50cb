"""The JSON Schema of a study's file: equal to the committed file, and true of every shipped study."""

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from loopscale.cli.schema import study_schema
from loopscale.models.base import Model
from loopscale.notation.files import read_yaml
from loopscale.solvers.base import Solver
from loopscale.studies.searches.base import Search
from loopscale.tasks.base import Task
from loopscale.theory.bounds.base import Bound
from tests.runner.simulated_study import TREE

STUDIES = Path(__file__).parents[2] / "studies"
COMMITTED = STUDIES / "schema.json"
SHIPPED = sorted(STUDIES.rglob("*.yaml"))


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads(COMMITTED.read_text()))


def mistakes(tree: dict[str, Any]) -> list[str]:
    return [error.message for error in validator().iter_errors(tree)]


def test_the_committed_schema_is_what_the_command_prints(loopscale: Callable[..., Any]):
    assert loopscale("schema").out == COMMITTED.read_text(), "write `loopscale schema > studies/schema.json`"
    Draft202012Validator.check_schema(json.loads(COMMITTED.read_text()))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: str(file.relative_to(STUDIES)))
def test_every_shipped_study_names_the_schema_and_is_valid(file: Path):
    first = file.read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={os.path.relpath(COMMITTED, file.parent)}"
    assert mistakes(read_yaml(file).tree) == []


def test_every_member_and_key_is_in_the_schema():
    schema = study_schema()
    parts = schema["properties"]["fixed"]["properties"]
    assert parts["task"]["properties"]["kind"]["enum"] == list(Task.choices())
    assert parts["model"]["properties"]["kind"]["enum"] == list(Model.choices())
    kinds = {
        each["properties"]["kind"]["const"]
        for each in schema["$defs"].values()
        if "kind" in each.get("properties", {})
    }
    assert kinds >= {*Search.choices(), *Solver.choices()}
    for key in ("known", "where", "until", "claims"):
        assert schema["properties"][key]["description"], key


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"until": "decided"},
        {"until": {"looks": [3, 5]}},
        {"search": {"trials": 3}},
        {"scientific": {"model": [{"kind": "gpt2", "layers": 4}, "looped"]}},
        {"search": {"kind": "cmaes", "seeds": 2}, "known": [{"training.lr": 0.1}]},
        {"stop": {"failures": "20%", "error_below": 0.1, "trial_hours": 2}},
        {"baselines": ["newton", {"kind": "construction", "name": "newton", "start": 1}]},
        {"laws": [{"along": "loop", "form": "power", "theory": next(iter(Bound.choices()))}]},
        {"laws": [{"along": "training.loops", "form": ["power", "exponential"], "hold_out": [4]}]},
        {"evaluate": {"loops": 9, "task": {"condition": 10}}},
        {"fixed": TREE["fixed"] | {"training": {"steps": "500_000", "lr": 1e-4}}},
    ],
)
def test_notations_that_a_study_accepts_are_valid(changes: dict[str, Any]):
    assert mistakes(TREE | changes) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"sedds": 2},
        {"question": ""},
        {"fixed": {"task": {"kind": "linear"}}},
        {"fixed": {"training": {"stepps": 90}}},
        {"fixed": {"training": {"steps": "many"}}},
        {"scientific": {"loops": [1]}},
        {"scientific": {"training.loops": 4}},
        {"nuisance": {"training.lr": {"rael": [1, 2]}}},
        {"nuisance": {"training.lr": {"real": [1]}}},
        {"search": {"kind": "tpee"}},
        {"search": {"kind": "tpe", "trials": 0}},
        {"search": {"kind": "tpe", "seeds": 0}},
        {"scheduler": "asha"},
        {"replicates": -1},
        {"baselines": ["newtom"]},
        {"laws": [{"along": "loop", "form": "powers"}]},
        {"until": "tired"},
        {"stop": {"trial_hours": -1}},
        {"resources": {"gpu": 2}},
        {"known": [{"training.lr": [1]}]},
        {"stop": {"failures": "many"}},
        {"scientific": {"model": [{"kind": "gtp2"}]}},
        {"scientific": {"model": ["gtp2"]}},
        {"scientific": {"task": [{"kind": "linear_regression", "dims": 2}]}},
    ],
)
def test_a_mistake_of_one_setting_is_invalid(changes: dict[str, Any]):
    assert mistakes(TREE | changes)


def test_the_schema_has_own_members_beside_those_of_the_package(
    loopscale: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    loopscale("new", "model", "own_net")
    schema = json.loads(loopscale("schema", "own_net.py").out)
    kinds = schema["properties"]["fixed"]["properties"]["model"]["properties"]["kind"]["enum"]
    assert "own_net" in kinds
    assert sorted(kinds) == sorted(Model.choices())


def test_a_written_study_names_the_schema_beside_it_and_is_valid(
    loopscale: Callable[..., Any], elsewhere: Path
):
    assert loopscale("new", "study", "mine").code == 0
    file = elsewhere / "mine.yaml"
    assert file.read_text().splitlines()[0] == "# yaml-language-server: $schema=schema.json"
    assert "loopscale schema > schema.json" in file.read_text()
    assert mistakes(read_yaml(file).tree) == []
