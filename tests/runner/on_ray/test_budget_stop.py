"""A budget through real Ray: the study stops, says how much is left, and resumes with a larger budget."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import Spending, spending_of
from tests.runner.drivers import Driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TREE: dict[str, Any] = {
    # A trial takes 23 core-seconds, so that the first budget of 79 core-seconds pays for half of the study at most: the
    # start and the reserve for the stop count too.
    "question": "Does the budget hold?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 5},
        "model": {"kind": "looped", "width": 16, "heads": 2},
        "training": {"steps": 8_000, "loops": 4, "window": 2, "batch_size": 16, "eval_every": 400},
    },
    "replicates": 4,
    "evaluate": {"loops": 6, "prompts": 128},
}


def recorded_spending(driver: Driver) -> Spending:
    return spending_of(open_store(str(driver.store), None), driver.name)


def test_a_study_stops_before_its_budget_is_exceeded_and_resumes_with_a_larger_budget(tmp_path: Path):
    study = tmp_path / "paid.yaml"
    study.write_text(yaml.safe_dump(TREE | {"budget": {"core_hours": 0.022}}))
    driver = Driver(study, tmp_path)
    code, _, err = driver.finish()
    assert code == 3
    assert "of 0.022 core-hours (" in err
    assert f"--set budget.core_hours=... and `loopscale run {study}` goes on from here" in err
    assert "Traceback" not in err
    assert driver.query("SELECT name FROM runs WHERE status = 'RUNNING'") == []
    used = recorded_spending(driver).used["core_hours"]
    trained = driver.query(
        "SELECT coalesce(sum(t), 0) FROM (SELECT max(value) AS t FROM metrics WHERE key = 'seconds' GROUP BY run_uuid)"
    )
    assert trained[0][0] / 3600 < used < 0.022
    assert recorded_spending(driver).left["core_hours"] == pytest.approx(0.022 - used)

    before, start = driver.saves(), time.monotonic()
    code, _, err = driver.finish()
    assert (code, driver.saves()) == (3, before)
    assert "the budget is spent" in err
    assert time.monotonic() - start < 60
    assert recorded_spending(driver).used["core_hours"] == used, "Ray was not started"

    driver.overrides = ("budget.core_hours=10",)
    process = driver.start("--json")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    driver.check(trials=4, baselines=0)
    repeated = sum(times - 1 for times in driver.saves().values())
    assert repeated <= 2, "more than one checkpoint interval of a worker was repeated"
    spending = json.loads(out)["spent"]
    assert spending["used"]["core_hours"] > used
    assert spending["left"]["core_hours"] == pytest.approx(10 - spending["used"]["core_hours"])
