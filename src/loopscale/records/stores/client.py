"""MLflow's client, made quiet and quick to give up: the one place that starts MLflow."""

import logging
import os
from typing import TYPE_CHECKING

from loopscale.records.model.errors import StoreError
from loopscale.records.stores.server import shown

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # its own retries block for minutes; ours wait in the open
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # a line for every run that ends on a server, amid our own
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}
NOISY = ("mlflow", "alembic", "sqlalchemy")


def connect(uri: str, artifacts: str | None = None) -> "MlflowClient":
    """A client that has been answered once. StoreError says why there is none.

    A database that is new is given `artifacts`, a URI, for MLflow's default experiment: MLflow takes the working
    directory, whose name it writes into SQL as it is (3.17: one quote in it, and no table can be made).
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient
    from mlflow.tracking._tracking_service import utils

    for name in NOISY:  # after the import, which sets its own levels
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("mlflow").propagate = False
    try:
        if artifacts:
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            SqlAlchemyStore(uri, artifacts).engine.dispose()
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)
        # MLflow remembers where a run's artifacts lie by the run alone, for the whole process: of a copied store it
        # would write into the original.
        getattr(utils, "_artifact_repos_cache", {}).clear()
    except MlflowException as problem:
        raise _explained(uri, problem.message) from problem
    except Exception as problem:  # drivers and transports raise what they like
        raise _explained(uri, f"{type(problem).__name__}: {problem}") from problem
    return client


def _explained(uri: str, message: str) -> StoreError:
    if "out-of-date database schema" in message:
        return StoreError(
            f"{shown(uri)} was made with another version of MLflow",
            f"back it up and run `mlflow db upgrade {shown(uri)}`, or install the MLflow that made it",
        )
    return StoreError(f"{shown(uri)} does not answer as MLflow should ({message[:300]})", "check --store")
