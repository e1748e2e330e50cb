"""A real study is killed between its prediction and its held-out trials, and among its held-out trials."""

import json
from pathlib import Path

import pytest

from loopscale.analysis.laws.law import study_laws
from loopscale.analysis.recorded.load import load_results
from loopscale.records.model import PREDICTION
from loopscale.records.stores.opening import open_store
from loopscale.records.transfer import export_records, import_records
from tests.runner.drivers import Driver, survival_driver

LOOPS = [1, 2, 3, 4, 5]
FIXED = {
    "task": {"kind": "linear_regression", "dim": 2, "points": 5},
    "model": {"kind": "looped", "width": 8, "heads": 1},
    "training": {"steps": 120, "window": 1, "batch_size": 8, "eval_every": 20},
}
FITTED_SAVES = (len(LOOPS) - 1) * 2 * 120 // 20
"""Checkpoints of the trials that the prediction needs."""
CHANGES = {
    "fixed": FIXED,
    "scientific": {"training.loops": LOOPS},
    "nuisance": {},
    "search": {"kind": "random", "trials": 1},
    "replicates": 2,
    "baselines": [],
    "laws": [{"of": "error", "along": "training.loops", "hold_out": 1}],
}


def predictions(driver: Driver) -> dict[str, str]:
    if not (driver.store / "mlflow.db").exists():
        return {}
    return dict(driver.query(f"SELECT key, value FROM tags WHERE key LIKE '{PREDICTION}%'"))


def held_out_started(driver: Driver) -> list[tuple]:
    """The runs of held-out trials, with the time of their start."""
    return driver.query(
        "SELECT r.run_uuid, r.start_time FROM runs r JOIN params p ON p.run_uuid = r.run_uuid "
        f"WHERE p.key = 'training.loops' AND p.value = '{LOOPS[-1]}'"
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_killed_study_keeps_the_prediction_that_it_made_before_its_held_out_trials(tmp_path: Path):
    driver = survival_driver(tmp_path / "study", **CHANGES)
    with driver.held_after(FITTED_SAVES + 1):  # no held-out trial ends before the kills
        driver.kill_when(lambda: bool(predictions(driver)))
        before = predictions(driver)
        [text] = before.values()
        driver.kill_when(lambda: bool(held_out_started(driver)))
    assert predictions(driver) == before
    code, _, problems = driver.finish()
    assert code == 0, problems
    driver.check(trials=2 * len(LOOPS), baselines=0)
    assert predictions(driver) == before
    recorded = json.loads(text)
    assert all(start >= recorded["time"] for _, start in held_out_started(driver))
    fitted = [len(logs) for logs in recorded["fitted"].values()]
    assert fitted == [2] * (len(LOOPS) - 1)
    results = load_results(open_store(driver.store), driver.name)
    [law] = study_laws(results)[0]
    [value] = law.predictions
    assert law.x == tuple(LOOPS[:-1])
    assert value.foretold
    assert value.score
    assert value.prediction.centre == pytest.approx(recorded["centre"])

    export_records(open_store(driver.store), None, tmp_path / "export")
    other = open_store(tmp_path / "other", create=True)
    import_records(other, tmp_path / "export")
    for store in (other, open_store(tmp_path / "export")):
        [carried] = study_laws(load_results(store, driver.name))[0]
        assert carried.predictions == law.predictions
