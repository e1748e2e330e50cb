"""Known failures of Ray Tune and MLflow do not occur with the real engines. Docstrings quote the reports of users."""

import shutil
from pathlib import Path

import pytest
import yaml

from loopscale.records.model import LEARNING
from loopscale.records.stores.opening import open_store
from loopscale.training.checkpoint import CorruptCheckpoint, load
from loopscale.training.checkpoint_stores import open_checkpoint_store
from tests.runner.drivers import Driver

TREE = {
    "question": "Does the whole system work?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 4},
        "model": {"kind": "looped", "width": 8, "heads": 2},
        "training": {"steps": 40, "loops": 3, "window": 2, "batch_size": 8, "eval_every": 10},
    },
    "scientific": {"training.loops": [2, 3]},
    "nuisance": {"training.lr": {"real": [1e-4, 1e30], "scale": "log"}},
    "search": {"kind": "random", "trials": 4},
    "replicates": 1,
    "evaluate": {"loops": 4, "prompts": 32},
    "baselines": ["least_squares"],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """A study that has run to its end, which all tests read."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "whole.yaml").write_text(yaml.safe_dump(TREE))
    driver = Driver(folder / "whole.yaml", folder)
    code, _, err = driver.finish()
    assert code == 0, err
    return driver


@pytest.mark.slow
def test_a_diverged_trial_has_status_failed_and_a_reason(finished: Driver):
    rows = finished.query(
        "SELECT r.status, d.value FROM runs r JOIN tags o ON o.run_uuid = r.run_uuid AND o.key = 'outcome' "
        "JOIN tags d ON d.run_uuid = r.run_uuid AND d.key = 'detail' WHERE o.value = 'diverged'"
    )
    assert rows
    assert all(status == "FAILED" and "step" in detail for status, detail in rows)


@pytest.mark.slow
def test_only_declared_metrics_are_recorded(finished: Driver):
    """Every automatic key becomes a metric."""
    names = {name for (name,) in finished.query("SELECT DISTINCT key FROM metrics")}
    measured = {"loss", "error", "error_last", "lr", "step", "seconds", "flops", "seed"}
    recorded = {name for name in names if "." not in name and "/" not in name}
    assert measured <= recorded <= measured.union(LEARNING)


@pytest.mark.slow
def test_runs_can_be_sorted_by_numeric_settings(finished: Driver):
    """Runs cannot be sorted by settings, because settings are text."""
    client = open_store(finished.store).client
    (experiment,) = [e for e in client.search_experiments() if e.name == "whole"]
    runs = client.search_runs(
        [experiment.experiment_id], "metrics.`training.loops` > 2", order_by=["metrics.`training.lr` ASC"]
    )
    rates = [run.data.metrics["training.lr"] for run in runs]
    assert len(rates) == 5
    assert rates == sorted(rates)


@pytest.mark.slow
def test_corrupt_or_missing_files_of_ray_do_not_matter(finished: Driver):
    """A corrupt state file restarts the experiment."""
    before = finished.saves()
    for file in (finished.store / "ray").rglob("*"):
        if file.is_file():
            file.write_bytes(b"\0garbage")
    assert finished.finish()[0] == 0
    shutil.rmtree(finished.store / "ray")
    assert finished.finish()[0] == 0
    assert finished.saves() == before
    finished.check(trials=2 * (4 + 1), baselines=1)


@pytest.mark.slow
def test_exactly_the_kept_weights_are_in_the_records(finished: Driver):
    """Checkpoints accumulate, and the weights that matter are not uploaded."""
    weights = [
        path.parent.parent.name for path in (finished.store / "artifacts").rglob("weights.safetensors")
    ]
    kept = [
        run for (run,) in finished.query("SELECT run_uuid FROM tags WHERE key = 'weights' AND value = 'kept'")
    ]
    assert sorted(weights) == sorted(kept)
    replicates = {
        run
        for (run,) in finished.query("SELECT run_uuid FROM tags WHERE key = 'role' AND value = 'replicate'")
    }
    assert replicates < set(kept)
    assert len(kept) == len(replicates) + len(TREE["scientific"]["training.loops"])


@pytest.mark.slow
def test_runs_are_children_of_one_parent_with_provenance(finished: Driver):
    ((parent,),) = finished.query("SELECT run_uuid FROM tags WHERE key = 'role' AND value = 'study'")
    children = finished.query(
        f"SELECT run_uuid FROM tags WHERE key = 'mlflow.parentRunId' AND value = '{parent}'"
    )
    assert len(children) == 2 * (4 + 1) + 1
    tags = dict(finished.query(f"SELECT key, value FROM tags WHERE run_uuid = '{parent}'"))
    assert tags["question"] == TREE["question"]
    assert {"version.torch", "version.ray", "version.python"} <= set(tags)
    files = {path.name for path in (finished.store / "artifacts" / parent).rglob("*.*")}
    assert {"study.yaml", "study.json", "report.html"} <= files


def test_a_pickle_as_checkpoint_runs_no_code(tmp_path: Path):
    """A checkpoint that is a pickle runs code."""
    bomb = tmp_path / "trial.safetensors"
    bomb.write_bytes(b"cos\nsystem\n(S'touch %s'\ntR." % str(tmp_path / "ran").encode())
    with pytest.raises(CorruptCheckpoint):
        load(open_checkpoint_store(tmp_path), "trial")
    assert not (tmp_path / "ran").exists()
