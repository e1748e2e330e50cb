"""`run` with Ray, from the command to the answer; and the work of `best` on a large store."""

import cProfile
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loopscale.cli.main import app
from loopscale.records.stores.opening import open_store
from loopscale.runner.machine import local_workers
from loopscale.studies.spec import Study
from tests import processes
from tests.terminal import LostTerminal

PROGRAM = [sys.executable, "-m", "loopscale.cli.main"]
ENDLESS = ["--set", "training.steps=1000000000", "--set", "training.eval_every=50"]
"""No trial ends by itself."""
CALLS_FOR_A_TRIAL = 200
"""Of functions, at most, in `best`. With an up-to-date mirror `best` makes 135, and without a mirror 1,100."""


def has_saved() -> bool:
    return any(Path("records/checkpoints").glob("*.safetensors"))


def found_study() -> dict[str, Any]:
    command = [*PROGRAM, "list", "--store", "records", "--json"]
    (found,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def test_the_machine_takes_as_many_trials_as_its_cpus_allow(study_file):
    study, cpus = Study.load(study_file), len(os.sched_getaffinity(0))
    assert local_workers(study.resources) == cpus
    assert local_workers(Study.load(study_file, {"resources.cpu": "0.5"}).resources) == 2 * cpus
    assert local_workers(Study.load(study_file, {"resources.cpu": "1000"}).resources) == 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_study_runs_answers_and_is_finished_at_the_second_run(elsewhere: Path, study_file):
    command = [*PROGRAM, "run", str(study_file), "--store", "records", "--workers", "1"]
    code, out, err = processes.outcome(processes.start(command))
    assert code == 0, err
    assert "predicting nothing" in out.splitlines()[0]
    assert len(out.splitlines()) <= 10
    tables = [*PROGRAM, "best", "tiny", "--full", "--store", "records"]
    printed = subprocess.run(tables, capture_output=True, text=True, check=True).stdout
    assert "least squares" in printed
    assert "gradient descent" in printed
    assert "law: error along loop (loops=2) is exponential" in printed
    assert "trials: 10 finished; baselines: 2 finished; used " in out
    assert "loopscale ui tiny --store records" in out
    assert (elsewhere / "records/reports/tiny.html").exists()
    _, out, _ = processes.outcome(processes.start([*command, "--json"]))
    found = json.loads(out)
    assert (found["outcomes"], found["baselines"]) == ({"finished": 10}, {"finished": 2})
    assert [cell["replicates"] for cell in found["best"]] == [3, 3]
    assert {standing["baseline"] for standing in found["against"]} == {"least squares", "gradient descent"}
    assert {row["baseline"] for row in found["matched_steps"]} == {"gradient descent"}
    assert [law["cell"] for law in found["laws"]] == ["loops=2"]
    trained = subprocess.run(
        [*PROGRAM, "--store", "records", "predict", found["best"][0]["trial"], "--loops", "2", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(trained.stdout)["loops"]) == 2
    sql = "SELECT floor, regret, regret_sem, validate_floor, validate_ignorance FROM trials WHERE role = 'replicate'"
    asked = [*PROGRAM, "--store", "records", "query", sql, "--json"]
    rows = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    assert [row["floor"] for row in rows] == ["bayes ridge"] * 6
    assert all(row["regret"] > row["regret_sem"] > 0 for row in rows)
    assert all(row["validate_floor"] < row["validate_ignorance"] for row in rows)
    assert all(cell["regret_low"] < cell["regret"] < cell["regret_high"] for cell in found["best"])
    assert [cell["learnt"] for cell in found["best"]] == ["0 of 3", "0 of 3"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_tiny_run_tries_a_study_in_a_store_of_its_own(elsewhere: Path, study_file):
    """The store that the environment names stays as it is."""
    command = [*PROGRAM, "run", str(study_file), "--tiny", "--workers", "1", "--set", "replicates=5"]
    environment = {**os.environ, "LOOPSCALE_STORE": str(elsewhere / "real")}
    code, out, err = processes.outcome(processes.start(command, environment))
    assert code == 0, err
    assert "trials: 8 finished; baselines: 2 finished; used " in out
    assert out.splitlines()[-1].startswith("This was the tiny form of tiny")
    assert (elsewhere / ".loopscale-tiny/reports/tiny.html").exists()
    assert not (elsewhere / "real").exists()
    asked = [
        *PROGRAM,
        "--store",
        ".loopscale-tiny",
        "query",
        "SELECT max(step) AS steps FROM trials",
        "--json",
    ]
    assert json.loads(subprocess.run(asked, capture_output=True, check=True).stdout) == [{"steps": 4}]
    code, _, err = processes.outcome(processes.start(command[:-2], environment))
    assert code == 0
    assert "the last run of tiny had --set=replicates=5 --tiny, and this run has --tiny" in err


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ctrl_c_prints_the_command_to_resume_and_exits_with_3(elsewhere: Path, study_file):
    command = [*PROGRAM, "run", str(study_file), "--store", "records", "--workers", "1", *ENDLESS]
    running = processes.start(command)
    processes.wait_until(has_saved, running)
    running.send_signal(signal.SIGINT)
    code, out, err = processes.outcome(running)
    assert code == 3, err
    options = "--set=training.steps=1000000000 --set=training.eval_every=50 --store=records"
    again = f"loopscale run {study_file} {options}"
    assert err.splitlines()[-1] == f"stopped; `{again}` goes on from here"
    assert out == ""
    found = found_study()
    assert found["state"] == "stopped"
    assert found["outcomes"]["interrupted"] == 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_closed_terminal_stops_the_study_cleanly(elsewhere: Path, study_file):
    command = [*PROGRAM, "run", str(study_file), "--store", "records", "--workers", "1", *ENDLESS]
    terminal = LostTerminal(command)
    processes.wait_until(has_saved, terminal.process)
    terminal.close()
    code, _, _ = processes.outcome(terminal.process)
    assert code == 3
    found = found_study()
    assert (found["state"], found["outcomes"]) == ("stopped", {"interrupted": 1})


def calls_of_best(store: str, cells: int) -> int:
    """The number of calls of functions while `best` reads an up-to-date store."""
    profile = cProfile.Profile()
    profile.enable()
    outcome = CliRunner().invoke(app, ["best", "tiny", "--store", store, "--json"])
    profile.disable()
    assert len(json.loads(outcome.stdout)["cells"]) == cells
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_best_of_a_thousand_trials_makes_few_calls_for_each_trial(
    elsewhere: Path, recording, study_file, capsys
):
    """Calls are counted, because seconds depend on the processor and on its other work."""
    study = Study.load(study_file, {"search.trials": "497"})
    with recording(Path("many"), study) as made:
        made.parent()
        for cell in study.cells():
            for number in range(497):
                made.trial(cell, "tuning", number, 0, {"training.lr": 1e-3 + 1e-6 * number}, 0.5)
            for seed in (1, 2, 3):
                made.trial(cell, "replicate", seed, seed, {"training.lr": 1e-3}, 0.4 + 0.01 * seed)
    with recording(Path("few"), Study.load(study_file)) as made:
        made.whole()
    cells = len(study.cells())
    for _ in range(2):  # the first imports modules, and brings the mirrors up to date
        few, many = (calls_of_best(store, cells) for store in ("few", "many"))
    with capsys.disabled():
        print(f"\nbest of 1,000 trials: {many:,} calls; of 10: {few:,} calls")
    assert many - few < 1000 * CALLS_FOR_A_TRIAL


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_is_recorded_where_mlflow_is_told_to_log_in_the_background(
    elsewhere: Path, study_file, monkeypatch
):
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_LOGGING", "true")
    command = [*PROGRAM, "run", str(study_file), "--store", "records", "--workers", "1"]
    code, out, err = processes.outcome(processes.start(command))
    assert code == 0, err
    assert "trials: 10 finished; baselines: 2 finished; used " in out
    assert found_study()["outcomes"] == {"finished": 10}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_whose_outcomes_do_not_come_back_does_not_count_them_as_finished(elsewhere: Path, study_file):
    open_store("records", create=True)
    with closing(sqlite3.connect("records/mlflow.db")) as database:
        for event in ("INSERT", "UPDATE"):  # the database loses outcomes without an error
            database.execute(
                f"CREATE TRIGGER lose_{event} AFTER {event} ON tags WHEN NEW.key = 'outcome' AND NEW.value != 'running'"
                " BEGIN UPDATE tags SET value = 'running' WHERE run_uuid = NEW.run_uuid AND key = 'outcome'; END"
            )
    command = [*PROGRAM, "run", str(study_file), "--store", "records", "--workers", "1"]
    code, out, err = processes.outcome(processes.start(command))
    assert (code, out) == (1, "")
    assert "has taken 12 outcomes and shows 0 of them: trial " in err
    assert "ended as finished, and the store shows running" in err
    assert "Traceback" not in err
