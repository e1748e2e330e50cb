"""Exit codes, and the line that a command prints for each error that a person can mend."""

from loopscale.errors import BudgetError, LoopscaleError, OutputError, RunError
from loopscale.errors import UsageError as UsageError

DONE, FAILED, MISTAKE, STOPPED = 0, 1, 2, 3
"""Exit codes: done, failed or lost trials, a mistake in the command or the study, interrupted."""
EXIT_CODES = {BudgetError: STOPPED, RunError: FAILED, OutputError: FAILED, LoopscaleError: MISTAKE}
"""The exit code of each class of errors. The first class that fits counts."""


def known_error(problem: Exception | SystemExit) -> tuple[str, int] | None:
    """The lines to print for an error that a person can mend, and the exit code; None for a bug."""
    from typer import TyperException

    if isinstance(problem, TyperException):
        return _option_message(problem), MISTAKE
    from loopscale.interface.foreign_errors import as_loopscale_error

    if (known := as_loopscale_error(problem)) is None:
        return None
    return str(known), next(code for kind, code in EXIT_CODES.items() if isinstance(known, kind))


def _option_message(problem: Exception) -> str:
    context = getattr(problem, "ctx", None)
    command = context.command_path if context else "loopscale"
    text = " ".join(problem.format_message().split())  # pyright: ignore[reportAttributeAccessIssue]
    text = text.replace("Value error, ", "").replace("Input should be", "it should be").rstrip(".")
    return f"{command}: {text[:1].lower()}{text[1:]}; `{command} --help` shows the options"
