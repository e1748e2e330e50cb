"""The doctor of a store whose format file is damaged, however a person names the store."""

import os
import sqlite3
from pathlib import Path

import pytest

from loopscale.cli.main import main
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, record


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tiny.yaml").write_text(TINY)
    study = Study.load(tmp_path / "tiny.yaml")
    with record(tmp_path / "records", study) as made:
        made.parent("FINISHED")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "records"


@pytest.mark.parametrize("named", ["after the verb", "before the verb", "by the environment"])
def test_the_doctor_mends_the_store_that_a_person_names(
    store: Path, monkeypatch: pytest.MonkeyPatch, named: str
):
    sound = (store / "format.json").read_text()
    (store / "format.json").write_text("")
    words = ["doctor", "--repair"]
    if named == "by the environment":
        monkeypatch.setenv("LOOPSCALE_STORE", str(store))
    else:
        option = ["--store", str(store)]
        words = words + option if named == "after the verb" else option + words
    main(words)
    assert (store / "format.json").read_text() == sound


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_format_file_that_is_no_regular_file_is_one_line(
    store: Path, capsys: pytest.CaptureFixture[str], kind: str
):
    (store / "format.json").unlink()
    (os.mkfifo if kind == "pipe" else os.mkdir)(store / "format.json")
    assert main(["list", "--store", str(store)]) == 2
    assert main(["doctor", "--store", str(store)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("`loopscale doctor --repair` restores it" in line for line in lines)
    if kind == "folder":
        assert main(["doctor", "--repair", "--store", str(store)]) == 2
        assert "cannot be written (Is a directory); remove it" in capsys.readouterr().err


@pytest.mark.quick_cases(1)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("damage", ["a folder as lock", "a pipe as lock", "a time beyond all calendars"])
def test_readers_read_a_store_with_a_damage_beside_the_records(
    store: Path, capsys: pytest.CaptureFixture[str], damage: str
):
    assert main(["list", "--json", "--store", str(store)]) == 0
    lock = store / "mirror" / "own" / "lock"
    if damage == "a time beyond all calendars":
        with sqlite3.connect(store / "mlflow.db") as database:
            database.execute("UPDATE runs SET start_time = -9223372036854775807")
        database.close()
    else:
        lock.unlink()
        (os.mkdir if damage == "a folder as lock" else os.mkfifo)(lock)
    capsys.readouterr()
    assert main(["list", "--json", "--store", str(store)]) == 0
    assert '"study": "tiny"' in capsys.readouterr().out
