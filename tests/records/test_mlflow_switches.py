"""Variables of MLflow neither lose records nor lead them elsewhere: they have no effect, or the store is refused."""

from pathlib import Path

import pytest

from loopscale.records.model import StoreError
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from tests.records.test_mlflow_writer import write

REFUSED = {
    "MLFLOW_ENABLE_WORKSPACES": "true",
    "MLFLOW_SQLALCHEMYSTORE_ECHO": "1",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "yes",
    "MLFLOW_SQLALCHEMYSTORE_POOL_SIZE": "many",
    "MLFLOW_TRUNCATE_LONG_VALUES": "",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20 s",
}
WITHOUT_EFFECT = {
    "MLFLOW_ENABLE_ASYNC_LOGGING": "true",
    "MLFLOW_WORKSPACE": "other",
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
    "MLFLOW_REGISTRY_URI": "http://127.0.0.1:9",
    "MLFLOW_BACKEND_STORE_URI": "sqlite:////nowhere/mlflow.db",
    "MLFLOW_DEFAULT_ARTIFACT_ROOT": "/nowhere",
    "MLFLOW_TRACKING_DIR": "/nowhere",
    "MLFLOW_EXPERIMENT_ID": "77",
    "MLFLOW_EXPERIMENT_NAME": "other",
    "MLFLOW_RUN_ID": "0" * 32,
    "MLFLOW_RUN_CONTEXT": "no JSON",
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "StaticPool",
    "MLFLOW_TRUNCATE_LONG_VALUES": "false",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_variable_that_would_lose_records_is_named_before_anything_is_written(
    name, tmp_path: Path, monkeypatch
):
    monkeypatch.setenv(name, REFUSED[name])
    with pytest.raises(StoreError, match=rf"{name}.*; .*unset") as problem:
        open_store(tmp_path / "store", create=True)
    assert "\n" not in str(problem.value)
    assert not (tmp_path / "store" / "mlflow.db").exists()


def test_variables_that_name_other_places_and_ways_change_no_record(tmp_path: Path, monkeypatch, trials):
    for name, value in WITHOUT_EFFECT.items():
        monkeypatch.setenv(name, value)
    store = open_store(tmp_path / "store", create=True)
    write(store, *trials.whole("a"))
    (record,) = recorded_trials(store, "study")
    assert (record.outcome, record.status, record.metrics["evaluate/error"]) == ("finished", "FINISHED", 0.25)
    curve = store.artifact(record.run, "curve.parquet")
    assert curve
    assert curve.is_relative_to(tmp_path / "store")


def test_a_store_is_read_whatever_variables_say(tmp_path: Path, monkeypatch, trials):
    """Readers of a folder do not use MLflow."""
    write(open_store(tmp_path / "store", create=True), *trials.whole("a"))
    for name, value in REFUSED.items():
        monkeypatch.setenv(name, value)
    assert [record.key for record in recorded_trials(open_store(tmp_path / "store"), "study")] == ["a"]
