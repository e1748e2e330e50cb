"""What every kind of store answers. Code outside this folder uses this interface and never asks for the kind."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, NoReturn

from loopscale.records.deferred_imports import mlflow, pa, parquet
from loopscale.records.model.curves import with_later_columns
from loopscale.records.model.errors import NoRecords, StoreError
from loopscale.records.model.note import CURVE
from loopscale.records.model.run import Run, parent_among
from loopscale.records.model.tables import CURVES, HISTORY, arrow_schema
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.storage import CheckpointStore

CHECKPOINTS = "checkpoints"
"""Folder in the storage."""

Point = tuple[str, int, str, float]
"""One point of a history: run, step, metric, value."""


class Store(ABC):
    """An open store of records.

    `uri` is MLflow's address; for exported records, the folder. `name` is the store as a person writes it, without a
    password. `storage` is a folder of this machine for locks, the mirror, reports and Ray's folder. `checkpoints` lie
    by default in the storage.
    """

    read_only: ClassVar[bool] = False
    """True if nothing can be recorded in the store, not even a report."""
    shared: ClassVar[bool] = False
    """True if drivers on several hosts can use the store. Then a file lock is not enough, and listing runs is slow."""
    artifact_threads: ClassVar[int] = 1
    """Artifacts to fetch at a time."""

    def __init__(self, uri: str, storage: Path, checkpoints: CheckpointStore | None = None) -> None:
        self.uri, self.name, self.storage = uri, without_password(uri), storage
        self.checkpoints = checkpoints or open_checkpoint_store(storage / CHECKPOINTS)

    @abstractmethod
    def experiments(self) -> dict[str, str]:
        """The id of every study's experiment, by the study's name, also for records of a newer format."""

    def find_experiment(self, study: str) -> str | None:
        """The id of the study's experiment, if the study has records. Raises StoreError."""
        return self.experiments().get(study)

    @abstractmethod
    def runs(self, experiment: str, params: bool = True) -> list[Run]:
        """All runs that are not deleted, also the parent run, in the order of their start.

        Without `params`, kinds that read faster without settings leave the settings out.
        """

    def parent_run(self, study: str) -> Run | None:
        """The parent run of a study's trials, which holds the study's file, description and report."""
        experiment = self.find_experiment(study)
        return parent_among(self.runs(experiment)) if experiment else None

    @abstractmethod
    def histories(self, runs: Sequence[Run]) -> Iterator[Point]:
        """Every point of the metrics that have a history (`Run.curves`)."""

    @abstractmethod
    def artifact(self, run: str, path: str, folder: Path | None = None) -> Path | None:
        """A run's artifact as a local file, or None. A remote artifact is fetched into `folder`."""

    def change_stamp(self) -> str | None:
        """A text that changes with every change of the records; None if only a search can tell."""
        return None

    @property
    def mirror_name(self) -> str:
        """The mirror's folder in the storage, because several stores may share a storage."""
        return sha256(self.uri.encode()).hexdigest()[:12]

    # Only stores that MLflow serves have the following. The other kinds raise StoreError.

    @property
    def client(self) -> "mlflow.MlflowClient":
        """MLflow's client, connected. Raises StoreError."""
        self._lacks_mlflow()

    def make_experiment(self, study: str) -> str:
        """The id of the study's experiment, made if it is absent. Raises StoreError."""
        self._lacks_mlflow()

    def search(self, experiments: list[str], condition: str = "", deleted: bool = False) -> list[Run]:
        """The runs that meet MLflow's `condition`, in no order. Raises what MLflow's client raises."""
        self._lacks_mlflow()

    def running_ui(self) -> str | None:
        """The address of an MLflow UI that already serves the store, if there is one."""
        self._lacks_mlflow()

    def ui_options(self) -> list[str]:
        """Options of `mlflow server` that serve the store."""
        self._lacks_mlflow()

    def _lacks_mlflow(self) -> NoReturn:
        what = f"{self.name} holds exported records, without MLflow"
        raise StoreError(what, "`loopscale import` takes them into a store")

    def missing_weights(self, trial: str, study: str) -> StoreError:
        """The error for a trial whose weights are not in the records."""
        remedy = f"those of replicates and of each cell's best are, `loopscale best {study}` shows them"
        return StoreError(f"the weights of trial {trial} were not kept", remedy)

    def studies(self) -> list[str]:
        """The names of the studies with records."""
        return sorted(self.experiments())

    def require_experiment(self, study: str) -> str:
        """The id of the study's experiment. Raises NoRecords if the study has no records, and StoreError."""
        if experiment := self.find_experiment(study):
            return experiment
        raise NoRecords(f"no records of {study} in {self.name} yet", f"`loopscale run {study}` makes them")

    def read_artifact(self, run: str, path: str) -> bytes | None:
        """The content of a run's artifact, or None."""
        with TemporaryDirectory(prefix="loopscale-") as folder:
            file = self.artifact(run, path, Path(folder))
            return file.read_bytes() if file else None

    def history_table(self, runs: Sequence[Run]) -> "pa.Table":
        """The histories of trials, with the columns of `tables.HISTORY`."""
        trials = {run.id: run.tags["trial"] for run in runs}
        points = [(run, trials[run], *rest) for run, *rest in self.histories(runs)]
        columns = list(zip(*points, strict=True)) or [()] * len(HISTORY)
        return pa.table([pa.array(column) for column in columns], schema=arrow_schema(HISTORY))

    def curve_table(self, runs: Sequence[Run]) -> "pa.Table":
        """The curves of trials, with the columns of `tables.CURVES`. Raises StoreError for a damaged curve."""
        with ThreadPoolExecutor(self.artifact_threads) as pool:
            curves = list(pool.map(self._curve, runs))
        empty = arrow_schema(CURVES).empty_table()
        return pa.concat_tables([empty, *(curve for curve in curves if curve is not None)])

    def _curve(self, run: Run) -> "pa.Table | None":
        schema = arrow_schema(CURVES)
        try:
            content = self.read_artifact(run.id, CURVE)
            if content is None:
                return None
            curve = with_later_columns(parquet.read_table(pa.BufferReader(content))).select(schema.names[2:])
            keys = [pa.array([text] * len(curve)) for text in (run.id, run.tags["trial"])]
            return pa.table([*keys, *curve.columns], names=schema.names).cast(schema)
        except (pa.ArrowException, OSError, KeyError) as problem:
            what = f"the curve of trial {run.tags['trial']} is damaged ({problem})"
            raise StoreError(what, "evaluate it again") from problem


def without_password(uri: str) -> str:
    before, at, after = uri.rpartition("@")
    scheme, slashes, login = before.partition("://")
    return f"{scheme}{slashes}{login.split(':')[0]}{at}{after}" if at and slashes else uri
