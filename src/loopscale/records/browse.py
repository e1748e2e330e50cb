"""Where a study is in MLflow's UI, and what its table of runs shows there: trials only, the lowest error first.

MLflow 3 keeps a view that is shared as a tag of the experiment, and takes its name from the address: the columns are
part of the records, and whoever opens the address sees the same table.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from loopscale.records.mirror.mirror import Mirror
from loopscale.records.model.errors import NoRecords
from loopscale.records.model.note import EVALUATE, STUDY
from loopscale.records.stores.store import Store

NAME = "loopscale"
TAG = f"mlflow.sharedViewState.{NAME}"
ERROR = EVALUATE + "error"


def page(store: Store, study: str) -> str:
    """The page of a study's runs, below the UI's address. Its view is written to the study's experiment.

    Where that cannot be, since the store may only be read, the page is MLflow's plain one. Raises NoRecords.
    """
    from mlflow.exceptions import MlflowException

    experiment = store.find(study)
    if experiment is None:
        raise NoRecords(f"no records of {study} in {store.name} yet", f"`loopscale run {study}` makes them")
    place = f"#/experiments/{experiment}/runs"
    with contextlib.suppress(MlflowException):
        store.client.set_experiment_tag(experiment, TAG, json.dumps(view(_described(store, study))))
        return f"{place}?viewStateShareKey={NAME}"
    return place


def view(study: Mapping[str, Any]) -> dict[str, Any]:
    """What MLflow's table of runs is to show of a study, given its description."""
    paths: dict[str, None] = {}
    for cell in study.get("cells") or []:
        for path, value in cell["values"].items():
            paths[f"{path}.kind" if isinstance(value, Mapping) else path] = None
    paths |= dict.fromkeys(study.get("nuisance") or {})
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
    """As MLflow writes it."""
    return f"{kind}.`{name}`"


def _described(store: Store, study: str) -> dict[str, Any]:
    mirror = Mirror(store)
    mirror.sync(study)
    with mirror.connect() as connection:
        row = connection.execute("SELECT json FROM studies WHERE study = ?", [study]).fetchone()
    return json.loads(row[0]) if row and row[0] else {}
