"""The program `loopscale`: its verbs and its exit codes.

0 done, 1 failed or lost trials, 2 a mistake in the command or the study, 3 interrupted.
"""

import contextlib
import inspect
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from types import TracebackType
from typing import Annotated, Any

import typer

import loopscale
from loopscale.cli import (
    best,
    check,
    clusters,
    compare,
    corpus,
    doctor,
    listing,
    new,
    plan,
    predict,
    query,
    rename,
    report,
    run,
    schema,
    show,
    simulate,
    theory,
    transfer,
    ui,
    watch,
)
from loopscale.cli.errors import FAILED, STOPPED, known_error
from loopscale.cli.options import StorageOption, StoreOption, StorePlace
from loopscale.cli.output import json_alone
from loopscale.core.cheap_imports import search_rarely
from loopscale.core.visible import tell
from loopscale.errors import OutputError, UsageError
from loopscale.redaction import redacted

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
    "watch": watch.command,
    "list": listing.command,
    "show": show.command,
    "check": check.command,
    "new": new.command,
    "corpus": corpus.command,
    "schema": schema.command,
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
    "rename": rename.rename,
    "delete": rename.delete,
    "doctor": doctor.command,
}


def _help(function: Callable[..., object]) -> str:
    """The docstring of a verb with one line for each paragraph, because the terminal breaks the lines itself."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)


for verb, function in VERBS.items():
    app.command(verb, help=_help(function))(function)


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


@cache
def _command() -> Callable[..., int | None]:
    """All verbs with their options. Typer needs 40 ms to read them from the functions."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. A user's mistake prints one line, a bug its traceback."""
    search_rarely()
    _open_standard_streams()
    _name_errors_of_output()
    sys.excepthook = _print_bug
    for stream in (sys.stdout, sys.stderr):  # a terminal without Δ is no reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        _require_working_folder()
        with json_alone() if "--json" in (sys.argv if arguments is None else arguments) else nullcontext():
            code = _command()(arguments, prog_name="loopscale", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # `loopscale query ... | head`: the reader has enough
        _discard_output()
        return FAILED
    except (Exception, SystemExit) as problem:
        if isinstance(problem, OutputError):
            _discard_output()
        if (known := known_error(problem)) is None:
            raise
        message, code = known
        tell(message)
        return code
    if code == 130:  # typer's code for a Ctrl-C outside of a verb
        print("stopped", file=sys.stderr)
        return STOPPED
    return code or 0


def _discard_output() -> None:
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _require_working_folder() -> None:
    """Raise UsageError if the shell's folder has been deleted: torch's library of products would end the program."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError("the folder of this shell has been deleted; change to another folder") from None


def _open_standard_streams() -> None:
    """Open the standard streams that are closed, as in `loopscale best mine >&-`.

    Without them the next file that the program opens has the number of a stream, so output would go into the file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this number
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


class _Output(io.FileIO):
    """Standard output, whose errors are told apart from the errors of a store on the same disk."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as problem:
            what = f"cannot write standard output ({problem.strerror})"
            raise OutputError(f"{what}; send the output to another place") from problem


def _name_errors_of_output() -> None:
    """Replace the stream of standard output, unless a caller from Python has replaced the stream."""
    stream = sys.stdout
    if stream is not sys.__stdout__ or not isinstance(stream, io.TextIOWrapper):
        return
    stream.flush()
    raw = _Output(stream.fileno(), "w", closefd=False)
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=stream.line_buffering
    )


def _print_bug(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of a bug, without passwords: people paste tracebacks into issues."""
    print(redacted("".join(traceback.format_exception(kind, problem, trace))), file=sys.stderr, end="")


if __name__ == "__main__":
    sys.exit(main())
