"""Mistakes in a command, and what anything that a user can do wrong is told as: lines, never a traceback."""

import sqlite3

DONE, FAILED, MISTAKE, STOPPED = 0, 1, 2, 3
"""Exit codes: done, failed or lost trials, a mistake in the command or the study, interrupted."""


BROKEN = ("malformed", "disk I/O", "not a database", "readonly", "locked", "disk is full")
"""What SQLite says of a file that is at fault, rather than who asks."""


class Wrong(Exception):
    """A mistake in the command. Its text: `<what is wrong>; <what would be right>`."""


def explained(problem: Exception) -> str | None:
    """The lines to say for a user's mistake; `None` for what is a bug of ours."""
    from typer import TyperException

    if isinstance(problem, TyperException):
        return _usage(problem)
    from loopscale.cluster.base import ClusterError
    from loopscale.records.mirror.store_mirror import QueryError
    from loopscale.records.model.errors import StoreError, explain_denial
    from loopscale.runner.lease import Held
    from loopscale.studies.mistakes import Mistakes
    from loopscale.training.storage import StorageUnavailable

    if isinstance(problem, QueryError):
        return _query(str(problem))
    if isinstance(problem, sqlite3.DatabaseError) and any(word in str(problem) for word in BROKEN):
        return f"the store's database cannot be read ({problem}); restore it from a copy, or give another --store"
    from_store = isinstance(problem, StoreError) or type(problem).__module__.startswith("mlflow")
    if from_store and (said := explain_denial(str(problem))):
        return said
    ours = (Wrong, StoreError, ClusterError, Held, Mistakes, StorageUnavailable)
    return str(problem) if isinstance(problem, ours) else None


def _usage(problem: Exception) -> str:
    context = getattr(problem, "ctx", None)
    command = context.command_path if context else "loopscale"
    said = " ".join(problem.format_message().split())  # pyright: ignore[reportAttributeAccessIssue]
    said = said.replace("Value error, ", "").replace("Input should be", "it should be").rstrip(".")
    return f"{command}: {said[:1].lower()}{said[1:]}; `{command} --help` shows what is right"


def _query(said: str) -> str:
    """DuckDB takes an unquoted `model.kind` for the column `kind` of a table `model`, and says so."""
    if "; " in said:
        return said
    if "Referenced table" in said and "not found" in said:
        return f'{said}; a setting is written in double quotes, as in "model.kind"'
    if "Referenced column" in said and "not found" in said:
        return (
            f"{said}; text is written in single quotes, and `loopscale query 'DESCRIBE trials'` lists columns"
        )
    if "Table with name" in said:
        return f"{said}; there are trials, curves, history and studies"
    return f"{said}; `loopscale query --help` has an example"
