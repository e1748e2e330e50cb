"""A budget through real Ray: the study stops, says how much is left, and resumes with a larger budget."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import Spending, spending_of
from tests.runner.drivers import Driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SAVE_SECONDS, SAVES = 1.0, 70
"""Seconds that a save takes while the budget is small, and saves of a trial."""
BUDGET = 64
"""Core-seconds: just enough for the start of two workers, see `Meter.affords_another`.

A trial that saves slowly takes longer, so the budget ends before any trial, on any machine.
"""

TREE: dict[str, Any] = {
    "question": "Does the budget hold?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 5},
        "model": {"kind": "looped", "width": 16, "heads": 2},
        "training": {
            "steps": 5 * SAVES,
            "loops": 4,
            "window": 2,
            "batch_size": 16,
            "eval_every": 5,
        },
    },
    "replicates": 4,
    "evaluate": {"loops": 6, "prompts": 128},
}


def recorded_spending(driver: Driver) -> Spending:
    return spending_of(open_store(str(driver.store), None), driver.name)


def test_a_study_stops_at_its_budget_and_resumes_with_a_larger_budget(tmp_path: Path):
    """The seconds of a stop depend on the machine. tests/runner/decide checks that the stop fits into the budget."""
    assert BUDGET < SAVE_SECONDS * SAVES
    study = tmp_path / "paid.yaml"
    study.write_text(yaml.safe_dump(TREE | {"budget": {"core_hours": BUDGET / 3600}}))
    driver = Driver(study, tmp_path)
    with driver.slow_saves(SAVE_SECONDS):
        code, _, err = driver.finish()
    assert code == 3, err
    assert "4 of 4 trials remain" in err
    assert f"of {BUDGET / 3600:g} core-hours (" in err
    assert f"--set budget.core_hours=... and `loopscale run {study}` goes on from here" in err
    assert "Traceback" not in err
    assert driver.query("SELECT name FROM runs WHERE status = 'RUNNING'") == []
    spending = recorded_spending(driver)
    used = spending.used["core_hours"]
    trained = driver.query(
        "SELECT coalesce(sum(t), 0) FROM (SELECT max(value) AS t FROM metrics WHERE key = 'seconds' GROUP BY run_uuid)"
    )
    assert trained[0][0] / 3600 < used
    assert spending.left["core_hours"] == pytest.approx(max(0, BUDGET / 3600 - used))

    before = driver.saves()
    code, _, err = driver.finish()
    assert (code, driver.saves()) == (3, before)
    assert "the budget is spent" in err
    assert recorded_spending(driver).used["core_hours"] == used, "Ray was started"

    driver.overrides = ("budget.core_hours=10",)
    code, out, err = driver.finish("--json")
    assert code == 0, err
    driver.check(trials=4, baselines=0)
    repeated = sum(times - 1 for times in driver.saves().values())
    assert repeated <= 2, "more than one checkpoint interval of a worker was repeated"
    spending = json.loads(out)["spent"]
    assert spending["used"]["core_hours"] > used
    assert spending["left"]["core_hours"] == pytest.approx(10 - spending["used"]["core_hours"])
