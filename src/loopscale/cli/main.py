"""The program `loopscale`: its verbs and its exit codes.

0 done, 1 failed or lost trials, 2 a mistake in the command or the study, 3 interrupted.
"""

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import loopscale
from loopscale.cli import (
    best,
    clusters,
    compare,
    listing,
    plan,
    predict,
    query,
    report,
    run,
    show,
    simulate,
    theory,
    transfer,
    ui,
)
from loopscale.cli.errors import FAILED, MISTAKE, STOPPED, error_message
from loopscale.cli.options import StorageOption, StoreOption, StorePlace
from loopscale.core.garbage import search_rarely
from loopscale.core.visible import visible

app = typer.Typer(
    name="loopscale",
    help="Studies of looped transformers that learn algorithms: tuned, replicated, recorded, compared with theory."
    "\n\n[bold]Start with[/bold]  loopscale run quickstart",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS = {
    "run": run.command,
    "plan": plan.command,
    "best": best.command,
    "query": query.command,
    "report": report.command,
    "compare": compare.command,
    "ui": ui.command,
    "list": listing.command,
    "show": show.command,
    "bound": theory.bound,
    "verify": theory.verify,
    "simulate": simulate.command,
    "submit": clusters.submit,
    "status": clusters.status,
    "logs": clusters.logs,
    "stop": clusters.stop,
    "predict": predict.command,
    "export": transfer.export_records,
    "import": transfer.import_records,
}
for verb, function in VERBS.items():
    app.command(verb)(function)


def _version(asked: bool) -> None:
    if asked:
        print(f"loopscale {loopscale.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def before_verb(
    context: typer.Context,
    store: StoreOption = None,
    storage: StorageOption = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj = StorePlace(store, storage)
    if context.invoked_subcommand is None:
        print(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. A user's mistake prints one line, a bug its traceback."""
    search_rarely()
    for stream in (sys.stdout, sys.stderr):  # a terminal without Δ is no reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = app(arguments, prog_name="loopscale", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # `loopscale query ... | head`: the reader has enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as problem:
        message = error_message(problem)
        if message is None:
            raise
        print(visible(message), file=sys.stderr)
        return MISTAKE
    if code == 130:  # typer's code for a Ctrl-C outside of a verb
        print("stopped", file=sys.stderr)
        return STOPPED
    return code or 0


if __name__ == "__main__":
    sys.exit(main())
