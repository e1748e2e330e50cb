"""`loopscale ui`: the MLflow UI on the store."""

import os
import socket
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from loopscale.cli.options import StorageOption, StoreOption, opened
from loopscale.cli.output import say
from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    from loopscale.records.stores.base import Store

QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # background jobs for judging chats: not ours
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
HERE = ("127.0.0.1", "localhost", "::1")
PRIVATE = ("10.*", "192.168.*", *(f"172.{n}.*" for n in range(16, 32)))


def command(
    context: typer.Context,
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]", help="A study's file, or its name: its trials, the lowest error first."
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where the UI listens.")] = 5000,
    host: Annotated[
        str, typer.Option("--host", help="The interface to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Browse studies, trials, curves and reports in the MLflow UI, until Ctrl-C.

    With a study, the address is that of its trials: settings that are the question or were tuned, error and outcome.

    [bold]Example[/bold]  loopscale ui quickstart --port 5001
    """
    place = opened(context, store, storage)
    if address := place.running_ui():
        say(f"the store is a tracking server, and its UI is at {address}{_page(place, study)}")
        return
    _free(host, port)
    page = _page(place, study)
    say(f"the MLflow UI on {place.name} is at http://{host}:{port}{page} in a few seconds; Ctrl-C stops it")
    sys.stdout.flush()
    os.execve(sys.executable, serving(place, host, port), os.environ | QUIET)


def _page(store: "Store", study: str | None) -> str:
    """What follows the UI's address; nothing for all studies."""
    if study is None:
        return ""
    from loopscale.records.mlflow_ui import ui_page
    from loopscale.studies.find import recorded_name

    return f"/{ui_page(store, recorded_name(study))}"


def serving(store: "Store", host: str, port: int) -> list[str]:
    """MLflow's own command: one worker, since the database is a file and the reader one person."""
    command = [
        *(sys.executable, "-m", "mlflow", "server", *store.ui_options()),
        *("--host", host, "--port", str(port), "--workers", "1", "--uvicorn-opts", "--log-level warning"),
    ]
    if host in HERE:
        return command
    # MLflow refuses names that it was not told of, and other machines know this one by its own.
    names = dict.fromkeys((*HERE, host, socket.gethostname(), socket.getfqdn()))
    return [*command, "--allowed-hosts", ",".join([*names, *(f"{name}:{port}" for name in names), *PRIVATE])]


def _free(host: str, port: int) -> None:
    """Raises Wrong unless somebody can listen there: MLflow's own way to say it is a traceback."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise Wrong(
            f"cannot listen on {host}:{port} ({reason.lower()}); give another --port or --host"
        ) from problem
