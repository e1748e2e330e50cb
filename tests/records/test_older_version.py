"""A store and an export made by version 0.1.0 open and answer as they did under that version.

`before/old_store.tar.xz` holds a folder store, its export with weights, the study's file, and `answers/`: the JSON that
version 0.1.0 printed for both. The study has 4 cells, 16 trained trials and 2 baselines. The database says that the
store lies in /srv/loopscale-store, so every copy counts as a moved store.
"""

import json
import shutil
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import pytest

from loopscale.cli.main import main
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from loopscale.records.transfer import ImportCounts, import_records
from loopscale.records.weights import weights_of
from loopscale.training.checkpoint import load_net, load_trial

ARCHIVE = Path(__file__).parent / "before" / "old_store.tar.xz"
MAKER_FOLDER = "file:///srv/loopscale-store/artifacts"
QUERIES = {
    "trials": "SELECT * FROM trials ORDER BY trial",
    "curves": "SELECT * FROM curves ORDER BY ALL",
    "history": "SELECT * FROM history ORDER BY ALL",
    "studies": "SELECT * FROM studies ORDER BY ALL",
}
INTERVAL = {"error_low", "error_high"}
"""Columns of `best` that depend on the rule for intervals. A newer version may have another rule."""
WITH_WEIGHTS = 12
"""Trials whose weights version 0.1.0 kept: 8 replicates and the best tuning trial of each of 4 cells."""


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a fresh copy of everything in the archive; also the working directory."""
    for name in ("LOOPSCALE_STORE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capfd: pytest.CaptureFixture[str], *words: str) -> Any:
    """The JSON that a verb prints."""
    capfd.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def answer(folder: Path, name: str) -> Any:
    return json.loads((folder / "answers" / f"{name}.json").read_text())


def without_intervals(rows: list[dict[str, Any]], columns: set[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name in columns - INTERVAL} for row in rows]


def check_rows(now: list[dict[str, Any]], before: list[dict[str, Any]], name: str) -> None:
    """Check that the rows are those of the older version. Newer columns are empty."""
    older = [{column: row[column] for column in row if column in before[0]} for row in now]
    assert older == before, name
    newer = [row[column] for row in now for column in row.keys() - before[0].keys()]
    assert all(value in (None, []) for value in newer), name


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("place", ["store", "export"])
def test_reading_verbs_give_the_answers_of_the_older_version(old: Path, place: str, capfd):
    for name, sql in QUERIES.items():
        check_rows(printed(capfd, "query", sql, "--store", place), answer(old, name), name)
    check_rows(printed(capfd, "list", "--store", place), answer(old, "list"), "list")
    before, now = answer(old, "best"), printed(capfd, "best", "old_store", "--store", place)["cells"]
    columns = set(before[0])
    assert columns <= set(now[0]), "no column is lost"
    assert without_intervals(now, columns) == without_intervals(before, columns)


@pytest.mark.slow
def test_weights_of_the_older_version_load_as_nets(old: Path):
    keys = {file.stem for file in (old / "export/weights").iterdir()}
    assert len(keys) == WITH_WEIGHTS
    shutil.copytree("store", "without-checkpoints", ignore=shutil.ignore_patterns("checkpoints"))
    for place in ("store", "without-checkpoints", "export"):
        for key in sorted(keys):
            with weights_of(open_store(place), key) as (checkpoints, found):
                trial = load_trial(checkpoints, found)
                assert trial.key == key
                load_net(checkpoints, found, trial)


def test_a_moved_older_store_puts_new_artifacts_into_its_new_folder(old: Path):
    def addresses() -> set[str]:
        with sqlite3.connect(old / "store/mlflow.db") as database:
            rows = database.execute(
                "SELECT artifact_uri FROM runs UNION SELECT artifact_location FROM experiments"
                " WHERE name = 'old_store'"
            ).fetchall()
        database.close()
        return {row[0] for row in rows}

    assert {text[: len(MAKER_FOLDER)] for text in addresses()} == {MAKER_FOLDER}
    assert open_store("store").client.get_experiment_by_name("old_store")
    new = (old / "store/artifacts").as_uri()
    assert {text[: len(new)] for text in addresses()} == {new}


def test_an_older_export_is_imported_completely(old: Path, capfd):
    assert import_records(open_store("store", create=True), "export") == ImportCounts(new=0, present=18)
    fresh = open_store("fresh", create=True)
    assert import_records(fresh, "export") == ImportCounts(new=18, present=0)
    for name in ("trials", "curves", "history"):
        check_rows(printed(capfd, "query", QUERIES[name], "--store", "fresh"), answer(old, name), name)


@pytest.mark.slow
def test_a_study_that_the_older_version_finished_has_nothing_left_to_train(old: Path, capfd):
    before = {record.key: record for record in recorded_trials(open_store("store"), "old_store")}
    study = old / "studies/old_store.yaml"
    # Version 0.1.0 accepted a fixed setting that nuisance tunes. Its trials are the same without the setting.
    assert main(["run", str(study), "--store", "store"]) == 2
    assert "fixed sets training.lr, and nuisance tunes it" in capfd.readouterr().err
    written = study.read_text()
    study.write_text(written.replace("lr: 1.0e-3, ", "", 1))
    assert study.read_text() != written
    assert main(["run", str(study), "--store", "store"]) == 0
    assert {record.key: record for record in recorded_trials(open_store("store"), "old_store")} == before
    check_rows(
        printed(capfd, "query", QUERIES["trials"], "--store", "store"), answer(old, "trials"), "trials"
    )
