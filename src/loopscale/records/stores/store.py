"""Where records are kept: a folder of one's own (SQLite), or a tracking server or database that many share.

A folder holds everything: `mlflow.db`, `artifacts/`, `format.json` and what is not a record (checkpoints,
locks, mirror). On a server each study's experiment carries the format as a tag, and what is not a record lies
in `storage`. Checkpoints may lie in a bucket instead, so that machines need no folder in common.
"""

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

from loopscale.records.model.errors import StoreError
from loopscale.records.stores import folder as embedded
from loopscale.records.stores import server as remote
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.storage import BadAddress, CheckpointStore, StorageUnavailable

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

    from loopscale.records.stores.exported import Exported

FORMAT_TAG = embedded.FORMAT_TAG
DEFAULT = ".loopscale"
CHECKPOINTS = "checkpoints"
SOON = 5.0
"""Seconds for which a reader asks a bucket again that does not answer."""

__all__ = ["Store", "StoreError"]


def _folder(text: str | Path, create: bool = False) -> Path:
    try:
        folder = Path(text).expanduser().absolute()
    except RuntimeError as problem:
        raise StoreError(f"there is no folder {text} ({problem})", "write its path without ~") from problem
    if create:
        embedded.make_folder(folder)
    return folder


def _bucket(url: str, create: bool) -> CheckpointStore:
    """The checkpoints below a URL. StoreError unless it is one, and, where `create`, can be written."""
    try:
        bucket = open_checkpoint_store(url, None if create else SOON)  # a person waits for what only reads
        if create:
            open_checkpoint_store(url, patience=0.0).check()
    except (BadAddress, StorageUnavailable) as problem:
        what, _, remedy = str(problem).rpartition("; ")
        raise StoreError(what, remedy) from problem
    return bucket


class Store:
    """An open store. MLflow is imported when `client` is first asked for, not before."""

    def __init__(
        self,
        root: Path | None,
        uri: str,
        storage: Path,
        checkpoints: CheckpointStore | None = None,
        exported: "Exported | None" = None,
    ) -> None:
        """`root` is the folder of an embedded store; `None` for a server or database, and for what was exported.

        `storage` is a folder of this machine, `checkpoints` by default a folder in it.
        """
        self.root, self.uri, self.storage, self.exported = root, uri, storage, exported
        self.checkpoints = checkpoints or open_checkpoint_store(storage / CHECKPOINTS)

    @classmethod
    def open(
        cls, where: str | Path | None = None, storage: str | Path | None = None, create: bool = False
    ) -> Self:
        """The store at a folder, server or database; `storage` is a folder, or the URL of a bucket for checkpoints.

        A folder that `loopscale export` wrote can be read, and never be written to.

        By default $LOOPSCALE_STORE, else $MLFLOW_TRACKING_URI, else `.loopscale`. Raises StoreError, one line
        with the remedy, for whatever is wrong. Unless `create`, a store that is not there is an error, and
        nothing is written.
        """
        from loopscale.records.stores.exported import WEIGHTS_FOLDER, Exported, is_export

        text = str(
            where or os.environ.get("LOOPSCALE_STORE") or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT
        )
        if text.startswith("file:"):
            text = unquote(urlsplit(text).path)
        root = None if "://" in text else _folder(text)
        bucket = _bucket(str(storage), create) if storage and "://" in str(storage) else None
        beside = None if bucket else storage
        if root is None:
            remote.check(text, create)
            return cls(None, text.rstrip("/"), _folder(beside or DEFAULT, create), bucket)
        if is_export(root) and not (root / embedded.DATABASE).exists():
            if create:
                remedy = f"give another --store; `loopscale import {root}` takes them into it"
                raise StoreError(f"{root} holds exported records, which are only read", remedy)
            weights = bucket or open_checkpoint_store(root / WEIGHTS_FOLDER)
            return cls(None, str(root), _folder(beside or DEFAULT), weights, Exported(root))
        place = _folder(beside, create) if beside else root  # before a store is made for nothing
        embedded.check(root, create)
        return cls(root, embedded.uri(root), place, bucket)

    @cached_property
    def client(self) -> "MlflowClient":
        """MLflow's client, connected: StoreError if the store does not answer as it should."""
        from loopscale.records.stores import client

        if self.exported:
            raise StoreError(
                f"{self.name} holds exported records, without MLflow", "import them into a store"
            )
        self.settle()
        if self.root is None and not self.uri.startswith("http"):
            with embedded.lock(self.storage):  # the first to come makes the tables
                return client.connect(self.uri)
        return client.connect(self.uri)

    def settle(self) -> None:
        """Make a folder that was moved or copied whole again (see `embedded.settle`); nothing for a server."""
        if self.root:
            embedded.settle(self.root)

    def find(self, study: str) -> str | None:
        """The id of the study's experiment, if there is one."""
        if self.exported:
            return self.exported.studies().get(study)
        experiment = self.client.get_experiment_by_name(study)
        if experiment is None:
            return None
        if experiment.lifecycle_stage == "deleted":
            raise StoreError(
                f"the records of {study} were deleted in MLflow",
                f"`mlflow experiments restore -x {experiment.experiment_id}` brings them back",
            )
        self._check_format(experiment)
        return experiment.experiment_id

    def experiment(self, study: str) -> str:
        """The id of the study's experiment, made if it is not there."""
        from mlflow.exceptions import MlflowException

        if found := self.find(study):
            return found
        artifacts = None if self.uri.startswith("http") else (self.root or self.storage) / "artifacts"
        # The kind spares the UI its question what sort of experiment this is.
        tags = {FORMAT_TAG: str(embedded.FORMAT), "mlflow.experimentKind": "custom_model_development"}
        try:
            return self.client.create_experiment(study, artifacts and artifacts.as_uri(), tags)
        except MlflowException as problem:
            if found := self.find(study):  # another process was faster
                return found
            raise StoreError(
                f"cannot record {study} in {self.name} ({problem.message})", "try again"
            ) from problem

    def studies(self) -> list[str]:
        """The names of the studies that have records here."""
        if self.exported:
            return sorted(self.exported.studies())
        found, token = [], None
        while True:
            page = self.client.search_experiments(max_results=1000, page_token=token)
            found += [experiment.name for experiment in page if FORMAT_TAG in experiment.tags]
            token = page.token
            if not token:
                return sorted(found)

    def artifact(self, run: str, path: str, folder: Path | None = None) -> Path | None:
        """A run's artifact as a local file, `None` if it has none; fetched into `folder` if it is not one."""
        if self.exported:
            return self.exported.artifact(run, path, folder)
        if self.root:
            # not MLflow's own address, which is absolute: a store may be moved
            local = self.root / "artifacts" / run / "artifacts" / path
            return local if local.is_file() else None
        if not any(
            found.path == path for found in self.client.list_artifacts(run, os.path.dirname(path) or None)
        ):
            return None
        return Path(self.client.download_artifacts(run, path, folder and str(folder)))

    @property
    def name(self) -> str:
        """The store as a person would write it, without any password."""
        return str(self.root) if self.root else remote.shown(self.uri)

    def _check_format(self, experiment: Any) -> None:
        made = experiment.tags.get(FORMAT_TAG)
        if made is None:
            raise StoreError(
                f"{self.name} has an experiment {experiment.name} that loopscale did not make",
                "name the study otherwise, or use another store",
            )
        if int(made) > embedded.FORMAT:
            raise StoreError(
                f"the records of {experiment.name} have format {made}, this version reads {embedded.FORMAT}",
                "install a newer loopscale, or use another store",
            )
