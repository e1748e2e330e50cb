"""`loopscale run` through real Ray beside signals, dying workers and other drivers: the study loses nothing."""

import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.processes import outcome, wait_until
from tests.runner.drivers import BASELINES, SAVES, TRIALS, Driver, kill_worker, survival_driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4500)]


def test_each_signal_stops_the_study_and_the_message_says_how_to_resume(tmp_path: Path):
    """The second signal stops the resumed study."""
    driver = survival_driver(tmp_path)
    for stops, number in enumerate([signal.SIGINT, signal.SIGTERM]):
        before = driver.saves().total()
        # The study would take three minutes more, and the signal ends the study before.
        with driver.slow_saves(3.0):
            process = driver.start()
            wait_until(lambda before=before: driver.saves().total() > before, process)
            process.send_signal(number)
            code, _, err = outcome(process)
        assert code == 3
        assert f"loopscale run {driver.study}" in err
        assert "Traceback" not in err
        assert driver.query("SELECT name FROM runs WHERE status = 'RUNNING'") == []
        assert len(driver.saves()) < SAVES
        assert repeated(driver) <= 2 * stops
    assert driver.finish()[0] == 0
    driver.check(TRIALS, BASELINES)
    assert repeated(driver) <= 2 * 2


def repeated(driver: Driver) -> int:
    """The number of checkpoint intervals that were trained again."""
    return sum(times - 1 for times in driver.saves().values())


class Disturbed(NamedTuple):
    """A finished study. A second driver has met the first driver, and a worker was killed later."""

    first: Driver
    process: int
    """The first driver's process."""
    end: tuple[int, str]
    """Exit code and standard error of the first driver."""
    second: tuple[int, str]
    """Exit code and standard error of the second driver."""


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Disturbed:
    driver = survival_driver(tmp_path_factory.mktemp("disturbed"))
    process = driver.start()
    with driver.slow_saves():  # the first driver still trains when the second driver looks
        wait_until(lambda: driver.saves().total() > 0, process)
        code, _, err = driver.finish()
        second = code, err
    with driver.held_after(SAVES // 2):  # the study still trains when its worker is killed
        wait_until(lambda: len(driver.saves()) > 3, process)
        kill_worker(process)
    code, _, err = outcome(process)
    return Disturbed(driver, process.pid, (code, err), second)


def test_of_two_drivers_one_runs_and_the_other_names_the_holder_of_the_study(disturbed: Disturbed):
    code, err = disturbed.second
    assert code == 2
    assert f"is being run by process {disturbed.process}" in err
    code, err = disturbed.end
    assert code == 0, err
    disturbed.first.check(TRIALS, BASELINES)


def test_a_killed_worker_is_replaced_and_its_trial_goes_on(disturbed: Disturbed):
    code, err = disturbed.end
    assert code == 0, err
    disturbed.first.check(TRIALS, BASELINES)
    assert repeated(disturbed.first) <= 1
