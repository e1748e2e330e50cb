"""`loopscale ui`: the MLflow UI on the store."""

import os
import socket
import sys
from typing import Annotated

import typer

from loopscale.cli.errors import UsageError
from loopscale.cli.options import StorageOption, StoreOption, open_store
from loopscale.cli.output import say
from loopscale.interface import types

SERVER_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # background jobs for judging chats
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def command(
    context: typer.Context,
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]",
            help="A study's file, or its name. The UI opens on its trials, the lowest error first.",
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The port of the UI.")] = 5000,
    host: Annotated[
        str, typer.Option("--host", help="The interface to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Browse studies, trials, curves and reports in the MLflow UI, until Ctrl-C.

    The printed address opens the list of all studies. With STUDY, the address opens the study's trials, with
    scientific and tuned settings, error and outcome.

    [bold]Example[/bold]  loopscale ui quickstart --port 5001
    """
    records = open_store(context, store, storage)
    if address := records.running_ui():
        say(f"the store is a tracking server, and its UI is at {address}{_page(records, study)}")
        return
    _check_port(host, port)
    page = _page(records, study)
    say(f"the MLflow UI on {records.name} is at http://{host}:{port}{page} in a few seconds; Ctrl-C stops it")
    sys.stdout.flush()
    environment = os.environ | SERVER_ENVIRONMENT | records.ui_environment()
    os.execve(sys.executable, server_command(records, host, port), environment)


def _page(store: "types.Store", study: str | None) -> str:
    """The path of the study's page in the UI, or of the list of all studies."""
    from loopscale.notation.files import recorded_name
    from loopscale.records.mlflow_ui import STUDIES_PAGE, ui_page

    return f"/{ui_page(store, recorded_name(study)) if study else STUDIES_PAGE}"


def server_command(store: "types.Store", host: str, port: int) -> list[str]:
    """The command of MLflow's server. One worker is enough for a database in a file and one reader."""
    command = [
        *(sys.executable, "-m", "mlflow", "server", *store.ui_options()),
        *("--host", host, "--port", str(port), "--workers", "1", "--uvicorn-opts", "--log-level warning"),
    ]
    if host in LOOPBACK:
        return command
    private = ("10.*", "192.168.*", *(f"172.{n}.*" for n in range(16, 32)))
    # MLflow refuses unlisted names, and other machines use this machine's own name.
    names = dict.fromkeys((*LOOPBACK, host, socket.gethostname(), socket.getfqdn()))
    return [*command, "--allowed-hosts", ",".join([*names, *(f"{name}:{port}" for name in names), *private])]


def _check_port(host: str, port: int) -> None:
    """Raises UsageError if the address is not free. MLflow itself would print a traceback."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise UsageError(
            f"cannot listen on {host}:{port} ({reason.lower()}); give another --port or --host"
        ) from problem
