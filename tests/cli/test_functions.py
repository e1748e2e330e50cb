"""Every verb of the command line and its function: both give the same result, from one code."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loopscale as package
from loopscale.cli.main import VERBS
from loopscale.errors import UsageError
from loopscale.records.stores.opening import open_store

SQL = "SELECT trial, error FROM trials ORDER BY trial"
FUNCTIONS = {
    "best": "best",
    "compare": "compare",
    "plan": "plan",
    "query": "query",
    "report": "report",
    "run": "run",
    "simulate": "simulate",
    "watch": "LivePage",
}
"""Verb -> name in `loopscale`."""
WITHOUT = {
    "bound": "a class below loopscale.theory.bounds computes the number",
    "check": "the contract tests of loopscale.contracts run in pytest",
    "corpus": "writes files, once",
    "delete": "changes records, for a person who confirms",
    "doctor": "mends a store, for a person who reads its findings",
    "export": "writes files, once",
    "import": "writes records, once",
    "list": "query reads the table of studies",
    "logs": "follows a cluster in a terminal",
    "new": "writes a file, once",
    "predict": "results(..).trained_net gives the net",
    "rename": "changes records, for a person who confirms",
    "schema": "prints a file for an editor",
    "show": "classes and their docstrings say the same",
    "status": "asks a cluster in a terminal",
    "stop": "ends a cluster's job in a terminal",
    "submit": "starts a cluster's job in a terminal",
    "ui": "opens a browser",
    "verify": "the contract tests of constructions run in pytest",
}
"""Verb -> the reason why no function has its name."""
SLOW = {"run", "watch"}
"""Verbs whose functions have tests of their own: test_running.py and live/test_driver_page.py."""


def by_best(study: Path, store: Path, folder: Path) -> Any:
    return package.best(study, store).document()


def by_compare(study: Path, store: Path, folder: Path) -> Any:
    shutil.copytree(store, folder / "copy", ignore=shutil.ignore_patterns("mirror", "reports"))
    studies = package.compare(study, study, store, folder / "copy")
    return studies.to_dict() | {"how": studies.how, "page": None}


def by_simulate(study: Path, store: Path, folder: Path) -> Any:
    return package.simulate(study, store, workers=2, rate=1e9).document()


def by_plan(study: Path, store: Path, folder: Path) -> Any:
    return package.plan(study, store, rate=1e9, workers=2).document()


def by_query(study: Path, store: Path, folder: Path) -> Any:
    return package.query(SQL, store).to_dict("records")


def by_report(study: Path, store: Path, folder: Path) -> Any:
    return package.report(study, store, folder / "page.html").read_text()


CASES: dict[str, tuple[Callable[[Path, Path, Path], Any], list[str]]] = {
    "best": (by_best, ["STUDY", "--json"]),
    "compare": (by_compare, ["STUDY", "STUDY", "--second-store", "copy", "--json"]),
    "plan": (by_plan, ["STUDY", "--json", "--rate", "1e9", "--workers", "2"]),
    "query": (by_query, [SQL, "--json"]),
    "report": (by_report, ["STUDY", "--json", "--out", "page.html"]),
    "simulate": (by_simulate, ["STUDY", "--json", "--curves", "STORE", "--workers", "2", "--rate", "1e9"]),
}


def test_every_verb_has_a_function_or_a_reason():
    assert FUNCTIONS.keys() | WITHOUT.keys() == VERBS.keys()
    assert not FUNCTIONS.keys() & WITHOUT.keys()
    assert set(FUNCTIONS.values()) <= set(package.__all__)
    assert CASES.keys() | SLOW == FUNCTIONS.keys()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("verb", CASES)
def test_a_verb_and_its_function_give_the_same_result(
    verb: str, loopscale: Callable[..., Any], study_file: Path, store: Path, elsewhere: Path
):
    function, words = CASES[verb]
    of_function = function(study_file, store, elsewhere)
    places = {"STUDY": str(study_file), "STORE": str(store)}
    named = [places.get(word, word) for word in words]
    answer = loopscale(verb, *named, *([] if verb == "simulate" else ["--store", store]))
    assert answer.code == 0, answer.err
    if verb == "report":
        assert Path(json.loads(answer.out)["file"]).read_text() == of_function
    else:
        # The command line writes null for numbers that are not finite.
        assert json.loads(answer.out) == json.loads(json.dumps(of_function), parse_constant=lambda word: None)


def test_best_takes_a_condition_and_an_open_store_and_is_a_table(study_file: Path, store: Path):
    whole = package.best("tiny", open_store(store))
    part = package.best(package.Study.load(study_file), store, '"training.loops" = 2')
    assert len(whole.cells) == 2
    assert [cell.trial for cell in part.cells] == [whole.cells[1].trial]
    assert list(part.table.index) == [whole.table.index[1]]
    assert repr(part) == repr(part.table)


def test_report_names_a_file_that_is_no_page(store: Path, tmp_path: Path):
    (tmp_path / "data.csv").write_text("1,2\n")
    with pytest.raises(package.errors.LoopscaleError, match=r"data\.csv"):
        package.report("tiny", store, tmp_path / "data.csv")
    assert (tmp_path / "data.csv").read_text() == "1,2\n"
    assert package.report("tiny", store).name == "tiny.html"


def test_best_and_report_of_an_unknown_study_are_errors_to_mend(store: Path):
    for function in (package.best, package.report):
        with pytest.raises(package.errors.UsageError, match="there are no records of tini"):
            function("tini", store)


def test_compare_and_simulate_from_python_name_mistakes(store: Path, study_file: Path):
    with pytest.raises(package.errors.UsageError, match="tiny is compared with itself"):
        package.compare("tiny", study_file, store)
    with pytest.raises(package.errors.UsageError, match="the size of the cluster is missing or given twice"):
        package.simulate(study_file, store)


@pytest.mark.parametrize(
    ("option", "number"),
    [
        ("gpus", math.nan),
        ("gpus", math.inf),
        ("start_up", math.inf),
        ("start_up", 1e300),
        ("faults", math.nan),
        ("faults", math.inf),
        ("kill", 10**9),
        ("noise", math.inf),
        ("courses", 10**9),
    ],
)
def test_a_simulation_refuses_numbers_that_no_cluster_has(option: str, number: float):
    size = {} if option == "gpus" else {"workers": 2}
    with pytest.raises(UsageError, match=r"is too large to simulate; give [\d,]+ or less"):
        package.simulate("quickstart", **size, **{option: number})
