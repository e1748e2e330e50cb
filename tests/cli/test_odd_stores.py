"""A device, a pipe, a file or an impossible name in the place of a store: one clear line from every verb."""

import json
import os
from pathlib import Path

import pytest

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
