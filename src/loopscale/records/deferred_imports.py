"""Heavy packages, each imported at its first use: MLflow needs 2 s, pyarrow and DuckDB 0.2 s.

`loopscale --help` and `loopscale best` do not wait for packages that they do not need. Modules import the names below
at their top and use them like the packages (as in SPEC 1 of Scientific Python). While a module is loaded, it must not
read an attribute of these names. Annotations with these names stand in quotes.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

MLFLOW_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # MLflow's retries block for minutes; `Delivery` retries instead
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # one line for every run that ends on a server
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Defaults for the environment. MLflow reads them while it is imported."""


class _Deferred:
    """Stands for a module, and imports the module when an attribute is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if self._name.startswith("mlflow"):
            for name, value in MLFLOW_SETTINGS.items():
                os.environ.setdefault(name, value)
        return getattr(import_module(self._name), attribute)


if TYPE_CHECKING:  # for the types alone
    import duckdb
    import mlflow
    import mlflow.entities
    import mlflow.exceptions
    import mlflow.store.db.utils as mlflow_database
    import mlflow.store.tracking.sqlalchemy_store as mlflow_sql_store
    import mlflow.tracking._tracking_service.utils as mlflow_tracking_utils
    import mlflow.utils.credentials as mlflow_credentials
    import mlflow.utils.rest_utils as mlflow_rest
    import pyarrow as pa
    import sqlalchemy.exc
    import sqlalchemy.orm as sqlalchemy_orm
    from pyarrow import csv, dataset, parquet
else:
    duckdb, mlflow, pa, sqlalchemy = map(_Deferred, ("duckdb", "mlflow", "pyarrow", "sqlalchemy"))
    mlflow_database, sqlalchemy_orm = _Deferred("mlflow.store.db.utils"), _Deferred("sqlalchemy.orm")
    mlflow_credentials = _Deferred("mlflow.utils.credentials")
    mlflow_rest = _Deferred("mlflow.utils.rest_utils")
    mlflow_sql_store = _Deferred("mlflow.store.tracking.sqlalchemy_store")
    mlflow_tracking_utils = _Deferred("mlflow.tracking._tracking_service.utils")
    csv, dataset, parquet = (_Deferred(f"pyarrow.{name}") for name in ("csv", "dataset", "parquet"))
