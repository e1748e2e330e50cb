"""A tracking server that many hosts share."""

import http.client
import ipaddress
import os
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import override

from loopscale.records.deferred_imports import mlflow_credentials, mlflow_rest
from loopscale.records.model import Run, StoreError
from loopscale.records.stores.base import PAGE_ROWS, Store, StoreKind, TrackingStore
from loopscale.redaction import without_password
from loopscale.training.storage import CheckpointStore

PATIENCE = 5.0
"""Seconds to wait for a first answer. MLflow would wait for minutes."""
SEARCH = "/api/2.0/mlflow/runs/search"


class ServerStore(TrackingStore):
    """A tracking server, which also keeps the artifacts."""

    shared = True

    @staticmethod
    def check_reachable(uri: str, create: bool) -> None:
        """StoreError unless a server answers."""
        _leave_out_proxy(uri)
        try:
            urllib.request.urlopen(uri.rstrip("/") + "/health", timeout=PATIENCE).close()
        except urllib.error.HTTPError as problem:
            problem.close()  # a server answers, and MLflow's client will report the problem
        except (urllib.error.URLError, OSError) as problem:
            reason = getattr(problem, "reason", problem)
            unreachable = (ConnectionError, TimeoutError, socket.gaierror)
            if isinstance(reason, OSError) and not isinstance(reason, unreachable):
                return  # certificates and similar: MLflow has settings for them
            proxy = _proxy(uri)
            way = f" by way of the proxy {without_password(proxy)}" if proxy else ""
            what = f"no tracking server answers at {without_password(uri)}{way} ({reason})"
            also = f", add {urlsplit(uri).hostname} to NO_PROXY" if proxy else ""
            raise StoreError(what, f"start it{also}, or give another --store") from problem
        except (ValueError, http.client.InvalidURL) as problem:
            what = f"{uri} is no address ({problem})"
            raise StoreError(what, "give --store as http://host:port") from problem

    @override
    def running_ui(self) -> str:
        return self.name

    @override
    def _artifact_root(self) -> None:
        return None

    @override
    def _page(
        self, experiments: list[str], condition: str, view: str, token: str | None = None
    ) -> tuple[list[Run], str | None]:
        """Read the server's JSON directly, because MLflow's client needs 1.7 ms per run to make its objects."""
        question: dict[str, Any] = {
            "experiment_ids": experiments,
            "filter": condition,
            "max_results": PAGE_ROWS,
        }
        question |= {"run_view_type": view} | ({"page_token": token} if token else {})
        credentials = mlflow_credentials.get_default_host_creds(self.uri)
        answer = mlflow_rest.http_request(credentials, SEARCH, "POST", json=question)
        page = mlflow_rest.verify_rest_response(answer, SEARCH).json()
        return [_run(entry) for entry in page.get("runs", ())], page.get("next_page_token")


def _proxy(uri: str) -> str | None:
    """The proxy of the environment through which requests to the address go, if there is one."""
    parts = urlsplit(uri)
    if not parts.hostname or urllib.request.proxy_bypass(parts.hostname):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def _leave_out_proxy(uri: str) -> None:
    """Add a host of this machine to NO_PROXY, for this process and MLflow's client. No proxy reaches this machine."""
    host = urlsplit(uri).hostname or ""
    if not _is_this_machine(host) or not _proxy(uri):
        return
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, [given, host]))


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _run(entry: dict[str, Any]) -> Run:
    info, data = entry["info"], entry.get("data", {})
    tags, params, metrics = (
        {pair["key"]: pair.get("value", "") for pair in data.get(name, ())}
        for name in ("tags", "params", "metrics")
    )
    start, end = int(info["start_time"]), int(info.get("end_time", 0))
    numbers = {name: float(value or 0.0) for name, value in metrics.items()}
    return Run(info["run_id"], info["status"], start, end, tags, params, numbers, info["experiment_id"])


class ServerKind(StoreKind, kind="server"):
    """A tracking server."""

    schemes = ("http", "https")

    @override
    def check(self, place: Path | str, create: bool) -> None:
        ServerStore.check_reachable(str(place), create)

    @override
    def open(
        self, place: Path | str, storage: Path, checkpoints: CheckpointStore | None, create: bool
    ) -> Store:
        return ServerStore(str(place).rstrip("/"), storage, checkpoints)
