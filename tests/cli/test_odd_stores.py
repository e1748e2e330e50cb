"""A device, a pipe, a file or an impossible name in the place of a store: one clear line from every verb."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from loopscale.interface import reports

VERBS = {
    "list": ["list"],
    "best": ["best", "tiny"],
    "query": ["query", "SELECT 1"],
    "report": ["report", "tiny"],
    "compare": ["compare", "tiny", "other"],
    "export": ["export", "tiny", "--to", "exported"],
    "predict": ["predict", "abc"],
    "rename": ["rename", "tiny", "other"],
    "delete": ["delete", "tiny", "--yes"],
    "doctor": ["doctor", "--repair"],
    "status": ["status"],
    "status of a study": ["status", "tiny"],
    "logs": ["logs", "tiny"],
    "stop": ["stop", "tiny"],
    "run": ["run", "tiny.yaml"],
    "submit": ["submit", "tiny.yaml"],
}
STORES = ("/dev/null", "/dev/zero", "pipe", "file", "a" * 300)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("verb", VERBS)
def test_a_store_that_is_no_folder_is_one_clear_line(loopscale, elsewhere: Path, study_file: Path, verb: str):
    (elsewhere / "tiny.yaml").write_text(study_file.read_text())
    (elsewhere / "file").write_text("not a store")
    os.mkfifo(elsewhere / "pipe")
    for store in STORES:
        answer = loopscale(*VERBS[verb], "--store", store)
        *notes, line = answer.err.splitlines()
        assert (answer.code, answer.out) == (2, ""), (store, answer)
        assert all(note.startswith(("note: ", "package: ")) for note in notes), notes
        assert store in line
        assert "; " in line
    assert {file.name for file in elsewhere.iterdir()} == {"tiny.yaml", "file", "pipe"}


def test_damaged_files_of_submissions_are_left_out(loopscale, elsewhere: Path):
    (folder := elsewhere / "records" / "submissions").mkdir(parents=True)
    about = {"study": "tiny", "pid": 1, "born": None, "started": 1.0}
    (folder / "tiny-1.json").write_text(json.dumps(about))
    (folder / "tiny-2.json").write_text(json.dumps(about | {"pid": "1"}))
    (folder / "tiny-3.json").write_bytes(b"\0")
    os.mkfifo(folder / "tiny-4.json")
    os.mkfifo(folder / "tiny-1.code")
    os.mkfifo(folder / "tiny-1.log")
    answer = loopscale("status", "--store", "records", "--json")
    assert [(each["id"], each["state"]) for each in answer.json] == [("tiny-1", "failed")]
    assert [line.split(" is damaged")[0][-11:] for line in answer.err.splitlines()] == [
        "tiny-2.json",
        "tiny-3.json",
        "tiny-4.json",
    ]
    logs = loopscale("logs", "tiny", "--store", "records")
    assert (logs.code, logs.err.splitlines()[-1][:30]) == (2, "tiny-1 has no log in " + str(folder)[:9])


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", ["a file", "a pipe", "a link to nothing"])
@pytest.mark.parametrize("name", ["checkpoints", "ray", "artifacts"])
def test_a_run_names_what_stands_in_the_place_of_its_folders(
    loopscale, records: Path, study_file: Path, name: str, kind: str
):
    path = records / name
    shutil.rmtree(path, ignore_errors=True)
    REPLACED[kind](path)
    answer = loopscale("run", study_file, "--store", records)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert f"{path} is no folder; rename the path, or let `loopscale doctor --repair` do so" in answer.err


REPLACED = {
    "a file": lambda path: path.write_text(""),
    "a pipe": os.mkfifo,
    "a link to nothing": lambda path: path.symlink_to("absent"),
}


@pytest.mark.parametrize("kind", REPLACED)
def test_what_stands_in_the_place_of_a_mirror_is_replaced(loopscale, records: Path, kind: str):
    before = loopscale("list", "--store", records, "--json").json
    shutil.rmtree(folder := records / "mirror" / "own" / "tiny")
    REPLACED[kind](folder)
    answer = loopscale("list", "--store", records, "--json")
    assert (answer.code, answer.json) == (0, before)
    assert folder.is_dir()


def changed(records: Path, statement: str) -> None:
    with closing(sqlite3.connect(records / "mlflow.db")) as database, database:
        database.execute(statement)


@pytest.mark.slow
def test_a_report_says_what_a_store_answers_that_takes_no_page(
    loopscale, records: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reports, "ATTACH_SECONDS", 0.5)
    changed(records, "UPDATE runs SET start_time = NULL")
    answer = loopscale("report", "tiny", "--store", records)
    assert answer.code == 0
    assert "it takes no notes (start_time cannot be None)" in answer.err


def test_a_report_on_a_database_without_a_table_does_not_wait_for_the_table(loopscale, records: Path):
    changed(records, "DROP TABLE inputs")
    answer = loopscale("report", "tiny", "--store", records)
    assert answer.code == 0
    assert "was not attached to the study" in answer.err
    assert "no such table: inputs" in answer.err


def test_a_report_on_trials_without_settings_is_written(loopscale, records: Path):
    changed(records, "DELETE FROM params")
    assert loopscale("report", "tiny", "--store", records).code == 0
