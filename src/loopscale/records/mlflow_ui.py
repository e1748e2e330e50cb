"""A study's page in MLflow's UI, with a table of its trials: the lowest error first.

MLflow 3 keeps a shared view as a tag of the experiment, and reads the view's name from the address. So the columns are
part of the records, and every reader of the address sees the same table.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from loopscale.records.deferred_imports import mlflow
from loopscale.records.mirror import study_description
from loopscale.records.model import EVALUATE, STUDY
from loopscale.records.stores.base import Store

NAME = "loopscale"
TAG = f"mlflow.sharedViewState.{NAME}"
ERROR = EVALUATE + "error"


def ui_page(store: Store, study: str) -> str:
    """The path of the page below the UI's address. The view is written to the study's experiment.

    If the store cannot be written, the path leads to MLflow's plain page. Raises NoRecords.
    """
    experiment = store.require_experiment(study)
    path = f"#/experiments/{experiment}/runs"
    with contextlib.suppress(mlflow.exceptions.MlflowException):
        description = json.loads(study_description(store, study, store.parent_run(study)) or "{}")
        view = table_view(description)
        store.client.set_experiment_tag(experiment, TAG, json.dumps(view))
        return f"{path}?viewStateShareKey={NAME}"
    return path


def table_view(description: Mapping[str, Any]) -> dict[str, Any]:
    """MLflow's settings for the table of runs, from the study's description."""
    paths: dict[str, None] = {}
    for cell in description.get("cells") or []:
        for path, value in cell["values"].items():
            paths[f"{path}.kind" if isinstance(value, Mapping) else path] = None
    paths |= dict.fromkeys(description.get("nuisance") or {})
    columns = [
        *(_column("tags", tag) for tag in ("role", "outcome", "seed")),
        *(_column("params", path) for path in paths),
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


def _column(kind: str, name: str) -> str:
    return f"{kind}.`{name}`"
