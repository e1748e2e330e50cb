"""`ui`: MLflow's server on the store."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from loopscale.cli.ui import server_command
from loopscale.records.mlflow_ui import ui_page
from loopscale.records.model import NoRecords
from loopscale.records.stores.opening import open_store
from tests.ports import free_port


def test_a_taken_port_is_a_mistake(loopscale, store):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        answer = loopscale("ui", "--store", store, "--port", taken.getsockname()[1])
    assert answer.code == 2
    assert "address already in use" in answer.err
    assert "give another --port" in answer.err


def test_a_tracking_server_has_its_own_ui(loopscale, monkeypatch):
    monkeypatch.setattr(
        "loopscale.records.stores.server.ServerStore.check_reachable", lambda uri, create: None
    )
    answer = loopscale("ui", "--store", "http://somewhere:5000")
    assert (answer.code, answer.out) == (
        0,
        "the store is a tracking server, and its UI is at http://somewhere:5000"
        "/#/experiments?workflowType=machine_learning\n",
    )


def test_a_study_is_opened_with_its_settings_and_errors(records: Path):
    place = open_store(records)
    experiment = place.find_experiment("tiny")
    path, _, query = ui_page(place, "tiny").partition("?")
    assert path == f"#/experiments/{experiment}/runs"
    assert set(query.split("&")) == {
        "workflowType=machine_learning",
        "compareRunsMode=CHART",
        "viewStateShareKey=loopscale",
    }
    shown = json.loads(place.client.get_experiment(experiment).tags["mlflow.sharedViewState.loopscale"])
    assert {"params.`training.loops`", "params.`training.lr`", "tags.`outcome`"} <= set(
        shown["selectedColumns"]
    )
    assert shown["orderByKey"] == "metrics.`evaluate/error`"
    assert shown["orderByKey"] in shown["selectedColumns"]
    ascending = f"{shown['orderByKey']} {'ASC' if shown['orderByAsc'] else 'DESC'}"
    runs = place.client.search_runs([experiment], shown["searchFilter"], order_by=[ascending])
    errors = [run.data.metrics["evaluate/error"] for run in runs]
    assert (len(errors), errors) == (12, sorted(errors))
    with pytest.raises(NoRecords, match="no records of other"):
        ui_page(place, "other")


def test_the_view_has_chosen_charts_and_none_for_settings_and_single_values(records: Path):
    place = open_store(records)
    experiment = place.find_experiment("tiny")
    ui_page(place, "tiny")
    view = json.loads(place.client.get_experiment(experiment).tags["mlflow.sharedViewState.loopscale"])
    charts = [chart for chart in view["compareRunCharts"] if not chart["deleted"]]
    assert [(chart["type"], chart["displayName"]) for chart in charts] == [
        ("LINE", "Learning curves: validation error"),
        ("LINE", "Learning curves: training loss"),
        ("SCATTER", "Error against training.lr"),
        ("PARALLEL", "Parallel coordinates: settings and error"),
    ]
    assert set(charts[-1]["selectedParams"]) == {"training.loops", "training.lr"}
    (section,) = view["compareRunSections"]
    assert {chart["metricSectionId"] for chart in charts} == {section["uuid"]}
    runs = place.client.search_runs([experiment], view["searchFilter"])
    # MLflow adds a chart for every metric that no chart of the view, also no deleted chart, has as its metric.
    logged = {metric for run in runs for metric in run.data.metrics}
    assert {"training.lr", "seed", "evaluate/error"} <= logged
    assert logged <= {chart["metricKey"] for chart in view["compareRunCharts"] if "metricKey" in chart}
    cells = [run for run in runs if run.data.tags.get("cell")]
    colours = {(run.data.tags["cell"], run.data.tags["mlflow.runColor"]) for run in cells}
    assert len(colours) == len({cell for cell, _ in colours}) == len({colour for _, colour in colours})


def test_other_machines_are_let_in_only_on_request_and_by_name(store):
    place = open_store(store)
    assert "--allowed-hosts" not in server_command(place, "127.0.0.1", 5000)
    allowed = server_command(place, "0.0.0.0", 5000)[-1].split(",")
    assert f"{socket.gethostname()}:5000" in allowed
    assert "*" not in allowed


@pytest.mark.slow
def test_the_ui_answers_and_serves_a_curve(loopscale, store, elsewhere: Path):
    port = free_port()
    sql = "SELECT trial FROM trials WHERE role = 'replicate' LIMIT 1"
    trial = loopscale("query", sql, "--store", store, "--json").json[0]["trial"]
    client = open_store(store).client
    experiment = open_store(store).find_experiment("tiny")
    (run,) = client.search_runs([experiment], f"tags.trial = '{trial}'")
    command = [sys.executable, "-m", "loopscale.cli.main", "ui", "--store", str(store), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert f"http://127.0.0.1:{port}" in server.stdout.readline()
            assert b"MLflow" in _get(f"http://127.0.0.1:{port}/", 270)
            address = f"get-artifact?path=curve.parquet&run_uuid={run.info.run_id}"
            assert _get(f"http://127.0.0.1:{port}/{address}", 60).startswith(b"PAR1")
        finally:
            server.terminate()
            server.wait(60)
    assert list(elsewhere.iterdir()) == []


def _get(address: str, patience: float) -> bytes:
    until = time.monotonic() + patience
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return answer.read()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)
