"""`loopscale run` through real Ray beside signals, dying workers and other drivers: the study loses nothing."""

import signal
from pathlib import Path

import pytest

from tests.processes import outcome, wait_until
from tests.runner.drivers import BASELINES, SAVES, TRIALS, kill_worker, survival_driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4500)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_study_and_the_message_says_how_to_resume(tmp_path: Path, number: signal.Signals):
    driver = survival_driver(tmp_path)
    with driver.slow_saves(
        3.0
    ):  # the study would take three minutes more, and the signal ends the study before
        process = driver.start()
        wait_until(lambda: driver.saves().total() > 0, process)
        process.send_signal(number)
        code, _, err = outcome(process)
    assert code == 3
    assert f"loopscale run {driver.study}" in err
    assert "Traceback" not in err
    assert driver.query("SELECT name FROM runs WHERE status = 'RUNNING'") == []
    assert len(driver.saves()) < SAVES
    assert driver.finish()[0] == 0
    driver.check(TRIALS, BASELINES)
    assert max(driver.saves().values()) == 1 or sum(n - 1 for n in driver.saves().values()) <= 2


def test_of_two_drivers_one_runs_and_the_other_names_the_holder_of_the_study(tmp_path: Path):
    driver = survival_driver(tmp_path)
    process = driver.start()
    with driver.slow_saves():  # the first driver still trains when the second driver looks
        wait_until(lambda: driver.saves().total() > 0, process)
        code, _, err = driver.finish()
    assert code == 2
    assert f"is being run by process {process.pid}" in err
    code, _, err = outcome(process)
    assert code == 0, err
    driver.check(TRIALS, BASELINES)


def test_a_killed_worker_is_replaced_and_its_trial_goes_on(tmp_path: Path):
    driver = survival_driver(tmp_path)
    process = driver.start()
    wait_until(lambda: len(driver.saves()) > 3, process)
    kill_worker(process)
    code, _, err = outcome(process)
    assert code == 0, err
    driver.check(TRIALS, BASELINES)
    assert sum(times - 1 for times in driver.saves().values()) <= 1
