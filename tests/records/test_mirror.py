"""The mirror answers SQL queries about the records, and is up to date."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from loopscale.records import mirror as mirror_module
from loopscale.records.mirror import Mirror, QueryError
from loopscale.records.model import LEARNING, Note
from loopscale.records.stores.base import Store
from loopscale.records.stores.folder import FolderStore
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from loopscale.records.tables import PLAY_COLUMNS, REGRETS, decode_curve, encode_curve
from loopscale.records.writing.mlflow_writer import MlflowWriter

DESCRIBED = {"name": "one", "question": "why?", "source": "here", "cells": [{"key": "c1", "values": {}}]}


def write(store: Store, *notes: Note, study: str = "one") -> None:
    runs = {record.key: record.run for record in recorded_trials(store, study)}
    with MlflowWriter(store, study, runs) as writer:
        for note in notes:
            writer.write(note)
        assert writer.flush(30)


def ask(store: Store, sql: str) -> list[tuple[object, ...]]:
    mirror = Mirror(store)
    mirror.sync()
    return [tuple(row.values()) for row in mirror.query(sql).to_pylist()]


def test_the_query_of_the_readme_is_answered(store: FolderStore, trials):
    write(
        store,
        *trials.whole("a", 0.5),
        *trials.whole("b", 0.25),
        *trials.whole("c", 1.0, **{"model.kind": "gpt2"}),
    )
    sql = "SELECT \"model.kind\", min(error) FROM trials WHERE role='replicate' GROUP BY 1 ORDER BY 1"
    assert ask(store, sql) == [("gpt2", 1.0), ("looped", 0.25)]


def test_a_trials_error_is_of_the_evaluation_and_before_that_of_the_validation(store: FolderStore, trials):
    write(store, *trials.whole("a", 0.25), trials.begun("b"), trials.at("b", 10))
    sql = "SELECT error, error_last, raw_error, validate_error, step, outcome FROM trials ORDER BY ALL"
    assert ask(store, sql) == [
        (0.25, 0.125, 0.5, 0.5, 20, "finished"),
        (0.5, 0.5, None, 0.5, 10, "running"),
    ]


def test_the_column_of_a_setting_has_a_type_that_holds_the_values_of_all_studies(store: FolderStore, trials):
    write(store, trials.begun("a", x=1, y=1, z=None, training=0), study="one")
    write(store, trials.begun("b", x=2, y=0.5, z=None, w="one", v=[1]), study="two")
    types = dict(ask(store, "SELECT column_name, column_type FROM (DESCRIBE trials)"))
    expected = {
        "x": "BIGINT",
        "y": "DOUBLE",
        "z": "VARCHAR",
        "w": "VARCHAR",
        "v": "VARCHAR",
        "model.kind": "VARCHAR",
        "model.width": "BIGINT",
        "training.lr": "DOUBLE",
        "training.truncate": "BOOLEAN",
        "seed": "BIGINT",
    }
    assert {name: types[name] for name in expected} == expected
    assert ask(store, "SELECT study, x, y, w, v FROM trials ORDER BY 1") == [
        ("one", 1, 1.0, None, None),
        ("two", 2, 0.5, "one", "[1]"),
    ]


def test_a_history_has_every_metric_of_each_step_and_no_settings(store: FolderStore, trials):
    write(store, *trials.whole("a"))
    rows = ask(store, "SELECT DISTINCT metric FROM history ORDER BY 1")
    assert rows == [("error",), ("error_last",), ("loss",), ("seconds",)]
    assert ask(store, "SELECT trial, step, value FROM history WHERE metric = 'seconds' ORDER BY 2") == [
        ("a", 10, 1.0),
        ("a", 20, 2.0),
    ]


def test_curves_have_every_loop_and_point_of_trials_and_baselines(store: FolderStore, trials):
    baseline = Note(
        "n",
        2,
        {"evaluate/error": 0.1},
        {"solver.kind": "newton"},
        {"role": "baseline"},
        "FINISHED",
        (("curve.parquet", trials.curve),),
    )
    write(store, *trials.whole("a"), baseline)
    assert ask(store, "SELECT count(*) FROM curves") == [(12,)]
    assert ask(store, "SELECT * FROM curves WHERE trial = 'n' AND loop = 2 AND point = 1") == [
        ("n", 2, 1, 4.0, 14.0, 24.0, *[None] * 6)
    ]
    assert ask(store, "SELECT seed, error, \"solver.kind\" FROM trials WHERE role = 'baseline'") == [
        (None, 0.1, "newton")
    ]


def test_a_curve_has_a_median_if_a_median_was_recorded(store: FolderStore, trials):
    grid = np.arange(6.0).reshape(2, 3)
    newer = Note(
        "m",
        2,
        {"evaluate/error": 0.1},
        {},
        {"role": "baseline"},
        "FINISHED",
        (("curve.parquet", encode_curve(grid, grid, grid, grid + 30)),),
    )
    write(store, *trials.whole("a"), newer)
    assert ask(store, "SELECT median FROM curves WHERE trial = 'm' AND loop = 2 AND point = 1") == [(34.0,)]
    assert ask(store, "SELECT DISTINCT median FROM curves WHERE trial = 'a'") == [(None,)]


def test_regret_and_learning_are_columns_and_older_records_have_null(store: FolderStore, trials):
    grid = np.arange(6.0).reshape(2, 3)
    metrics = {f"evaluate/{name}": 0.5 for name in REGRETS} | dict.fromkeys(LEARNING, 0.25)
    curve = encode_curve(grid, grid, grid, grid, regret=(grid + 40, grid + 50))
    newer = Note("m", 20, metrics, tags={"floor": "bayes ridge"}, artifacts=(("curve.parquet", curve),))
    write(store, *trials.whole("a"), trials.begun("m"), trials.at("m", 20), newer)
    names = ", ".join((*REGRETS, *LEARNING, "floor"))
    assert ask(store, f"SELECT {names} FROM trials ORDER BY trial") == [
        (None,) * 11,
        (*[0.5] * 4, *[0.25] * 6, "bayes ridge"),
    ]
    of_curve = "SELECT DISTINCT regret, regret_sem FROM curves WHERE trial = '{}' AND loop = 2 AND point = 1"
    assert ask(store, of_curve.format("m")) == [(44.0, 54.0)]
    assert ask(store, of_curve.format("a")) == [(None, None)]
    logged = {metric for (metric,) in ask(store, "SELECT DISTINCT metric FROM history")}
    assert not logged & {*LEARNING, *REGRETS}


def test_studies_has_the_description_of_every_study(store: FolderStore):
    described = (("study.json", json.dumps(DESCRIBED).encode()),)
    write(store, Note("study", tags={"commit": "abc"}, status="FINISHED", artifacts=described))
    sql = "SELECT study, question, source, commit, status, cells->>'$[0].key', json FROM studies"
    assert ask(store, sql) == [("one", "why?", "here", "abc", "FINISHED", "c1", json.dumps(DESCRIBED))]
    assert ask(store, "SELECT count(*) FROM trials") == [(0,)]


def test_a_trial_of_two_studies_has_one_curve(store: FolderStore, trials):
    for study in ("one", "two"):
        write(store, *trials.whole("a"), study=study)
    assert ask(store, "SELECT count(*) FROM curves") == [(6,)]
    assert ask(store, "SELECT study FROM trials ORDER BY 1") == [("one",), ("two",)]


def test_later_notes_appear_in_the_mirror(store: FolderStore, trials):
    write(store, *trials.whole("a"), trials.begun("b"))
    assert ask(store, "SELECT count(*) FROM history WHERE trial = 'b'") == [(0,)]
    write(store, trials.at("b", 10), *trials.whole("c"))
    assert ask(store, "SELECT trial, count(*) FROM history GROUP BY 1 ORDER BY 1") == [
        ("a", 8),
        ("b", 4),
        ("c", 8),
    ]
    write(store, trials.finished("b", 10, 0.125))
    assert ask(store, "SELECT count(*) FROM curves WHERE trial = 'b'") == [(6,)]
    assert ask(store, "SELECT error FROM trials WHERE trial = 'b'") == [(0.125,)]


def test_deleted_runs_and_studies_disappear_from_the_mirror(store: FolderStore, trials):
    write(store, *trials.whole("a"), *trials.whole("b"))
    write(store, *trials.whole("c"), study="two")
    assert ask(store, "SELECT count(*) FROM curves") == [(18,)]
    store.client.delete_run(next(record.run for record in recorded_trials(store, "one") if record.key == "a"))
    store.client.delete_experiment(store.make_experiment("two"))
    assert ask(store, "SELECT trial FROM trials") == [("b",)]
    assert ask(store, "SELECT DISTINCT trial FROM history") == [("b",)]
    assert ask(store, "SELECT DISTINCT trial FROM curves") == [("b",)]


def test_only_files_with_a_changed_run_are_rewritten(
    store: FolderStore, trials, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mirror_module, "RUNS_PER_FILE", 4)
    write(store, *(note for key in "abcdef" for note in trials.whole(key)))
    mirror = Mirror(store)
    mirror.sync()
    files = {path: path.stat().st_mtime_ns for path in mirror.folder.glob("one/*-*.parquet")}
    assert len(files) == 4
    write(store, Note("f", 30, {"error": 0.1}))
    mirror.sync()
    changed = {path.name for path, before in files.items() if path.stat().st_mtime_ns != before}
    assert changed == {"history-0001.parquet", "curves-0001.parquet"}
    assert len(mirror.query("SELECT DISTINCT trial FROM history")) == 6


def test_an_unchanged_store_is_not_read_again(store: FolderStore, trials, tmp_path: Path):
    write(store, *trials.whole("a"))
    assert ask(store, "SELECT count(*) FROM trials") == [(1,)]
    code = (
        "import sys; from loopscale.records.stores.opening import open_store;"
        "from loopscale.records.mirror import Mirror;"
        f"m = Mirror(open_store({str(store.root)!r})); m.sync(); assert 'pyarrow' not in sys.modules;"
        "assert m.query('SELECT trial FROM trials').to_pylist() == [{'trial': 'a'}];"
        "print([name for name in ('mlflow', 'torch', 'ray', 'optuna', 'sqlalchemy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_one_study_can_be_synchronised_alone(store: FolderStore, trials):
    write(store, *trials.whole("a"), study="one")
    write(store, *trials.whole("b"), study="two")
    mirror = Mirror(store)
    mirror.sync("two")
    assert mirror.query("SELECT trial FROM trials").to_pylist() == [{"trial": "b"}]
    mirror.sync()
    assert len(mirror.query("SELECT trial FROM trials")) == 2


def test_a_damaged_or_older_mirror_is_made_anew(store: FolderStore, trials):
    write(store, *trials.whole("a"))
    mirror = Mirror(store)
    mirror.sync()
    (mirror.folder / "state.json").write_text("{")
    (mirror.folder / "one" / "trials.parquet").write_bytes(b"rubbish")
    assert ask(store, "SELECT trial FROM trials") == [("a",)]


def test_a_half_written_transaction_of_a_killed_driver_is_rolled_back(store: FolderStore, trials):
    write(store, *trials.whole("a"))
    code = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA cache_size = 1');"
        "c.execute('BEGIN'); c.execute(\"UPDATE tags SET value = 'wrong'\");"
        "c.executemany('INSERT INTO params VALUES (?, ?, ?)', [(i, 'x' * 999, '') for i in range(999)])\n"
        "os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(store.root / "mlflow.db")], check=False)
    assert (store.root / "mlflow.db-journal").stat().st_size > 0
    assert ask(open_store(store.root), "SELECT role FROM trials") == [("replicate",)]


@pytest.mark.slow
def test_readers_see_whole_tables_while_a_writer_writes(store: FolderStore, trials):
    problems: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(8):
                for (count,) in ask(store, "SELECT count(*) FROM curves GROUP BY trial"):
                    assert count == 6
        except BaseException as problem:
            problems.append(problem)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(10):
        write(store, *trials.whole(f"t{number}"))
    for reader in readers:
        reader.join()
    assert problems == []
    assert ask(store, "SELECT count(*) FROM trials") == [(10,)]


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(
    "sql",
    [
        "COPY trials TO '/tmp/stolen.csv'",
        "ATTACH '/tmp/other.db'",
        "INSTALL httpfs",
        "DROP VIEW history",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT 1; SELECT 2",
        "",
        "SET enable_external_access = true",
        "SELECT * FROM nothing",
        "SELEC 1",
        "SELECT error +",
        "rows",
    ],
)
def test_a_query_can_only_read_the_tables_and_a_wrong_query_gives_an_error_of_one_line(
    store: FolderStore, sql: str
):
    rows = [{"secret": 1}]
    assert rows
    with pytest.raises(QueryError) as caught:
        ask(store, sql)
    assert "\n" not in str(caught.value)


def test_the_database_gives_access_to_no_file(store: FolderStore, tmp_path: Path):
    import duckdb

    mirror = Mirror(store)
    mirror.sync()
    with mirror.database() as connection:
        for sql in (
            f"COPY trials TO '{tmp_path}/x'",
            "SET enable_external_access = true",
            f"ATTACH '{tmp_path}/y'",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(sql)
    assert {path.name for path in tmp_path.iterdir()} == {"store"}


def test_the_mirror_of_a_read_only_store_lies_in_a_temporary_folder(store: FolderStore, trials):
    write(store, *trials.whole("a"))
    readonly = open_store(store.root, storage="/proc/loopscale")
    assert ask(readonly, "SELECT trial FROM trials") == [("a",)]


def test_a_moved_store_still_has_its_curves(store: FolderStore, trials, tmp_path: Path):
    write(store, *trials.whole("a"))
    shutil.move(str(store.root), tmp_path / "moved")
    assert ask(open_store(tmp_path / "moved"), "SELECT count(*) FROM curves") == [(6,)]


def test_a_folder_may_have_the_signs_of_a_pattern_in_its_name(trials, tmp_path: Path):
    for name in ("st*re", "store", "it's [one]?"):
        store = open_store(tmp_path / name, create=True)
        write(store, *trials.whole(name))
        assert ask(
            store, "SELECT DISTINCT trial, loop FROM trials JOIN curves USING (trial) WHERE loop = 1"
        ) == [(name, 1)]


def test_the_study_of_a_trial_stays_if_another_study_with_the_trial_is_read_alone(store: FolderStore, trials):
    for study in ("two", "one"):
        write(store, *trials.whole("a"), study=study)
        mirror = Mirror(store)
        mirror.sync(study)
        assert len(mirror.query("SELECT * FROM curves")) == 6
    mirror.sync()
    assert ask(store, "SELECT study FROM trials ORDER BY study") == [("one",), ("two",)]


def test_a_lost_table_of_all_trials_is_made_again(store: FolderStore, trials):
    write(store, *trials.whole("a"))
    mirror = Mirror(store)
    mirror.sync()
    for damage in (Path.unlink, lambda file: file.write_bytes(b"rubbish")):
        damage(mirror.folder / mirror_module.MERGED)
        assert ask(store, "SELECT trial FROM trials") == [("a",)]


def test_a_query_needs_no_pandas(store: FolderStore, trials):
    write(store, *trials.whole("a"))
    ask(store, "SELECT 1")
    code = (
        "import sys; from loopscale.cli.main import main;"
        f"assert not main(['query', 'SELECT * FROM trials', '--json', '--store', {str(store.root)!r}]);"
        "print('pandas' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "False"


def test_a_decoded_curve_is_the_encoded_curve():
    grids = {
        name: np.arange(6.0).reshape(2, 3) + n for n, name in enumerate(("error", "sem", "raw", "median"))
    }
    regret = np.array([[0.1, np.nan, 0.3], [0.4, 0.5, 0.6]])
    decoded = decode_curve(encode_curve(*grids.values(), seen=(2, 4, 8), regret=(regret, regret + 1)))
    for name, grid in (grids | {"regret": regret, "regret_sem": regret + 1}).items():
        np.testing.assert_array_equal(decoded[name], grid)


def test_a_curve_has_the_rounds_of_play_after_the_loop_of_play_alone(store: FolderStore, trials):
    grid, rows = np.arange(6.0).reshape(2, 3), np.array([[1.0, 2.0, 4.0], [0.1, 0.2, 0.4], [1.0, 1.5, 2.0]])
    for loop, row in ((1, 0), (2, 1), (9, 1)):
        decoded = decode_curve(encode_curve(grid, grid, grid, play=(loop, *rows)))
        for name, values in zip(PLAY_COLUMNS, rows, strict=True):
            np.testing.assert_array_equal(decoded[name][row], values)
            assert np.isnan(decoded[name][1 - row]).all()
    content = encode_curve(grid, grid, grid, play=(1, *rows))
    write(store, *trials.whole("a", 0.25), Note("a", 20, artifacts=(("curve.parquet", content),)))
    write(store, *trials.whole("b", 0.25))
    sql = "SELECT trial, loop, point, play_regret FROM curves WHERE play_regret IS NOT NULL ORDER BY ALL"
    assert ask(store, sql) == [("a", 1, n, value) for n, value in enumerate(rows[0])]


def test_a_finished_trial_without_an_evaluation_has_no_error_beside_errors_of_evaluations(
    store: FolderStore, trials
):
    """A copy of a study finds the trial finished, and its weights dropped."""
    write(store, *trials.whole("a", 0.25))
    copied = Note("a", 20, tags={"outcome": "finished", "detail": "not evaluated"}, status="FINISHED")
    write(store, trials.begun("a"), trials.at("a", 20), copied, study="copy")
    sql = "SELECT study, error, error_last, validate_error FROM trials ORDER BY ALL"
    assert ask(store, sql) == [("copy", None, None, 0.5), ("one", 0.25, 0.125, 0.5)]


@pytest.mark.parametrize("place", ["mirror", "mirror/own"])
def test_no_file_behind_a_link_is_changed(
    store: FolderStore, trials, tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
):
    write(store, *trials.whole("a", 0.5))
    (tmp_path / "home/papers").mkdir(parents=True)
    for name in ("papers/thesis.tex", "state.json", "trials.parquet"):
        (tmp_path / "home" / name).write_text("mine")
    before = sorted((tmp_path / "home").rglob("*"))
    shutil.rmtree(store.root / "mirror", ignore_errors=True)
    (store.root / place).parent.mkdir(exist_ok=True)
    (store.root / place).symlink_to(tmp_path / "home")
    assert ask(store, "SELECT error FROM trials") == [(0.5,)]
    assert Mirror(store).damage == ["state.json"]
    Mirror(store).remove()
    assert ask(store, "SELECT error FROM trials") == [(0.5,)]
    assert not (store.root / place).is_symlink()
    assert sorted((tmp_path / "home").rglob("*")) == before
    assert {path.read_text() for path in before if path.is_file()} == {"mine"}
