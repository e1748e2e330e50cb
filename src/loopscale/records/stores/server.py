"""Whether a tracking server or database is there, found out within seconds: MLflow would try for minutes."""

import http.client
import os
import socket
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from loopscale.records.model.errors import NoRecords, StoreError

DATABASES = ("postgresql", "mysql", "mssql", "sqlite")
PATIENCE = 5.0
"""Seconds to wait for a first answer."""


def check(uri: str, create: bool) -> None:
    """StoreError unless a server, or a database with MLflow's tables (any, if `create`), answers at `uri`."""
    try:
        scheme = urlsplit(uri).scheme
    except ValueError as problem:
        raise StoreError(f"{uri} is no address ({problem})", "give --store as http://host:port") from problem
    if scheme in ("http", "https"):
        _check_server(uri)
    elif scheme.split("+")[0] in DATABASES:
        _check_database(uri, create)
    else:
        valid = ", ".join(("a folder", "http://", "https://", *(f"{name}://" for name in DATABASES)))
        raise StoreError(f"a store cannot be at {uri}", f"give {valid}")


def shown(uri: str) -> str:
    """`uri` without its password."""
    before, at, after = uri.rpartition("@")
    scheme, slashes, login = before.partition("://")
    return f"{scheme}{slashes}{login.split(':')[0]}{at}{after}" if at and slashes else uri


def _check_server(uri: str) -> None:
    try:
        urllib.request.urlopen(uri.rstrip("/") + "/health", timeout=PATIENCE).close()
    except urllib.error.HTTPError as problem:
        problem.close()  # somebody is there; what MLflow thinks of it, its client will say
    except (urllib.error.URLError, OSError) as problem:
        reason = getattr(problem, "reason", problem)
        if isinstance(reason, OSError) and not isinstance(
            reason, (ConnectionError, TimeoutError, socket.gaierror)
        ):
            return  # certificates and the like: MLflow has settings for these
        raise StoreError(
            f"no tracking server answers at {shown(uri)} ({reason})", "start it, or give another --store"
        ) from problem
    except (ValueError, http.client.InvalidURL) as problem:
        raise StoreError(f"{uri} is no address ({problem})", "give --store as http://host:port") from problem


def _check_database(uri: str, create: bool) -> None:
    import sqlalchemy
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    if uri.startswith("sqlite") and not create:  # connecting would make the file
        try:
            file = sqlalchemy.make_url(uri).database
        except ArgumentError:
            file = None
        if not file or not os.path.exists(file):
            raise NoRecords(f"no records in {shown(uri)} yet", "`loopscale run` makes them")
    arguments = {"connect_timeout": int(PATIENCE)} if uri.startswith(("postgresql", "mysql")) else {}
    try:
        engine = sqlalchemy.create_engine(uri, connect_args=arguments, poolclass=sqlalchemy.NullPool)
        found = sqlalchemy.inspect(engine).has_table("experiments")
    except (ArgumentError, ModuleNotFoundError, ValueError) as problem:
        raise StoreError(
            f"cannot use {shown(uri)} ({problem})", "check the address and install its driver"
        ) from problem
    except SQLAlchemyError as problem:
        reason = str(getattr(problem, "orig", problem))
        raise StoreError(
            f"no database answers at {shown(uri)} ({reason})", "start it, or check --store"
        ) from problem
    if not found and not create:
        raise NoRecords(f"no records in {shown(uri)} yet", "`loopscale run` makes them")
