"""Heavy packages, each imported at its first use: MLflow needs 2 s, pyarrow and DuckDB 0.2 s.

`loopscale --help` and `loopscale best` do not wait for packages that they do not need. Modules import the names below
at their top and use them like the packages. Annotations with these names stand in quotes (see `core.cheap_imports`).
"""

from functools import partial
from typing import TYPE_CHECKING

from loopscale.core.cheap_imports import Deferred

MLFLOW_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # MLflow's retries block for minutes; `Delivery` retries instead
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # one line for every run that ends on a server
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Defaults for the environment. MLflow reads them while it is imported."""


if TYPE_CHECKING:  # for the types alone
    import duckdb
    import mlflow
    import mlflow.entities
    import mlflow.environment_variables as mlflow_variables
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
    duckdb, pa, sqlalchemy = map(Deferred, ("duckdb", "pyarrow", "sqlalchemy"))
    sqlalchemy_orm = Deferred("sqlalchemy.orm")
    csv, dataset, parquet = map(Deferred, ("pyarrow.csv", "pyarrow.dataset", "pyarrow.parquet"))
    of_mlflow = partial(Deferred, environment=MLFLOW_SETTINGS)
    mlflow, mlflow_database = of_mlflow("mlflow"), of_mlflow("mlflow.store.db.utils")
    mlflow_credentials = of_mlflow("mlflow.utils.credentials")
    mlflow_variables = of_mlflow("mlflow.environment_variables")
    mlflow_rest = of_mlflow("mlflow.utils.rest_utils")
    mlflow_sql_store = of_mlflow("mlflow.store.tracking.sqlalchemy_store")
    mlflow_tracking_utils = of_mlflow("mlflow.tracking._tracking_service.utils")
