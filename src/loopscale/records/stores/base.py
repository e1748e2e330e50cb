"""What every kind of store answers, and what the kinds share that MLflow writes. MLflow is started here.

Code outside this folder uses `Store` and never asks for the kind.
"""

import errno
import logging
import os
import string
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn

from typing_extensions import override

from loopscale.core.config import Family
from loopscale.core.file_locks import holders_of_ranges, locked
from loopscale.core.files import make_private, open_regular, read_regular
from loopscale.core.temporary import temporary_folder
from loopscale.core.visible import tell
from loopscale.notation.mistakes import quoted
from loopscale.records.deferred_imports import (
    mlflow,
    mlflow_sql_store,
    mlflow_tracking_utils,
    mlflow_variables,
    pa,
    parquet,
)
from loopscale.records.model import CURVE, STUDY, NoRecords, Run, StoreError, encode, parent_among
from loopscale.records.tables import CURVES, HISTORY, MALFORMED, with_later_columns
from loopscale.redaction import password_of, without_password
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.storage import CheckpointStore

Point = tuple[str, int, str, float]
"""One point of a history: run, step, metric, value."""


class Curves(NamedTuple):
    """The readable curves of trials, with the columns of `CURVES`, and the damage by the id of the run."""

    table: "pa.Table"
    damaged: dict[str, str]


FORMAT = 1
"""The format of records that this version writes. A newer number means that older versions cannot read them."""
FORMAT_TAG = "loopscale.format"
"""Tag of a study's experiment: the format of its records. Experiments without this tag are not ours."""
ACTIVE, DELETED = "ACTIVE_ONLY", "DELETED_ONLY"
PAGE_ROWS = 200
"""Runs per request. A busy server needs longer for 1,000 runs than a request may last."""
POINTS_PER_REQUEST, SETTINGS_PER_REQUEST = 900, 90
"""Values of metrics, and settings, in one request. MLflow takes 1,000 and 100."""
THREADS = 8
"""Requests to a server or database at a time."""
DIVERTING_VARIABLES = {
    "MLFLOW_ENABLE_WORKSPACES": "put the records into a workspace of a server, where loopscale does not look",
    "MLFLOW_SQLALCHEMYSTORE_ECHO": "print every statement into the answer of loopscale",
}
"""Switches for databases, and what they do when they are on. Folders and databases without a server refuse them."""
WORDS_FOR_ON = ("true", "1")
"""MLflow's words for a switch that is on."""


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

    def __init__(self, uri: str, storage: Path, checkpoints: CheckpointStore | None = None) -> None:
        self.uri, self.name, self.storage = uri, without_password(uri), storage
        self.checkpoints = checkpoints or open_checkpoint_store(storage / "checkpoints")
        self._warned = set[str]()

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

    def deleted_parent_run(self, study: str) -> Run | None:
        """The latest parent run of a study that somebody has deleted in MLflow. Its tags hold the spent hours."""
        return None

    @abstractmethod
    def histories(self, runs: Sequence[Run]) -> Iterator[Point]:
        """Every point of the metrics that have a history (`Run.curves`)."""

    @abstractmethod
    def artifact(self, run: str, path: str, folder: Path | None = None) -> Path | None:
        """A run's artifact as a local file, or None. A remote artifact is fetched into `folder`."""

    def change_stamp(self) -> str | None:
        """A text that changes with every change of the records; None if only a search can tell."""
        return None

    def forbids_writing(self) -> bool:
        """True if a file system or its permissions forbid this user to write records, so that no retry helps."""
        return False

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

    def transaction(self) -> AbstractContextManager[None]:
        """A context in which the client's writes may be one transaction. If not, each request stays for itself."""
        return nullcontext()

    def write_artifact(self, run: str, path: str, content: bytes | Path) -> None:
        """Attach a content or a file to a run as `path`. Raises what MLflow's client raises."""
        self._lacks_mlflow()

    def log_points(self, run: str, points: Mapping[tuple[str, int], float], at: int) -> None:
        """Write lost values of metrics, by name and step, as of `at` in ms. Raises what MLflow's client raises."""
        self._lacks_mlflow()

    def log_settings(self, run: str, settings: Mapping[str, Any]) -> None:
        """Write lost settings by dotted path. Raises what MLflow's client raises."""
        self._lacks_mlflow()

    def log_tags(self, run: str, tags: Mapping[str, str]) -> None:
        """Write lost tags. Raises what MLflow's client raises."""
        self._lacks_mlflow()

    def search(self, experiments: list[str], condition: str = "", deleted: bool = False) -> list[Run]:
        """The runs that meet MLflow's `condition`, in no order. Raises what MLflow's client raises."""
        self._lacks_mlflow()

    def running_ui(self) -> str | None:
        """The address of an MLflow UI that already serves the store, if there is one."""
        self._lacks_mlflow()

    def ui_options(self) -> list[str]:
        """Options of `mlflow server` that serve the store, without a password."""
        self._lacks_mlflow()

    def ui_environment(self) -> dict[str, str]:
        """Variables of `mlflow server`, which nobody else on this machine can read."""
        return {"MLFLOW_BACKEND_STORE_URI": self.uri}

    def _lacks_mlflow(self) -> NoReturn:
        what = f"{self.name} holds exported records, without MLflow"
        raise StoreError(what, "`loopscale import` takes them into a store")

    def missing_weights(self, trial: str, study: str) -> StoreError:
        """The error for a trial whose weights are not in the records."""
        remedy = (
            "a run keeps those of replicates and of each cell's best, and an export has none; "
            f"`loopscale run {study} --again {trial}` trains the trial again"
        )
        return StoreError(f"the weights of trial {trial} were not kept here", remedy)

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
        with temporary_folder() as folder:
            file = self.artifact(run, path, folder)
            return read_regular(file) if file else None

    def history_table(self, runs: Sequence[Run]) -> "pa.Table":
        """The histories of trials, with the columns of `HISTORY`."""
        trials = {run.id: run.tags["trial"] for run in runs}
        points = [(run, trials[run], *rest) for run, *rest in self.histories(runs)]
        columns = list(zip(*points, strict=True)) or [()] * len(HISTORY)
        return pa.table([pa.array(column) for column in columns], schema=pa.schema(HISTORY))

    def read_curves(self, runs: Sequence[Run]) -> Curves:
        """The curves of trials, and the runs whose curve is damaged or missing."""
        with ThreadPoolExecutor(THREADS if self.shared else 1) as pool:
            curves = list(pool.map(self._curve, runs))
        empty = pa.schema(CURVES).empty_table()
        table = pa.concat_tables([empty, *(curve for curve in curves if isinstance(curve, pa.Table))])
        return Curves(
            table, {run.id: why for run, why in zip(runs, curves, strict=True) if isinstance(why, str)}
        )

    def mark_experiment(self, experiment: str) -> None:
        """Give an experiment the tag of the format again. Raises what MLflow's client raises."""
        self.client.set_experiment_tag(experiment, FORMAT_TAG, str(FORMAT))

    def metric_mismatches(self) -> dict[str, list[str]]:
        """The names of metrics whose last value is not the end of their history, by the id of the run.

        Only a folder can tell. Other databases write both in one transaction.
        """
        return {}

    def mend_metrics(self, run: str) -> None:
        """Make the last values of a run's metrics anew from their histories, and lost ends of histories from them."""
        self._lacks_mlflow()

    def looks_damaged(self, run: Run) -> bool:
        """True if a quick look shows that the run's curve is damaged or missing. False if a look takes a request."""
        return False

    def warn(self, text: str) -> None:
        """Tell a person, once for each text: a verb may read the records several times."""
        if text not in self._warned:
            self._warned.add(text)
            tell(text)

    def _curve(self, run: Run) -> "pa.Table | str | None":
        """The curve of a trial, None for a trial without a curve, or the damage."""
        schema = pa.schema(CURVES)
        try:
            content = self.read_artifact(run.id, CURVE)
        except OSError as problem:
            if problem.errno is None:  # an error of the network
                raise
            return str(problem)
        if content is None:
            return "it is missing" if run.has_curve else None
        try:
            table = parquet.read_table(pa.BufferReader(content), page_checksum_verification=True)
            curve = with_later_columns(table).select(schema.names[2:])
            keys = [pa.array([text] * len(curve)) for text in (run.id, run.tags["trial"])]
            return pa.table([*keys, *curve.columns], names=schema.names).cast(schema)
        except (pa.ArrowException, *MALFORMED) as problem:
            return " ".join(str(problem).split()) or type(problem).__name__


class StoreKind(Family, package="loopscale.records.stores"):
    """A kind of store: the places where such a store can be, and how it is opened. A member has a file of its own."""

    default_kind = "folder"
    """The kind of a folder without the file of another kind."""
    schemes: ClassVar[tuple[str, ...]] = ()
    """The beginnings of the addresses of such stores, such as `http`. Empty for a kind that lies in a folder."""
    marker: ClassVar[str] = ""
    """The file that marks a folder of this kind. Empty for a kind with addresses."""
    is_storage: ClassVar[bool] = False
    """True if the folder is by default also the storage: the folder for checkpoints, locks and the mirror."""

    def has_scheme(self, scheme: str) -> bool:
        """True if addresses with this beginning belong to the kind."""
        return scheme in self.schemes

    @abstractmethod
    def check(self, place: Path | str, create: bool) -> None:
        """Look at a folder or an address before it is opened, and write nothing there.

        Raises NoRecords if there is no store and none shall be made, and StoreError for a place that cannot be used.
        """

    @abstractmethod
    def open(
        self, place: Path | str, storage: Path, checkpoints: CheckpointStore | None, create: bool
    ) -> Store:
        """The store at a folder or an address. With `create`, an absent store is made. Raises NoRecords, StoreError."""

    def example(self, folder: Path, exported: Path) -> str:
        """A place for the tests of the contract, inside `folder`; empty if only a running service can be such a store.

        A kind that is only read shows the records that `exported` holds, a folder of `loopscale export`.
        """
        return ""


class TrackingStore(Store):
    """A store that MLflow writes. The methods here go through MLflow's client."""

    @cached_property
    @override
    def client(self) -> "mlflow.MlflowClient":  # pyright: ignore[reportIncompatibleMethodOverride]: it is read only
        return self._connect()

    @staticmethod
    def connect(uri: str, default_artifacts: str | None = None) -> "mlflow.MlflowClient":
        """Connect to a tracking server or database, and ask it once. Raises StoreError if it does not answer.

        `default_artifacts` is a URI for MLflow's default experiment in a new database. Otherwise MLflow 3.17 writes the
        name of the working directory into SQL unescaped: with a quote in the name, no table can be made.
        """
        _check_variables(uri)
        connect = mlflow.MlflowClient
        for name in ("mlflow", "alembic", "sqlalchemy"):  # after the import, which sets levels itself
            logging.getLogger(name).setLevel(logging.CRITICAL)
        logging.getLogger("mlflow").propagate = False
        try:
            if default_artifacts:
                mlflow_sql_store.SqlAlchemyStore(uri, default_artifacts).engine.dispose()
            client = connect(uri)
            client.search_experiments(max_results=1)
            # For the whole process, MLflow remembers the artifact folder of a run by the run's id alone. Without this
            # line, artifacts for a copied store would be written into the original.
            getattr(mlflow_tracking_utils, "_artifact_repos_cache", {}).clear()
        except mlflow.exceptions.MlflowException as problem:
            raise _unusable(uri, problem.message) from problem
        except Exception as problem:  # drivers and transports raise exceptions of any kind
            raise _unusable(uri, f"{type(problem).__name__}: {problem}") from problem
        return client

    def _connect(self) -> "mlflow.MlflowClient":
        return self.connect(self.uri)

    @abstractmethod
    def _artifact_root(self) -> str | None:
        """The URI for artifacts of a new study; None if the server decides."""

    @override
    def experiments(self) -> dict[str, str]:
        experiments: dict[str, str] = {}
        token = None
        while True:
            page = self.client.search_experiments(max_results=1000, page_token=token)
            experiments |= {entry.name: entry.experiment_id for entry in page if FORMAT_TAG in entry.tags}
            token = page.token
            if not token:
                return experiments

    @override
    def find_experiment(self, study: str) -> str | None:
        experiment = self._experiment(study)
        if experiment is None:
            return None
        experiment_id, stage, made_in = experiment
        if stage == "deleted":
            what = f"the records of {study} were deleted in MLflow"
            raise StoreError(what, f"`mlflow experiments restore -x {experiment_id}` brings them back")
        if made_in is None:
            what = f"{self.name} has an experiment {study} that loopscale did not make"
            raise StoreError(what, "name the study otherwise, or use another store")
        if not (made_in.isascii() and made_in.isdecimal()):
            what = f"the tag {FORMAT_TAG} of {study} is damaged ({quoted(made_in)})"
            raise StoreError(what, "`loopscale doctor --repair` writes the tag again")
        if int(made_in) > FORMAT:
            what = f"the records of {study} have format {made_in}, this version reads {FORMAT}"
            raise StoreError(what, "install a newer loopscale, or use another store")
        return experiment_id

    def _experiment(self, name: str) -> tuple[str, str, str | None] | None:
        """Id, lifecycle stage and format of an experiment. Experiments that loopscale did not make have no format."""
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            return None
        return experiment.experiment_id, experiment.lifecycle_stage, experiment.tags.get(FORMAT_TAG)

    @override
    def make_experiment(self, study: str) -> str:
        if experiment := self.find_experiment(study):
            return experiment
        # With the kind given, MLflow's UI does not ask for the kind of experiment.
        tags = {FORMAT_TAG: str(FORMAT), "mlflow.experimentKind": "custom_model_development"}
        try:
            return self.client.create_experiment(study, self._artifact_root(), tags)
        except mlflow.exceptions.MlflowException as problem:
            if experiment := self.find_experiment(study):  # another process was faster
                return experiment
            what = f"cannot record {study} in {self.name} ({problem.message})"
            raise StoreError(what, "try again") from problem

    @override
    def runs(self, experiment: str, params: bool = True) -> list[Run]:
        return sorted(self.search([experiment]), key=lambda run: (run.start, run.id))

    @override
    def parent_run(self, study: str) -> Run | None:
        experiment = self.find_experiment(study)
        page = self._page([experiment], f"tags.role = '{STUDY}'", ACTIVE)[0] if experiment else []
        return page[0] if page else None

    @override
    def deleted_parent_run(self, study: str) -> Run | None:
        experiment = self.find_experiment(study)
        parents = self.search([experiment], f"tags.role = '{STUDY}'", deleted=True) if experiment else []
        return max(parents, key=lambda run: (run.start, run.id), default=None)

    @override
    def search(self, experiments: list[str], condition: str = "", deleted: bool = False) -> list[Run]:
        """Ask for the first page as a whole, and for more pages by the first digit of a run's id.

        The requests for several digits run in parallel, because a server has several processes. Pages one after another
        are slow: for each page the server passes over all earlier runs.
        """
        view = DELETED if deleted else ACTIVE
        runs, token = self._page(experiments, condition, view)
        if not token:
            return runs

        def beginning_with(digit: str) -> list[Run]:
            both = " and ".join(filter(None, [condition, f"attributes.run_id LIKE '{digit}%'"]))
            runs, token = self._page(experiments, both, view)
            while token:
                more, token = self._page(experiments, both, view, token)
                runs += more
            return runs

        with ThreadPoolExecutor(THREADS) as pool:
            return [run for part in pool.map(beginning_with, string.hexdigits[:16]) for run in part]

    def _page(
        self, experiments: list[str], condition: str, view: str, token: str | None = None
    ) -> tuple[list[Run], str | None]:
        """One page of runs, and the token of the next page."""
        kind = mlflow.entities.ViewType.from_string(view.lower())
        page = self.client.search_runs(experiments, condition, kind, PAGE_ROWS, page_token=token)
        return [_run(entry) for entry in page], page.token

    @override
    def histories(self, runs: Sequence[Run]) -> Iterator[Point]:
        metrics = [pair for run in runs for pair in product([run.id], run.curves)]
        with ThreadPoolExecutor(THREADS) as pool:
            answers = pool.map(lambda pair: self.client.get_metric_history(*pair), metrics)
            for (run, metric), history in zip(metrics, answers, strict=True):
                yield from ((run, point.step, metric, point.value) for point in history)

    @override
    def write_artifact(self, run: str, path: str, content: bytes | Path) -> None:
        folder, name = os.path.split(path)
        with temporary_folder() as temporary:
            local = temporary / name
            if isinstance(content, bytes):
                local.write_bytes(content)
            else:
                local.symlink_to(content.absolute())
            self.client.log_artifact(run, str(local), folder or None)

    @override
    def log_points(self, run: str, points: Mapping[tuple[str, int], float], at: int) -> None:
        metrics = [mlflow.entities.Metric(name, value, at, step) for (name, step), value in points.items()]
        for first in range(0, len(metrics), POINTS_PER_REQUEST):
            self.client.log_batch(run, metrics[first : first + POINTS_PER_REQUEST], synchronous=True)

    @override
    def log_settings(self, run: str, settings: Mapping[str, Any]) -> None:
        params = [mlflow.entities.Param(name, encode(value)) for name, value in settings.items()]
        for first in range(0, len(params), SETTINGS_PER_REQUEST):
            self.client.log_batch(run, params=params[first : first + SETTINGS_PER_REQUEST], synchronous=True)

    @override
    def log_tags(self, run: str, tags: Mapping[str, str]) -> None:
        texts = [mlflow.entities.RunTag(name, text) for name, text in tags.items()]
        for first in range(0, len(texts), SETTINGS_PER_REQUEST):
            self.client.log_batch(run, tags=texts[first : first + SETTINGS_PER_REQUEST], synchronous=True)

    @override
    def artifact(self, run: str, path: str, folder: Path | None = None) -> Path | None:
        files = self.client.list_artifacts(run, os.path.dirname(path) or None)
        if not any(file.path == path for file in files):
            return None
        return Path(self.client.download_artifacts(run, path, folder and str(folder)))

    @override
    def running_ui(self) -> str | None:
        return None

    @override
    def ui_options(self) -> list[str]:
        artifacts = self._artifact_root()
        options = [] if password_of(self.uri) else ["--backend-store-uri", self.uri]
        return [*options, "--default-artifact-root", artifacts] if artifacts else options


def _check_variables(uri: str) -> None:
    """Return if MLflow's variables leave the records of `uri` complete and in their place. Raises StoreError.

    Every write is synchronous, whatever `MLFLOW_ENABLE_ASYNC_LOGGING` says (see `writing.mlflow_writer`). Every call
    names its address, experiment and run, so `MLFLOW_TRACKING_URI` and `MLFLOW_RUN_ID` have no effect. If MLflow cannot
    read a variable, MLflow raises an exception in the middle of a write.
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
    for name, effect in DIVERTING_VARIABLES.items():
        if local and os.environ.get(name, "").lower() in WORDS_FOR_ON:
            raise StoreError(f"{name} is on, and MLflow would {effect}", f"unset {name}")


def _run(entry: Any) -> Run:
    info, data = entry.info, entry.data
    texts, start, end = (dict(data.tags), dict(data.params)), info.start_time, info.end_time or 0
    return Run(info.run_id, info.status, start, end, *texts, dict(data.metrics), info.experiment_id)


FULL = ("disk is full", "No space left on device", "Disk quota exceeded")
"""Parts of the messages of systems, databases and servers whose disk is full."""
OTHER_STORE = "give another folder with --store or LOOPSCALE_STORE"


def _full(place: str, remedy: str) -> StoreError:
    return StoreError(f"the disk of {place} is full", f"make room there, or {remedy}")


LOCKED = "database is locked"
"""Part of the message of SQLite, and of libraries above SQLite, while another process holds the database."""


def locked_database(place: str, file: Path | None = None) -> StoreError:
    """The error for a database that another process holds; `file` is the database, if it is on this machine."""
    holders = holders_of_ranges(file) if file else []
    by = " and ".join(holders) or "another program"
    return StoreError(
        f"{place} is locked by {by}", f"end {'them' if holders[1:] else 'it'}, or try again later"
    )


def _unusable(uri: str, message: str) -> StoreError:
    address = without_password(uri)
    if LOCKED in message:
        return locked_database(address)
    if "found version None" in message:
        return StoreError(
            f"{address} has lost the version of its tables (alembic_version is empty)",
            "`loopscale doctor --repair` writes it again in a folder, and a copy of any other database has it",
        )
    if "out-of-date database schema" in message:
        return StoreError(
            f"{address} was made with another version of MLflow",
            f"back it up and run `mlflow db upgrade {address}`, or install the MLflow that made it",
        )
    if any(words in message for words in FULL):
        return _full(address, OTHER_STORE)
    return StoreError(f"{address} does not answer as MLflow should ({message[:300]})", "check --store")


STORAGE_FOLDERS = ("checkpoints", "locks", "mirror", "ray", "reports", "artifacts")
"""The names of folders in a storage."""
FOLDERS_OF_A_RUN = ("checkpoints", "ray", "artifacts")
"""The folders without which no run can record anything."""


def misplaced_folders(storage: Path, names: Sequence[str] = STORAGE_FOLDERS) -> list[Path]:
    """The paths that have the name of a folder and are none, also behind a link."""
    return [
        storage / name for name in names if os.path.lexists(storage / name) and not (storage / name).is_dir()
    ]


def check_folders(storage: Path) -> None:
    """StoreError for a file, a pipe or a device in the place of a folder that a run needs."""
    for path in misplaced_folders(storage, FOLDERS_OF_A_RUN):
        raise StoreError(f"{path} is no folder", "rename the path, or let `loopscale doctor --repair` do so")


@contextmanager
def file_lock(folder: Path, name: str = "open.lock") -> Iterator[None]:
    """Lock a file of `folder` against other processes of this machine. Waits for the other processes."""
    try:
        make_private(folder)
        handle = open_regular(folder / name, "a")
    except OSError as problem:
        raise unwritable_lock(folder / name, problem) from problem
    with handle, ExitStack() as held:
        try:
            held.enter_context(locked(handle, folder / name))
        except IsADirectoryError as problem:
            raise unwritable_lock(folder / name, problem) from problem
        yield


def unwritable_lock(file: Path, problem: OSError, remedy: str = OTHER_STORE) -> StoreError:
    """The error for a lock that cannot be made. The doctor moves away what has the place of the lock or its folder."""
    place = str(problem.filename or "")
    if problem.errno in (errno.EISDIR, errno.EEXIST) and place not in ("", str(file.parent.parent)):
        what = f"cannot use {place} ({problem.strerror})"
        return StoreError(what, "rename the path, or let `loopscale doctor --repair` do so")
    return unwritable(file.parent, problem, remedy)


def unwritable(folder: Path, problem: Exception, remedy: str = OTHER_STORE) -> StoreError:
    reason = getattr(problem, "strerror", None) or str(problem)
    if any(words in reason for words in FULL):
        return _full(str(folder), remedy)
    return StoreError(f"cannot write to {folder} ({reason})", remedy)
