"""Mistakes in a command, and what anything that a user can do wrong is told as: lines, never a traceback."""

DONE, FAILED, MISTAKE, STOPPED = 0, 1, 2, 3
"""Exit codes: done, failed or lost trials, a mistake in the command or the study, interrupted."""


class Wrong(Exception):
    """A mistake in the command. Its text: `<what is wrong>; <what would be right>`."""


def explained(problem: Exception) -> str | None:
    """The lines to say for a user's mistake; `None` for what is a bug of ours."""
    from typer import TyperException

    if isinstance(problem, TyperException):
        return _usage(problem)
    from loopscale.records.errors import StoreError
    from loopscale.records.mirror import QueryError
    from loopscale.runner.lease import Held
    from loopscale.studies.mistakes import Mistakes

    if isinstance(problem, QueryError):
        return _query(str(problem))
    return str(problem) if isinstance(problem, (Wrong, StoreError, Held, Mistakes)) else None


def _usage(problem: Exception) -> str:
    context = getattr(problem, "ctx", None)
    command = context.command_path if context else "loopscale"
    said = " ".join(problem.format_message().split())  # pyright: ignore[reportAttributeAccessIssue]
    said = said.replace("Value error, ", "").replace("Input should be", "it should be").rstrip(".")
    return f"{command}: {said[:1].lower()}{said[1:]}; `{command} --help` shows what is right"


def _query(said: str) -> str:
    """DuckDB takes an unquoted `model.kind` for the column `kind` of a table `model`, and says so."""
    if "Referenced table" in said and "not found" in said:
        return f'{said}; a setting is written in double quotes, as in "model.kind"'
    return said
