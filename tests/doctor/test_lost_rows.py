"""Emptied tables of the database, and lost errors at rungs: found, and mended from what the other tables prove."""

import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from loopscale.cli.main import main
from loopscale.records.model import Note, flatten
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, record

STUDY = TINY.replace("eval_every: 2", "eval_every: 4").replace(
    "replicates: 3", "scheduler: {kind: asha, first_rung: 1, reduction: 2}\nreplicates: 3"
)
TABLES = ("experiment_tags", "tags", "params", "metrics", "latest_metrics")
WITHOUT_TIMES = (
    "SELECT run_uuid, runs.name, user_id, status, runs.lifecycle_stage, experiments.name"
    " FROM runs JOIN experiments USING (experiment_id)"
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole study with the errors at rungs, and a pruned trial."""
    root = tmp_path_factory.mktemp("recorded") / "store"
    study = Study.parse(STUDY, "tiny")
    with record(root, study) as recording:
        recording.whole()
        cells, write = study.cells(), recording.writer.write
        for cell in cells:
            for number, lr in enumerate((2e-3, 5e-3)):
                trial, error = study.at(cell, {"training.lr": lr}, 0), 0.5 - 0.1 * number
                write(Note(trial.key, 4, {"rung/1": error, "rung/2": error}))
        pruned = study.at(cells[1], {"training.lr": 3e-3}, 0)
        tags = {"cell": cells[1].key, "label": cells[1].label, "role": "tuning", "number": "2", "seed": "0"}
        tags |= {"point": json.dumps({"training.lr": 3e-3}), "outcome": "running"}
        write(Note(pruned.key, 0, {}, flatten(pruned.settings), tags, "RUNNING"))
        write(Note(pruned.key, 2, {"error": 0.9, "rung/1": 0.9, "rung/2": 0.9, "step": 2, "flops": 5e5}))
        write(Note(pruned.key, 2, {}, tags={"outcome": "pruned"}, status="KILLED"))
    baselines = "SELECT 'cell', '', run_uuid FROM tags WHERE key = 'role' AND value = 'baseline'"
    changed(root, f"INSERT INTO tags (key, value, run_uuid) {baselines}")  # as a driver writes them
    return root


@pytest.fixture
def store(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))  # without the leftovers of others
    return Path(shutil.copytree(recorded, tmp_path / "store"))


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(store: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--store", str(store)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return called


def findings(call: Call, *words: str) -> list[dict]:
    return json.loads(call("doctor", "--json", *words)[1])["findings"]


def changed(store: Path, *statements: str) -> None:
    with closing(sqlite3.connect(store / "mlflow.db")) as database, database:
        for statement in statements:
            database.execute(statement)


def rows(store: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(store / "mlflow.db")) as database:
        return sorted(database.execute(query).fetchall(), key=str)


def answers(call: Call) -> list[str]:
    query = "SELECT * FROM trials ORDER BY ALL"
    studies = json.loads(call("list", "--json")[1])
    states = [{name: value for name, value in study.items() if name != "started"} for study in studies]
    return [call("best", "tiny")[1], call("query", query, "--json")[1], json.dumps(states)]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("table", ["tags", "runs", "experiments"])
def test_an_emptied_table_comes_back_from_the_other_tables(call: Call, store: Path, table: str):
    before = answers(call)
    recorded = {
        query: rows(store, query) for query in (WITHOUT_TIMES, *(f"SELECT * FROM {name}" for name in TABLES))
    }
    changed(store, f"DELETE FROM {table}")
    problems = [each["problem"] for each in findings(call)]
    assert any(re.match(r"14 runs (belong to|are lost|have lost)", text) for text in problems), problems
    assert all(each["mended"] for each in findings(call, "--repair"))
    assert findings(call) == []
    assert answers(call) == before
    assert {query: rows(store, query) for query in recorded} == recorded


@pytest.mark.slow
def test_tags_that_no_copy_has_are_named_and_a_trial_without_its_outcome_runs_again(call: Call, store: Path):
    changed(store, "DELETE FROM tags")
    (finding,) = findings(call, "--repair")
    assert finding["check"] == "lost tags"
    assert "no copy has the spent hours" in finding["mended"]
    outcomes = "SELECT value, count(*) FROM tags WHERE key = 'outcome' GROUP BY 1"
    assert rows(store, outcomes) == [("finished", 12), ("interrupted", 1)], "no mirror tells what was pruned"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("key", ["role", "point"])
def test_one_lost_tag_comes_back(call: Call, store: Path, key: str):
    before = rows(store, "SELECT * FROM tags")
    changed(store, f"DELETE FROM tags WHERE key = '{key}'")
    (finding,) = [each for each in findings(call, "--repair") if each["check"] == "lost tags"]
    assert finding["mended"]
    assert rows(store, "SELECT * FROM tags") == before


@pytest.mark.slow
def test_runs_of_no_trial_of_the_study_stay_as_they_are(call: Call, store: Path):
    changed(store, "DELETE FROM tags", "UPDATE params SET value = '7' WHERE key = 'task.dim'")
    (finding,) = [each for each in findings(call, "--repair") if each["check"] == "lost tags"]
    assert "the tags of 1 runs are back; 13 runs are of no trial of the recorded study" in finding["failed"]


@pytest.mark.slow
def test_a_deleted_study_stays_deleted_beside_a_later_study_of_its_name(
    call: Call, store: Path, monkeypatch: pytest.MonkeyPatch
):
    assert call("delete", "tiny", "--yes")[0] == 0
    (store.parent / "tiny.yaml").write_text(STUDY)
    study = Study.load(store.parent / "tiny.yaml")
    with record(store, study) as recording:
        recording.parent()
        recording.trial(study.cells()[0], "tuning", 0, 0, {"training.lr": 2e-3}, 0.5)
    before = rows(store, "SELECT run_uuid, lifecycle_stage, experiment_id FROM runs")
    changed(store, "DELETE FROM runs")
    findings(call, "--repair")
    assert rows(store, "SELECT run_uuid, lifecycle_stage, experiment_id FROM runs") == before
    changed(store, "DELETE FROM experiments")
    findings(call, "--repair")
    stages = "SELECT experiment_id, lifecycle_stage FROM experiments WHERE experiment_id > 0"
    assert rows(store, stages) == [(1, "deleted"), (2, "active")]
    assert json.loads(call("list", "--json")[1])[0]["study"] == "tiny"


def test_a_database_without_the_version_of_its_tables_has_one_line_and_gets_the_version_again(
    call: Call, store: Path
):
    version = rows(store, "SELECT * FROM alembic_version")
    changed(store, "DELETE FROM alembic_version")
    code, out, err = call("rename", "tiny", "other")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "has lost the version of its tables (alembic_version is empty); `loopscale doctor --repair`" in err
    (finding,) = findings(call, "--repair")
    assert finding["mended"].startswith("written again")
    assert rows(store, "SELECT * FROM alembic_version") == version
    assert call("rename", "tiny", "other")[0] == 0


@pytest.mark.slow
def test_the_version_of_other_tables_stays_unknown(call: Call, store: Path):
    changed(store, "DROP TABLE alembic_version", "ALTER TABLE runs ADD COLUMN later TEXT")
    (finding,) = findings(call, "--repair")
    assert "the tables are not those of the installed MLflow" in finding["failed"]
    changed(store, "ALTER TABLE runs DROP COLUMN later")
    (finding,) = findings(call, "--repair")
    assert finding["mended"]


def test_lost_errors_at_rungs_come_back_from_the_validations(call: Call, store: Path):
    query = "SELECT run_uuid, key, value, step FROM metrics WHERE key LIKE 'rung/%'"
    before = rows(store, query)
    lost = "WHERE key = 'rung/1' OR (key = 'rung/2' AND step = 2)"
    changed(store, f"DELETE FROM metrics {lost}", f"DELETE FROM latest_metrics {lost}")
    found = findings(call)
    assert {(each["check"], each["severity"]) for each in found} == {("rungs", "warning")}
    assert len(found) == 5
    assert all(each["mended"] for each in findings(call, "--repair"))
    assert findings(call) == []
    assert rows(store, query) == before


@pytest.mark.slow
def test_a_rung_without_its_validation_stays_lost(call: Call, store: Path):
    gone = (
        "WHERE (key = 'error' OR key LIKE 'rung/%') AND run_uuid IN"
        " (SELECT run_uuid FROM tags WHERE value = 'pruned')"
    )
    changed(store, f"DELETE FROM metrics {gone}", f"DELETE FROM latest_metrics {gone}")
    (finding,) = findings(call, "--repair")
    assert finding["failed"] == "no copy has the validation of rung/1"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "damage",
    ["DELETE FROM experiment_tags", "UPDATE experiment_tags SET value = 'new'"],
    ids=["lost", "a text"],
)
def test_a_study_that_has_lost_its_mark_gets_the_mark_again(call: Call, store: Path, damage: str):
    before = call("best", "tiny", "--json")[1]
    changed(store, damage)
    assert call("best", "tiny")[0] == 2
    (finding,) = findings(call, "--repair")
    assert finding["mended"] == "marked again"
    assert call("best", "tiny", "--json")[1] == before


REPLICATE = (
    "run_uuid = (SELECT run_uuid FROM tags WHERE key = 'role' AND value = 'replicate' ORDER BY 1 LIMIT 1)"
)
OTHER_TYPES = {
    "a text as last value": f"UPDATE latest_metrics SET value = 'bad' WHERE key = 'evaluate/error' AND {REPLICATE}",
    "a text in a history": f"UPDATE metrics SET value = 'bad' WHERE key = 'error' AND {REPLICATE}",
    "bytes as last value": f"UPDATE latest_metrics SET value = x'00ff' WHERE key = 'step' AND {REPLICATE}",
    "infinity as last value": f"UPDATE latest_metrics SET value = 9e999 WHERE key = 'step' AND {REPLICATE}",
    "infinity in a history": f"UPDATE metrics SET value = -9e999 WHERE key = 'error' AND {REPLICATE}",
    "a text as step": "UPDATE metrics SET step = 'later' WHERE key = 'error'",
    "no label": "UPDATE tags SET value = NULL WHERE key = 'label'",
    "bytes as role": "UPDATE tags SET value = x'ff00fe' WHERE key = 'role'",
    "no kind of the task": "UPDATE params SET value = x'ff' WHERE key = 'task.kind'",
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("damage", OTHER_TYPES.values(), ids=OTHER_TYPES)
def test_values_of_other_types_stop_no_reader_and_come_back(call: Call, store: Path, damage: str):
    before = timeless(store)
    changed(store, damage)
    for words in (["list"], ["query", "SELECT * FROM trials", "--json"], ["query", "SELECT * FROM history"]):
        assert call(*words)[0] == 0
    (finding, *_) = findings(call)
    assert "another type than the column" in finding["problem"]
    assert all(each["mended"] for each in findings(call, "--repair"))
    assert findings(call) == []
    assert timeless(store) == before


def test_a_lost_setting_comes_back_and_a_changed_one_is_named(call: Call, store: Path):
    before = timeless(store)
    changed(
        store,
        f"DELETE FROM params WHERE key IN ('task.dim', 'training.lr') AND {REPLICATE}",
        "UPDATE params SET value = '7' WHERE key = 'task.points' AND run_uuid ="
        " (SELECT run_uuid FROM tags WHERE key = 'role' AND value = 'tuning' ORDER BY 1 LIMIT 1)",
    )
    found = [each for each in findings(call, "--repair") if each["check"] == "settings"]
    assert sorted(each["problem"] for each in found) == [
        "the record differs from the study's file: task.points is 7, not 4",
        "the settings task.dim, training.lr are lost",
    ]
    changed(store, "UPDATE params SET value = '4' WHERE key = 'task.points'")
    assert findings(call) == []
    assert timeless(store) == before


def test_a_setting_that_is_nested_too_deeply_stops_no_reader(call: Call, store: Path):
    changed(store, f"UPDATE params SET value = '{'[' * 3000}' WHERE key = 'task.dim'")
    for words in (["best", "tiny"], ["export", "tiny", "--to", str(store.parent / "out")]):
        assert call(*words)[0] in (0, 2)
    assert len(findings(call)[0]["problem"]) < 300


def test_a_damaged_tag_is_named_by_one_check(call: Call, store: Path):
    changed(store, f"UPDATE tags SET value = 'abc' WHERE key = 'number' AND {REPLICATE}")
    assert [each["check"] for each in findings(call)] == ["tags"]


def timeless(store: Path) -> dict[str, list[list]]:
    """The rows of all tables without whole numbers, such as times."""
    found = {table: rows(store, f"SELECT * FROM {table}") for table in TABLES}
    texts = {name: [[cell for cell in row if type(cell) is not int] for row in found[name]] for name in found}
    return {name: sorted(texts[name], key=str) for name in texts}


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["start_time = NULL", "start_time = 'soon'", "end_time = 'soon'"])
def test_times_that_are_no_numbers_stop_no_reader(call: Call, store: Path, damage: str):
    changed(store, f"UPDATE runs SET {damage}")
    for words in (
        ["list", "--json"],
        ["best", "tiny"],
        ["export", "tiny", "--to", str(store.parent / "out")],
    ):
        code, _, err = call(*words)
        assert (code, err) == (0, "")


@pytest.mark.slow
def test_a_text_that_is_no_utf_8_stops_no_reader(call: Call, store: Path):
    changed(store, f"UPDATE tags SET value = CAST(x'74ff69' AS TEXT) WHERE key = 'label' AND {REPLICATE}")
    code, out, err = call("query", "SELECT label FROM trials", "--json")
    assert (code, err) == (0, "")
    assert "t�i" in out


def test_a_repair_that_the_database_refuses_is_one_line(store: Path, call: Call):
    """A value that SQLite forbids came from another program."""
    forbidden = "UPDATE metrics SET is_nan = -5 WHERE key = 'flops'"
    changed(store, "PRAGMA ignore_check_constraints = 1", forbidden)
    found = findings(call, "--repair")
    assert any("CHECK constraint failed" in str(each.get("failed")) for each in found), found
