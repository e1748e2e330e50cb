"""The variables of MLflow (`MLFLOW_*`) that could lose or divert records, checked before MLflow connects.

Every write is synchronous, whatever `MLFLOW_ENABLE_ASYNC_LOGGING` says (see `writing.mlflow_writer`). Every call names
its address, experiment and run, so `MLFLOW_TRACKING_URI`, `MLFLOW_EXPERIMENT_NAME` and `MLFLOW_RUN_ID` have no effect.
Variables that say how to reach a server stay as they are.
"""

import os

from loopscale.records.deferred_imports import mlflow_variables
from loopscale.records.model import StoreError

DIVERTING = {
    "MLFLOW_ENABLE_WORKSPACES": "put the records into a workspace of a server, where loopscale does not look",
    "MLFLOW_SQLALCHEMYSTORE_ECHO": "print every statement into the answer of loopscale",
}
"""Switches for databases, and what they do when they are on. Folders and databases without a server refuse them."""
TRUE = ("true", "1")
"""MLflow's words for a switch that is on."""


def check_switches(uri: str) -> None:
    """Return if MLflow's variables leave the records of `uri` complete and in their place. Raises StoreError.

    If MLflow cannot read a variable, MLflow raises an exception in the middle of a write.
    """
    names = [name for name in os.environ if name.lstrip("_").startswith("MLFLOW_")]
    try:
        for name in names:
            getattr(getattr(mlflow_variables, name, None), "get", str)()
    except ValueError as problem:  # MLflow reads some variables while it is imported
        raise StoreError(
            f"MLflow cannot read a variable ({problem})", "correct or unset the variable"
        ) from problem
    local = not uri.startswith(("http://", "https://"))
    for name, effect in DIVERTING.items():
        if local and os.environ.get(name, "").lower() in TRUE:
            raise StoreError(f"{name} is on, and MLflow would {effect}", f"unset {name}")
