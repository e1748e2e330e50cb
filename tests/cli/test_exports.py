"""Exports on the command line: as a store, for spreadsheets, for Optuna; and the description of the tables."""

import csv
import json
import shlex
from pathlib import Path

import pandas as pd
import pytest

from loopscale.analysis.notebook import results
from loopscale.cli.query import command
from loopscale.records.model import WEIGHTS, Note
from loopscale.records.stores.opening import open_store
from loopscale.records.tables import TABLES
from loopscale.studies.spec import Study
from loopscale.training.checkpoint import Checkpoint, save, strip
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.loop import train


@pytest.fixture
def exported(loopscale, store: Path, elsewhere: Path) -> Path:
    assert loopscale("export", "tiny", "--store", store, "--to", "out").code == 0
    return elsewhere / "out"


def test_an_export_answers_like_its_store(loopscale, store: Path, exported: Path):
    questions = [["best", "tiny"], ["best", "tiny", "--where", "seed < 3"], ["list"]]
    questions += [
        ["query", "SELECT * FROM curves ORDER BY ALL"],
        ["query", "SELECT * FROM trials ORDER BY trial"],
    ]
    for words in questions:
        of_export, of_store = (loopscale(*words, "--store", place, "--json") for place in (exported, store))
        assert of_export.code == 0
        assert of_export.json == of_store.json


def test_a_report_of_an_export_is_only_a_file(loopscale, exported: Path, elsewhere: Path):
    found = loopscale("report", "tiny", "--store", exported, "--out", "page.html", "--json")
    assert (found.json["attached"], found.err) == (False, "")
    assert "Does the error fall with the loops?" in Path("page.html").read_text()
    assert sorted(path.name for path in elsewhere.iterdir()) == ["out", "page.html"]


@pytest.mark.parametrize("verb", [["run", "tiny.yaml"], ["import", "out"], ["ui"]], ids=lambda verb: verb[0])
def test_an_export_is_never_changed(loopscale, exported: Path, study_file: Path, verb: list[str]):
    Path("tiny.yaml").write_text(study_file.read_text())
    before = {file: file.read_bytes() for file in exported.rglob("*")}
    answer = loopscale(*verb, "--store", exported)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "holds exported records" in answer.err
    assert {file: file.read_bytes() for file in exported.rglob("*")} == before


def test_a_trained_net_is_evaluated_from_an_export(loopscale, recording, study_file: Path, elsewhere: Path):
    study = Study.load(study_file)
    trial = study.at(study.cells()[0], {"training.lr": 5e-3}, 1)
    *_, last = train(trial)
    checkpoints = open_checkpoint_store(elsewhere / "checkpoints")
    checkpoints.make()
    save(checkpoints, trial.key, Checkpoint(last.state(), ((last.step, last.metrics),), 1.0))
    strip(checkpoints, trial.key, keep_weights=True)
    with recording(Path("records"), study) as made:
        made.whole()
        file = elsewhere / "checkpoints" / f"{trial.key}.safetensors"
        made.writer.write(Note(trial.key, tags={"weights": "kept"}, artifacts=((WEIGHTS, file),)))
    done = loopscale("export", "tiny", "--store", "records", "--to", "out", "--weights", "--json").json
    assert done == {"folder": "out", "trials": 12, "weights": 1}
    words = ["predict", trial.key[:8], "--loops", "2", "--prompts", "16", "--json"]
    assert loopscale(*words, "--store", "out").json == loopscale(*words, "--store", "records").json
    assert loopscale("export", "tiny", "--store", "records", "--to", "bare").code == 0
    refused = loopscale("predict", trial.key, "--store", "bare")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "`loopscale export tiny --weights`" in refused.err
    found = next(results("tiny", "out").nets("loops=1"))
    assert found.trial == trial
    assert set(found.net.state_dict()) == set(last.state().net)


def test_tables_for_spreadsheets_have_every_row_and_describe_their_columns(loopscale, store: Path):
    done = loopscale(
        "export", "tiny", "--store", store, "--csv", "csv", "--parquet", "parquet", "--json"
    ).json
    assert done["csv"] == {"folder": "csv", "trials": 12, "curves": 192, "history": 36, "studies": 1}
    for name in TABLES:
        sheet, frame = pd.read_csv(f"csv/{name}.csv"), pd.read_parquet(f"parquet/{name}.parquet")
        assert len(sheet) == len(frame) == done["csv"][name]
        assert list(sheet.columns) == list(frame.columns)
    rows = list(csv.DictReader(Path("csv/trials.csv").read_text().splitlines()))
    assert {row["training.loops"] for row in rows if row["role"] == "replicate"} == {"1", "2"}
    assert pd.read_csv("csv/studies.csv")["question"].tolist() == ["Does the error fall with the loops?"]
    described = pd.read_csv("csv/columns.csv")
    assert set(described["column"][described["table"] == "curves"]) == set(
        pd.read_csv("csv/curves.csv").columns
    )


def test_one_row_is_no_plural(loopscale, store: Path):
    said = loopscale("export", "tiny", "--store", store, "--csv", "csv").out
    assert "36 rows in history.csv, 1 row in studies.csv;" in said


def test_tuning_is_exported_to_optuna(loopscale, store: Path):
    done = loopscale("export", "tiny", "--store", store, "--optuna", "tuning.log")
    assert done.out == "4 trials of 2 cells in tuning.log; `optuna-dashboard tuning.log` shows them\n"
    again = loopscale("export", "tiny", "--store", store, "--optuna", "tuning.log")
    assert (again.code, again.err) == (
        2,
        "tuning.log exists already; give a new file, or delete the old one\n",
    )


def test_every_column_is_described(loopscale, store: Path):
    tables = {each["table"]: each for each in loopscale("query", "--tables", "--store", store, "--json").json}
    assert list(tables) == list(TABLES)
    for name, table in tables.items():
        answer = loopscale("query", f"DESCRIBE {name}", "--store", store, "--json").json
        assert [column["column"] for column in table["columns"]] == [row["column_name"] for row in answer]
        assert [column["type"] for column in table["columns"]] == [row["column_type"] for row in answer]
        assert all(column["about"] for column in table["columns"])
        plain = [column["column"] for column in table["columns"] if "." not in column["column"]]
        assert set(plain) == set(TABLES[name][1])
    text = loopscale("query", "--tables", "--store", store).out
    assert "1 = predicting nothing" in text
    assert "38 more" in text


def test_tables_are_described_without_records(loopscale, elsewhere: Path):
    answer = loopscale("query", "--tables")
    assert (answer.code, list(elsewhere.iterdir())) == (0, [])
    assert "validate_error" in answer.out


def test_the_examples_in_the_help_of_query_work(loopscale, store: Path):
    assert loopscale("query", "--help").out.count("loopscale query") >= 4
    said = (command.__doc__ or "").replace("[bold]Example[/bold]", "")
    examples = [part for part in said.split("\n\n") if part.strip().startswith("loopscale query")]
    asked = [shlex.split(" ".join(part.split()))[2].replace("quickstart", "tiny") for part in examples]
    cells, tried, loops, lost = (loopscale("query", sql, "--store", store, "--json").json for sql in asked)
    found = {row["label"]: (row["error"], row["runs"]) for row in cells}
    assert found == {"loops=1": (pytest.approx(0.42), 3), "loops=2": (pytest.approx(0.32), 3)}
    assert len(tried) == 4
    assert [(row["label"], row["loop"]) for row in loops] == [
        (label, loop) for label in ("loops=1", "loops=2") for loop in (1, 2, 3, 4)
    ]
    assert loops[0]["error"] == pytest.approx(0.42)  # the mean over the queries
    assert lost == []


@pytest.mark.slow
def test_a_trial_names_the_commit_that_trained_it(loopscale, elsewhere: Path, recording, study_file: Path):
    study = Study.load(study_file)
    with recording(Path("records"), study) as made:
        made.whole()
        keys = [study.at(cell, {"training.lr": 5e-3}, 1).key for cell in study.cells()]
        for key, changed in zip(keys, ("no", "yes"), strict=True):
            made.writer.write(Note(key, tags={"git_commit": "abc", "git_changed": changed}))
    sql = "SELECT \"commit\", count(*) AS n FROM trials WHERE role <> 'baseline' GROUP BY 1 ORDER BY 1"
    found = loopscale("query", sql, "--store", "records", "--json").json
    assert found == [{"commit": "abc", "n": 1}, {"commit": "abc-dirty", "n": 1}, {"commit": None, "n": 8}]
    assert "commit" not in study.at(study.cells()[0], {}, 1).settings
    assert open_store("records").studies() == ["tiny"]


@pytest.mark.slow
def test_an_export_holds_the_floors_that_its_store_knows(loopscale, store: Path, elsewhere: Path):
    assert (
        loopscale("report", "tiny", "--store", store, "--out", "page.html").code == 0
    )  # computes the floors
    assert loopscale("export", "tiny", "--store", store, "--to", "known").code == 0
    floors = json.loads(Path("known", "floors.json").read_text())
    assert {floor["purpose"] for floor in floors.values()} == {"validate", "evaluate"}
    answers = [
        loopscale("best", "tiny", "--store", place, "--json").json["cells"] for place in (store, "known")
    ]
    assert answers[0] == answers[1]
    assert all(cell["regret"] is not None for cell in answers[0])


@pytest.mark.parametrize(
    ("option", "name"),
    [("--csv", "trials.csv"), ("--parquet", "columns.parquet"), ("--to", "curves.parquet")],
)
def test_an_export_replaces_no_file_of_a_user(
    loopscale, store: Path, elsewhere: Path, option: str, name: str
):
    folder = elsewhere / "mine"
    folder.mkdir()
    (folder / name).write_text("my own numbers")
    if name.startswith("columns"):  # by this file an export knows its own folder
        (folder / name).rename(folder / (name := "studies.parquet"))
    refused = loopscale("export", "tiny", option, folder, "--store", store)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert f"has a file {name} that no export has written; give another folder" in refused.err
    assert (folder / name).read_text() == "my own numbers"
    (folder / name).unlink()
    for _ in range(2):
        assert loopscale("export", "tiny", option, folder, "--store", store).code == 0
