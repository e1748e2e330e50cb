"""A study's page in MLflow's UI: chosen charts, and a table of the trials, the lowest error first.

MLflow 3 keeps a shared view as a tag of the experiment, and reads the view's name from the address. So the view is part
of the records, and every reader of the address sees the same charts and the same table.

MLflow adds a chart for every metric without one, also for settings and for metrics with one value. The view lists
these charts as deleted, so that MLflow leaves them out.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from loopscale.core.palette import PALETTE
from loopscale.records.deferred_imports import mlflow
from loopscale.records.mirror import study_description
from loopscale.records.model import EVALUATE, STUDY
from loopscale.records.stores.base import Store

NAME = "loopscale"
TAG = f"mlflow.sharedViewState.{NAME}"
ERROR = EVALUATE + "error"
VALIDATION = "error"
"""The metric with the validation error of every report."""
LOSS = "loss"
SECTION = "loopscale-charts"
"""The identifier of the section with the charts."""
MOST_RUNS = 1000
"""The largest number of runs whose metrics are looked up."""
COLOUR = "mlflow.runColor"
MOST_COLOURED = 300
"""The largest number of runs that get the colour of their cell at once. Other runs keep MLflow's colour."""
CHARTS = "compareRunsMode=CHART"
"""The part of an address that opens the charts beside the names of the runs."""
TRAINING = "workflowType=machine_learning"
"""The part of an address that switches the UI from MLflow's mode for chats to that for trainings."""
STUDIES_PAGE = f"#/experiments?{TRAINING}"
"""The path of the list of all studies, below the UI's address."""


def ui_page(store: Store, study: str) -> str:
    """The path of the page below the UI's address. The view is written to the study's experiment.

    If the store cannot be written, the path leads to MLflow's plain page. Raises NoRecords.
    """
    experiment = store.require_experiment(study)
    path = f"#/experiments/{experiment}/runs?{TRAINING}"
    with contextlib.suppress(mlflow.exceptions.MlflowException):
        description = json.loads(study_description(store, study, store.parent_run(study)) or "{}")
        table = table_view(description)
        order = [f"{table['orderByKey']} ASC"]
        runs = store.client.search_runs(
            [experiment], table["searchFilter"], max_results=MOST_RUNS, order_by=order
        )
        metrics = sorted({name for run in runs for name in run.data.metrics})
        view = table | chart_view(description, metrics)
        store.client.set_experiment_tag(experiment, TAG, json.dumps(view))
        path = f"{path}&{CHARTS}&viewStateShareKey={NAME}"
        for run, colour in run_colours(description, {run.info.run_id: run.data.tags for run in runs}).items():
            store.client.set_tag(run, COLOUR, colour, synchronous=True)
    return path


def run_colours(description: Mapping[str, Any], tags: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The colours that runs lack: all runs of a cell have the colour of the cell in the report.

    Parameters
    ----------
    tags
        The tags of every run, by its id.
    """
    cells = [cell["key"] for cell in description.get("cells") or []]
    colours = {key: PALETTE[index % len(PALETTE)] for index, key in enumerate(cells)}
    wanted = {run: colours.get(of_run.get("cell", "")) for run, of_run in tags.items()}
    missing = [(run, colour) for run, colour in wanted.items() if colour and COLOUR not in tags[run]]
    return dict(missing[:MOST_COLOURED])


def table_view(description: Mapping[str, Any]) -> dict[str, Any]:
    """MLflow's settings for the table of runs, from the study's description."""
    paths = [*_scientific(description), *_tuned(description)]
    columns = [
        *(_column("tags", tag) for tag in ("role", "outcome", "seed")),
        *(_column("params", path) for path in dict.fromkeys(paths)),
        *(_column("metrics", metric) for metric in (ERROR, "seconds")),
    ]
    return {
        "searchFilter": f"tags.role != '{STUDY}'",
        "orderByKey": _column("metrics", ERROR),
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "selectedColumns": columns,
    }


def chart_view(description: Mapping[str, Any], metrics: Iterable[str]) -> dict[str, Any]:
    """MLflow's settings for the charts: learning curves, error against each tuned setting, parallel coordinates.

    Parameters
    ----------
    metrics
        The names of all metrics of the study's runs. Metrics that no chart names get a deleted chart.
    """
    tuned = _tuned(description)
    charts = [
        _line(VALIDATION, "Learning curves: validation error"),
        _line(LOSS, "Learning curves: training loss"),
        *(_scatter(path) for path in tuned),
    ]
    if paths := [*_scientific(description, shared=True), *tuned]:
        charts.append(_parallel(paths))
    drawn = {VALIDATION, LOSS}
    hidden = [_hidden(metric) for metric in metrics if metric not in drawn]
    return {
        "compareRunCharts": [*charts, *hidden],
        "compareRunSections": [
            {"uuid": SECTION, "name": "The study", "display": True, "isReordered": True, "columns": 2}
        ],
        "isAccordionReordered": True,  # otherwise MLflow sorts the sections by name
        "runsHiddenMode": "SHOWALL",
        "hideEmptyCharts": True,
    }


def _scientific(description: Mapping[str, Any], shared: bool = False) -> list[str]:
    """The paths of the scientific settings; with `shared`, only those that every cell sets."""
    of_cells = [
        dict.fromkeys(
            f"{path}.kind" if isinstance(value, Mapping) else path for path, value in cell["values"].items()
        )
        for cell in description.get("cells") or []
    ]
    paths = dict.fromkeys(path for of_cell in of_cells for path in of_cell)
    return [path for path in paths if not shared or all(path in of_cell for of_cell in of_cells)]


def _tuned(description: Mapping[str, Any]) -> list[str]:
    return list(description.get("nuisance") or {})


def _card(kind: str, name: str, title: str, **options: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": f"loopscale-{kind.lower()}-{name}",
        "metricSectionId": SECTION,
        "deleted": False,
        "isGenerated": False,
        "displayName": title,
        **options,
    }


def _line(metric: str, title: str) -> dict[str, Any]:
    """The values of a metric by training step, a line for each run; the value's axis is logarithmic."""
    return _card(
        "LINE",
        metric,
        title,
        metricKey=metric,
        selectedMetricKeys=[metric],
        xAxisKey="step",
        xAxisScaleType="linear",
        scaleType="log",
        yAxisKey="metric",
        yAxisExpressions=[],
        selectedXAxisMetricKey="",
        lineSmoothness=0,
        useGlobalXaxisKey=False,
        useGlobalLineSmoothing=False,
        ignoreOutliers=False,
        range={},
    )


def _scatter(path: str) -> dict[str, Any]:
    return _card(
        "SCATTER",
        path,
        f"Error against {path}",
        xaxis={"key": path, "type": "PARAM"},
        yaxis={"key": ERROR, "type": "METRIC"},
        runsCountToCompare=100,
    )


def _parallel(paths: Iterable[str]) -> dict[str, Any]:
    """Lines through settings to the error. MLflow leaves out runs without one of the settings."""
    return _card(
        "PARALLEL",
        "settings",
        "Parallel coordinates: settings and error",
        selectedParams=list(dict.fromkeys(paths)),
        selectedMetrics=[ERROR],
        showAllRuns=True,
    )


def _hidden(metric: str) -> dict[str, Any]:
    return _card("BAR", metric, metric, metricKey=metric) | {"deleted": True}


def _column(kind: str, name: str) -> str:
    return f"{kind}.`{name}`"
