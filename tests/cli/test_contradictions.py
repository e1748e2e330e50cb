"""Curves and results that contradict each other, and results that are lost: found, and mended from what is left."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from loopscale.analysis.recorded.floors import FLOORS_FILE, saved_form
from loopscale.cli.main import main
from loopscale.stats.learning import MeanFloor

Call = Callable[..., tuple[int, str, str]]
TRIALS = "SELECT * FROM trials ORDER BY ALL"


@pytest.fixture
def call(records: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--store", str(records)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return called


def findings(call: Call, check: str, *words: str) -> list[dict]:
    return [
        each for each in json.loads(call("doctor", "--json", *words)[1])["findings"] if each["check"] == check
    ]


def changed(store: Path, *statements: str) -> None:
    with closing(sqlite3.connect(store / "mlflow.db")) as database, database:
        for statement in statements:
            database.execute(statement)


def replicates(store: Path) -> list[str]:
    """The ids of the runs of all replicates."""
    query = "SELECT run_uuid FROM tags WHERE key = 'role' AND value = 'replicate' ORDER BY run_uuid"
    with closing(sqlite3.connect(store / "mlflow.db")) as database:
        return [run for (run,) in database.execute(query)]


def test_swapped_curves_are_noticed_and_come_back_from_the_mirror(call: Call, records: Path):
    before = call("query", "SELECT * FROM curves ORDER BY ALL", "--json")[1]
    one, two = (
        records / "artifacts" / run / "artifacts" / "curve.parquet" for run in replicates(records)[:2]
    )
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    found = findings(call, "curves")
    assert len(found) == 2
    assert all("at no loop: one of them was changed" in each["problem"] for each in found)
    mended = findings(call, "curves", "--repair")
    assert {each["mended"] for each in mended} == {"the curve was copied from the mirror"}
    assert not findings(call, "curves")
    assert call("query", "SELECT * FROM curves ORDER BY ALL", "--json")[1] == before


@pytest.mark.parametrize("name", ["error", "error_last", "raw_error"])
def test_a_changed_result_is_noticed_and_comes_back_from_the_mirror(call: Call, records: Path, name: str):
    before = call("query", TRIALS, "--json")[1]
    run = replicates(records)[0]
    which = f"WHERE run_uuid = '{run}' AND key = 'evaluate/{name}'"
    tables = ("metrics", "latest_metrics")
    changed(records, *(f"UPDATE {table} SET value = value * 1.001 {which}" for table in tables))
    (found,) = findings(call, "curves")
    assert name in found["problem"]
    (mended,) = findings(call, "curves", "--repair")
    assert mended["mended"] == "the results were copied from the mirror"
    assert not findings(call, "curves")
    assert call("query", TRIALS, "--json")[1] == before


def test_a_contradiction_without_any_copy_is_named_and_stays(call: Call, records: Path):
    run = replicates(records)[0]
    shutil.rmtree(records / "mirror", ignore_errors=True)
    which = f"WHERE run_uuid = '{run}' AND key = 'evaluate/error'"
    tables = ("metrics", "latest_metrics")
    changed(records, *(f"UPDATE {table} SET value = value + 0.01 {which}" for table in tables))
    (found,) = findings(call, "curves", "--repair")
    assert found["mended"] is None
    assert found["failed"]


def test_lost_regrets_and_floors_of_a_known_floor_are_named(call: Call, records: Path):
    run = replicates(records)[0]
    for tag, text in (("evaluation", "an evaluation"), ("floor", "exact ridge")):
        changed(records, f"INSERT INTO tags (key, value, run_uuid) VALUES ('{tag}', '{text}', '{run}')")
    lost = (
        "evaluate/regret, evaluate/regret_sem, evaluate/regret_last and 3 more of the finished trial are lost"
    )
    assert [each["problem"] for each in findings(call, "metrics")].count(lost) == 1


def train(store: Path) -> str:
    """Give a replicate a validation in the middle of its training, and a floor. Return the id of its run."""
    run = replicates(store)[0]
    columns = (
        "INTO {} (key, value, timestamp, run_uuid, step, is_nan) VALUES ('{}', {}, 0, '" + run + "', {}, 0)"
    )
    changed(
        store,
        "INSERT " + columns.format("metrics", "error", 0.45, 2),
        *(
            "INSERT " + columns.format(table, name, value, 4)
            for table in ("metrics", "latest_metrics")
            for name, value in (("validate_floor", 0.0), ("validate_ignorance", 1.0))
        ),
    )
    return run


def raise_metric(store: Path, run: str, name: str, by: float) -> None:
    which = f"WHERE run_uuid = '{run}' AND key = '{name}'"
    tables = ("metrics", "latest_metrics")
    changed(store, *(f"UPDATE {table} SET value = value + {by} {which}" for table in tables))


def test_the_lost_learning_of_a_training_is_computed_from_its_validations(call: Call, records: Path):
    train(records)
    (found,) = findings(call, "learning")
    assert found["severity"] == "error"
    assert "emerged_at" in found["problem"]
    (mended,) = findings(call, "learning", "--repair")
    assert "written again" in mended["mended"]
    assert not findings(call, "learning")
    sql = "SELECT emerged_at FROM trials WHERE emerged_at IS NOT NULL"
    (row,) = json.loads(call("query", sql, "--json")[1])
    assert row["emerged_at"] > 0


def test_changed_learning_comes_back_from_the_mirror_and_stays_without_one(call: Call, records: Path):
    run = train(records)
    findings(call, "learning", "--repair")
    before = call("query", TRIALS, "--json")[1]
    raise_metric(records, run, "emerged_at", 7)
    (mended,) = findings(call, "learning", "--repair")
    assert mended["problem"].startswith("emerged_at differ")
    assert mended["mended"] == "1 values were written again"
    assert call("query", TRIALS, "--json")[1] == before
    shutil.rmtree(records / "mirror")
    raise_metric(records, run, "emerged_at", 5)
    (left,) = findings(call, "learning", "--repair")
    assert left["mended"] is None
    assert left["failed"] == "no copy tells whether these values or the validations were changed"


def test_a_forged_floor_is_found_by_a_second_computation(call: Call, records: Path):
    assert call("report", "tiny", "--out", "page.html")[0] == 0  # computes the floors
    assert not findings(call, "floors")
    file = records / FLOORS_FILE
    floors = json.loads(file.read_text())
    key, forged = next((key, entry) for key, entry in floors.items() if entry["error"])
    raised = MeanFloor(
        forged["how"], forged["name"], np.array(forged["error"]) + 0.1, np.array(forged["ignorance"])
    )
    floors[key] = saved_form(raised, forged["task"], forged["purpose"], forged["prompts"])
    file.write_text(json.dumps(floors))
    (found,) = findings(call, "floors")
    assert "the saved floor is" in found["problem"]
    (mended,) = findings(call, "floors", "--repair")
    assert mended["mended"] == "the computed floor was saved"
    assert json.loads(file.read_text())[key] == forged
