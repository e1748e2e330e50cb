"""The program `loopscale`: its verbs, and its exit codes.

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
    bound,
    compare,
    listing,
    logs,
    plan,
    predict,
    query,
    report,
    run,
    show,
    simulate,
    status,
    stop,
    submit,
    transfer,
    ui,
    verify,
)
from loopscale.cli.options import Place, StorageOption, StoreOption
from loopscale.cli.wrong import FAILED, MISTAKE, STOPPED, explained
from loopscale.core.visible import visible

app = typer.Typer(
    name="loopscale",
    help="Studies of looped transformers that learn algorithms: tuned, replicated, recorded, held against "
    "theory.\n\n[bold]Start with[/bold]  loopscale run quickstart",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.command)
app.command("plan")(plan.command)
app.command("best")(best.command)
app.command("query")(query.command)
app.command("report")(report.command)
app.command("compare")(compare.command)
app.command("ui")(ui.command)
app.command("list")(listing.command)
app.command("show")(show.command)
app.command("bound")(bound.command)
app.command("verify")(verify.command)
app.command("simulate")(simulate.command)
app.command("submit")(submit.command)
app.command("status")(status.command)
app.command("logs")(logs.command)
app.command("stop")(stop.command)
app.command("predict")(predict.command)
app.command("export")(transfer.export)
app.command("import")(transfer.import_)


def _version(asked: bool) -> None:
    if asked:
        print(f"loopscale {loopscale.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def everywhere(
    context: typer.Context,
    store: StoreOption = None,
    storage: StorageOption = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj = Place(store, storage)
    if context.invoked_subcommand is None:
        print(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. A user's mistake is told in a line, a bug of ours with its traceback."""
    for stream in (sys.stdout, sys.stderr):  # a terminal without Δ is no reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = app(arguments, prog_name="loopscale", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # `loopscale query ... | head`: whoever read has seen enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as problem:
        said = explained(problem)
        if said is None:
            raise
        print(visible(said), file=sys.stderr)
        return MISTAKE
    if code == 130:  # how typer tells a Ctrl-C that no verb has taken
        print("stopped", file=sys.stderr)
        return STOPPED
    return code or 0


if __name__ == "__main__":
    sys.exit(main())
