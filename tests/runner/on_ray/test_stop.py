"""`loopscale stop STUDY --trial KEY` and the rules of `stop`, through real Ray."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import outcome, wait_until
from tests.runner.drivers import Driver, survival_driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4500)]


def one_cell(folder: Path, **changes: object) -> Driver:
    small = {"scientific": {"training.window": [4]}, "baselines": [], "replicates": 1}
    search = {"kind": "random", "trials": 2}
    return survival_driver(folder, **small | {"search": search} | changes)


def outcomes(driver: Driver) -> dict[str, str]:
    return {str(key): str(outcome) for key, outcome, _ in driver.ends() if key != "study"}


def stop(driver: Driver, key: str) -> str:
    words = ["stop", str(driver.study), "--trial", key, "--store", str(driver.store)]
    done = subprocess.run(
        [sys.executable, "-m", "loopscale.cli.main", *words], check=True, capture_output=True, text=True
    )
    return done.stdout


def test_a_trial_of_a_running_study_is_stopped_and_trained_again_on_request(tmp_path: Path):
    driver = one_cell(tmp_path)
    driver.overrides = ("training.steps=300",)
    process = driver.start()
    with driver.slow_saves(10.0):  # the trial would take five minutes: time for the driver to see the request
        wait_until(lambda: driver.saves().total() >= 1, process)
        key = next(iter(driver.saves()))[0]
        assert stop(driver, key[:10]).startswith(f"{key} ends at its next report")
        wait_until(lambda: outcomes(driver).get(key) == "stopped", process)
    code, out, err = outcome(process)
    assert code == 0, err
    assert outcomes(driver)[key] == "stopped"
    assert f"the user has stopped 1 trial ({key})" in out
    assert "the user has stopped 1 trial" in (driver.store / "reports" / "survival.html").read_text()
    driver.check(3, 0)
    assert stop(driver, key) == f"{key} does not run: it has stopped\n"
    saved = driver.saves()
    code, out, _ = driver.finish()
    assert (code, driver.saves()) == (0, saved), "the stopped trial was trained again"
    code, out, err = driver.finish("--again", key)
    assert (code, outcomes(driver)[key]) == (0, "finished"), err
    assert "the user has stopped" not in out
    driver.check(len(outcomes(driver)), 0)  # the trial may have become the best point, which is replicated


def test_a_trial_ends_after_its_hours(tmp_path: Path):
    driver = one_cell(tmp_path, stop={"trial_hours": 1e-9})
    code, out, _ = driver.finish()
    assert code == 0
    assert set(outcomes(driver).values()) == {"stopped"}
    assert "stop.trial_hours 1e-09 ended 2 trials" in out


def test_a_run_stops_after_too_many_failures(tmp_path: Path):
    """A trial may take less memory than its process needs, so every trial runs out of memory."""
    driver = one_cell(tmp_path, stop={"failures": "20%"}, resources={"memory": 0.01}, search={"trials": 12})
    code, _, err = driver.finish()
    assert code == 1
    assert "stop.failures: 3 of 13 planned trials have failed in this run, more than 0.2 of them" in err
    assert "goes on from here" in err
    assert list(outcomes(driver).values()).count("out_of_memory") == 3
