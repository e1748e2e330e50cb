"""A database with MLflow's tables that many hosts share, without a tracking server."""

import os
from pathlib import Path

from typing_extensions import override

from loopscale.records.deferred_imports import mlflow, sqlalchemy
from loopscale.records.model import NoRecords, StoreError
from loopscale.records.stores.base import LOCKED, Store, StoreKind, TrackingStore, file_lock, locked_database
from loopscale.redaction import without_password
from loopscale.training.storage import CheckpointStore

PATIENCE = 5
"""Seconds to wait for a first answer."""


class DatabaseStore(TrackingStore):
    """A shared database. Artifacts lie in the storage, which all hosts must then share."""

    shared = True

    @staticmethod
    def check_reachable(uri: str, create: bool) -> None:
        """StoreError unless a database answers that has MLflow's tables. With `create`, the tables may be absent."""
        address, errors = without_password(uri), sqlalchemy.exc
        no_records = NoRecords(f"no records in {address} yet", "`loopscale run` makes them")
        if uri.startswith("sqlite") and not create:  # connecting would make the file
            try:
                file = sqlalchemy.make_url(uri).database
            except errors.ArgumentError:
                file = None
            if not file or not os.path.exists(file):
                raise no_records
        timeout = {"connect_timeout": PATIENCE} if uri.startswith(("postgresql", "mysql")) else {}
        try:
            engine = sqlalchemy.create_engine(uri, connect_args=timeout, poolclass=sqlalchemy.NullPool)
            has_tables = sqlalchemy.inspect(engine).has_table("experiments")
        except (errors.ArgumentError, ModuleNotFoundError, ValueError) as problem:
            what = f"cannot use {address} ({problem})"
            raise StoreError(what, "check the address and install its driver") from problem
        except errors.SQLAlchemyError as problem:
            reason = str(getattr(problem, "orig", problem))
            if LOCKED in reason:
                file = sqlalchemy.make_url(uri).database
                raise locked_database(address, Path(file) if file else None) from problem
            what = f"no database answers at {address} ({reason})"
            raise StoreError(what, "start it, or check --store") from problem
        if not has_tables and not create:
            raise no_records

    @override
    def _connect(self) -> "mlflow.MlflowClient":
        with file_lock(self.storage):  # the first process makes the tables
            return super()._connect()

    @override
    def _artifact_root(self) -> str:
        return (self.storage / "artifacts").as_uri()


class DatabaseKind(StoreKind, kind="database"):
    """A database without a tracking server. A driver of the database may follow its scheme, after a plus sign."""

    schemes = ("postgresql", "mysql", "mssql", "sqlite")

    @override
    def has_scheme(self, scheme: str) -> bool:
        return scheme.partition("+")[0] in self.schemes

    @override
    def check(self, place: Path | str, create: bool) -> None:
        DatabaseStore.check_reachable(str(place), create)

    @override
    def open(
        self, place: Path | str, storage: Path, checkpoints: CheckpointStore | None, create: bool
    ) -> Store:
        return DatabaseStore(str(place).rstrip("/"), storage, checkpoints)

    @override
    def example(self, folder: Path, exported: Path) -> str:
        return f"sqlite:///{folder}/records.db"
