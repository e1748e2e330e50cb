"""The whole of loopscale once, with real parts: a study on Ray and MLflow, killed, resumed, asked and reported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runner.drivers import SURVIVAL, Driver, survival_driver

SMALL = {
    "fixed": SURVIVAL["fixed"] | {"training": SURVIVAL["fixed"]["training"] | {"steps": 40}},
    "scientific": {},
    "search": {"kind": "random", "trials": 2},
}
TRIALS, BASELINES = 2 + 2, 1


def answer(driver: Driver, *words: str) -> str:
    """The standard output of a verb on the store of the driver."""
    command = [sys.executable, "-m", "loopscale.cli.main", *words, "--store", str(driver.store)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout


@pytest.mark.timeout(900)
def test_a_study_is_killed_and_resumed_and_answers(tmp_path: Path):
    driver = survival_driver(tmp_path, **SMALL)
    driver.kill_after_saves(3)
    code, _, err = driver.finish()
    assert code == 0, err
    driver.check(TRIALS, BASELINES)
    assert sum(times - 1 for times in driver.saves().values()) <= 2, (
        "a worker repeated more than one interval"
    )

    (best,) = json.loads(answer(driver, "best", driver.name, "--json"))["cells"]
    (row,) = json.loads(answer(driver, "query", "SELECT min(error) AS least FROM trials", "--json"))
    assert 0 < row["least"] <= best["error"]
    page = tmp_path / "report.html"
    answer(driver, "report", driver.name, "--out", str(page))
    assert SURVIVAL["question"] in page.read_text()
