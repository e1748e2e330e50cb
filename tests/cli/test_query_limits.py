"""Queries that would run for ever, or need more memory than DuckDB may have."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loopscale.errors import QueryError
from loopscale.records import query_limits
from loopscale.records.mirror import Mirror
from loopscale.records.stores.opening import open_store

ENDLESS = "SELECT count(*) FROM range(1000000000000000)"


def test_ctrl_c_ends_an_endless_query_at_once(records: Path):
    command = f"""
import signal, sys, threading
from types import SimpleNamespace
from loopscale.cli.main import main
from loopscale.records import query_limits

signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores the signal

class Told(threading.Thread):
    def start(self):
        super().start()
        print("begun", flush=True)

query_limits.threading = SimpleNamespace(Thread=Told, Event=threading.Event)
sys.exit(main(["query", "{ENDLESS}", "--store", {str(records)!r}]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (3, "stopped\n")


def test_a_query_ends_after_its_time(loopscale, records):
    answer = loopscale("query", ENDLESS, "--store", records, "--timeout", "0.2")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "the query takes more than 0.2 s; give more with --timeout, or ask for less\n"


@pytest.mark.parametrize("time", ["0", "-1", "nan"])
def test_a_time_of_nothing_is_a_mistake(loopscale, records, time: str):
    answer = loopscale("query", "SELECT 1", "--store", records, f"--timeout={time}")
    assert answer.code == 2
    assert answer.err.endswith("is no time; give seconds above 0\n")


@pytest.mark.parametrize("time", ["1e300", "inf"])
def test_a_longer_time_than_the_clock_counts_is_no_limit(loopscale, records, time: str):
    answer = loopscale("query", "SELECT 1 AS n", "--store", records, "--timeout", time, "--json")
    assert (answer.code, answer.json) == (0, [{"n": 1}])


def test_a_large_query_spills_into_a_temporary_folder_that_is_removed(
    records: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(query_limits, "free_memory", lambda: 2**25)
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere / "temporary"))
    (elsewhere / "temporary").mkdir()
    mirror = Mirror(open_store(records))
    mirror.sync()
    with mirror.database(query_limits.spilling) as connection:
        (folder,) = (elsewhere / "temporary").iterdir()
        assert connection.execute("SELECT current_setting('temp_directory')").fetchall() == [(str(folder),)]
    assert list((elsewhere / "temporary").iterdir()) == []
    with pytest.raises(QueryError, match="more than half of the free memory"):
        mirror.query("SELECT list(range) FROM range(100000000)")
    assert {file.name for file in elsewhere.iterdir()} == {"records", "temporary"}


def test_an_endless_recursion_ends_after_its_time(loopscale, records):
    recursion = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT * FROM t"
    answer = loopscale("query", recursion, "--store", records, "--timeout", "0.1")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "the query takes more than 0.1 s; give more with --timeout, or ask for less\n"


@pytest.mark.parametrize("form", [[], ["--json"], ["--format", "csv"]])
def test_an_answer_beyond_the_memory_is_one_line(
    loopscale, records, monkeypatch: pytest.MonkeyPatch, form: list[str]
):
    """DuckDB's own limit does not count the rows that it has handed over."""
    monkeypatch.setattr(query_limits, "free_memory", lambda: 2**28)
    answer = loopscale("query", ENDLESS.replace("count(*)", "*"), "--store", records, *form)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"{query_limits.TOO_LARGE}\n"


def test_an_answer_whose_json_is_beyond_the_memory_is_one_line(
    loopscale, records, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(query_limits, "free_memory", lambda: 2**28)
    many = ("query", "SELECT * FROM range(1000000)", "--store", records)
    answer = loopscale(*many, "--json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "1,000,000 rows as JSON need more than half of the free memory; write --format csv, or add LIMIT\n"
    )
    assert loopscale(*many, "--format", "csv").out.count("\n") == 1_000_001


def test_a_fault_in_a_late_row_is_one_line(loopscale, records):
    late = "SELECT (CASE WHEN range = 500000 THEN 'x' ELSE '1' END)::INT FROM range(1000000)"
    answer = loopscale("query", late, "--store", records)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "Could not convert string 'x'" in answer.err
