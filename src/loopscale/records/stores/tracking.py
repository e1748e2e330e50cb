"""What the stores that MLflow writes have in common: folder, database and tracking server. MLflow is started here."""

import logging
import os
import string
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from typing_extensions import override

from loopscale.records.deferred_imports import mlflow, mlflow_sql_store, mlflow_tracking_utils
from loopscale.records.model.errors import StoreError
from loopscale.records.model.note import STUDY
from loopscale.records.model.run import Run
from loopscale.records.stores.base import Point, Store, without_password

FORMAT = 1
"""The format of records that this version writes. A newer number means that older versions cannot read them."""
FORMAT_TAG = "loopscale.format"
"""Tag of a study's experiment: the format of its records. Experiments without this tag are not ours."""
ACTIVE, DELETED = "ACTIVE_ONLY", "DELETED_ONLY"
PAGE = 200
"""Runs per request. A busy server needs longer for 1,000 runs than a request may last."""
THREADS = 8
"""Requests to a server or database at a time."""


def mlflow_client(uri: str, default_artifacts: str | None = None) -> "mlflow.MlflowClient":
    """Connect to a tracking server or database, and ask it once. Raises StoreError if it does not answer.

    `default_artifacts` is a URI for MLflow's default experiment in a new database. Otherwise MLflow 3.17 writes the
    name of the working directory into SQL unescaped: with a quote in the name, no table can be made.
    """
    connect = mlflow.MlflowClient
    for name in ("mlflow", "alembic", "sqlalchemy"):  # after the import, which sets levels itself
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("mlflow").propagate = False
    try:
        if default_artifacts:
            mlflow_sql_store.SqlAlchemyStore(uri, default_artifacts).engine.dispose()
        client = connect(uri)
        client.search_experiments(max_results=1)
        # For the whole process, MLflow remembers the artifact folder of a run by the run's id alone. Without this line,
        # artifacts for a copied store would be written into the original.
        getattr(mlflow_tracking_utils, "_artifact_repos_cache", {}).clear()
    except mlflow.exceptions.MlflowException as problem:
        raise _unusable(uri, problem.message) from problem
    except Exception as problem:  # drivers and transports raise exceptions of any kind
        raise _unusable(uri, f"{type(problem).__name__}: {problem}") from problem
    return client


def _unusable(uri: str, message: str) -> StoreError:
    address = without_password(uri)
    if "out-of-date database schema" in message:
        return StoreError(
            f"{address} was made with another version of MLflow",
            f"back it up and run `mlflow db upgrade {address}`, or install the MLflow that made it",
        )
    return StoreError(f"{address} does not answer as MLflow should ({message[:300]})", "check --store")


class TrackingStore(Store):
    """A store that MLflow writes. The methods here go through MLflow's client."""

    artifact_threads = THREADS

    @cached_property
    @override
    def client(self) -> "mlflow.MlflowClient":  # pyright: ignore[reportIncompatibleMethodOverride]: it is read only
        return self._connect()

    def _connect(self) -> "mlflow.MlflowClient":
        return mlflow_client(self.uri)

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
        page = self.client.search_runs(experiments, condition, kind, PAGE, page_token=token)
        return [_run(entry) for entry in page], page.token

    @override
    def histories(self, runs: Sequence[Run]) -> Iterator[Point]:
        metrics = [pair for run in runs for pair in product([run.id], run.curves)]
        with ThreadPoolExecutor(THREADS) as pool:
            answers = pool.map(lambda pair: self.client.get_metric_history(*pair), metrics)
            for (run, metric), history in zip(metrics, answers, strict=True):
                yield from ((run, point.step, metric, point.value) for point in history)

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
        options = ["--backend-store-uri", self.uri]
        return [*options, "--default-artifact-root", artifacts] if artifacts else options


def _run(entry: Any) -> Run:
    info, data = entry.info, entry.data
    tags, params, metrics = dict(data.tags), dict(data.params), dict(data.metrics)
    return Run(
        info.run_id,
        info.status,
        info.start_time,
        info.end_time or 0,
        tags,
        params,
        metrics,
        info.experiment_id,
    )
