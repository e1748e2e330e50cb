"""Delete and rename the records of a study. A deleted study stays in MLflow's trash until `mlflow gc` empties it."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from loopscale.records.deferred_imports import mlflow
from loopscale.records.model import STUDY_JSON, Run, StoreError, explain_denial, json_object, parent_among
from loopscale.records.stores.base import Store
from loopscale.training import checkpoint
from loopscale.training.output import OUTPUT_SUFFIX


def delete_study(store: Store, study: str) -> str:
    """Move the study's records to MLflow's trash, and delete the states and the output of its trainings.

    The caller holds the study's lease. The name of the study is free afterwards.

    Returns
    -------
    str
        The name of the study's experiment in the trash. `mlflow experiments restore` brings it back.

    Raises
    ------
    NoRecords, StoreError
    """
    experiment = _own(store, study)
    keys = {run.tags.get("trial", "") for run in store.runs(experiment, params=False) if run.is_trial}
    elsewhere = {run.tags.get("trial", "") for run in _other_runs(store, study)}
    trashed = f"{study} (deleted {time.strftime('%Y-%m-%d %H:%M:%S')})"
    with _in_one_line(f"delete {study} in {store.name}"):
        store.client.rename_experiment(experiment, trashed)
        store.client.delete_experiment(experiment)
    for key in keys - elsewhere:
        store.checkpoints.delete(key + checkpoint.CHECKPOINT_SUFFIX)
        store.checkpoints.delete(key + OUTPUT_SUFFIX)
    return trashed


def rename_study(store: Store, study: str, name: str) -> int:
    """Give the study's records another name. The caller holds the lease of both names.

    Returns
    -------
    int
        The number of trials.

    Raises
    ------
    NoRecords
        The study has no records.
    StoreError
        The name is taken, or the store is read only.
    """
    experiment = _own(store, study)
    if store.find_experiment(name) is not None:
        raise StoreError(f"{store.name} has records of {name} already", "give another name")
    runs = store.runs(experiment, params=False)
    parent = parent_among(runs)
    # In one transaction: a full disk leaves the old name everywhere. Readers find a study by the first name alone.
    with _in_one_line(f"rename {study} in {store.name}"), store.transaction():
        store.client.rename_experiment(experiment, name)
        for run in runs:
            if run.is_trial:
                store.client.set_tag(run.id, "study", name, synchronous=True)
    description = json_object(store.read_artifact(parent.id, STUDY_JSON)) if parent else None
    if parent and description:  # the doctor restores a damaged description under the new name
        text = json.dumps(description | {"name": name}, indent=1)
        store.write_artifact(parent.id, STUDY_JSON, text.encode())
    return trial_count(runs)


def trial_count(runs: Iterable[Run]) -> int:
    """The number of trials, without baselines, as all verbs count them."""
    return sum(run.is_trial and run.tags.get("role") != "baseline" for run in runs)


@contextmanager
def _in_one_line(action: str) -> Iterator[None]:
    """Raise StoreError for an error of MLflow, such as that of a database that takes no changes."""
    try:
        yield
    except mlflow.exceptions.MlflowException as problem:
        message = " ".join(str(problem.message).split())
        if denial := explain_denial(message):
            raise StoreError(*denial.split("; ", 1)) from problem
        remedy = "change the permissions of the store, or name another store with --store"
        if "disk is full" in message or "disk I/O error" in message:
            remedy = "make room on the disk of the store, then give the command again"
        raise StoreError(f"cannot {action} ({message.partition(' [SQL')[0][:200]})", remedy) from problem


def _own(store: Store, study: str) -> str:
    """The study's experiment in a store that takes changes. Raises NoRecords and StoreError."""
    experiment = store.require_experiment(study)
    if store.read_only:
        raise StoreError(f"{store.name} is read only", "name the store that recorded the study")
    return experiment


def _other_runs(store: Store, study: str) -> list[Run]:
    """The runs of all other studies. They may share trials, and so their unfinished trainings."""
    others = [identity for name, identity in store.experiments().items() if name != study]
    return [run for identity in others for run in store.runs(identity, params=False)]
