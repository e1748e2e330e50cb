"""The errors that a user can cause, each printed as one line without a traceback."""

import sqlite3

DONE, FAILED, MISTAKE, STOPPED = 0, 1, 2, 3
"""Exit codes: done, failed or lost trials, a mistake in the command or the study, interrupted."""
DAMAGED = ("malformed", "disk I/O", "not a database", "readonly", "locked", "disk is full")
"""Parts of SQLite's messages for a faulty file, as opposed to a faulty query."""


class UsageError(Exception):
    """A mistake in the command. The text is `<the mistake>; <the remedy>`."""


def error_message(problem: Exception) -> str | None:
    """The lines to print for a user's mistake; None for a bug."""
    from typer import TyperException

    if isinstance(problem, TyperException):
        return _option_message(problem)
    from loopscale.cluster.base import ClusterError
    from loopscale.records.mirror import QueryError
    from loopscale.records.model import StoreError, explain_denial
    from loopscale.runner.lease import Held
    from loopscale.studies.mistakes import Mistakes
    from loopscale.training.storage import StorageUnavailable

    if isinstance(problem, QueryError):
        return _query_message(str(problem))
    if isinstance(problem, sqlite3.DatabaseError) and any(word in str(problem) for word in DAMAGED):
        return f"the store's database cannot be read ({problem}); restore it from a copy, or give another --store"
    from_store = isinstance(problem, StoreError) or type(problem).__module__.startswith("mlflow")
    if from_store and (message := explain_denial(str(problem))):
        return message
    by_user = (UsageError, StoreError, ClusterError, Held, Mistakes, StorageUnavailable)
    return str(problem) if isinstance(problem, by_user) else None


def _option_message(problem: Exception) -> str:
    context = getattr(problem, "ctx", None)
    command = context.command_path if context else "loopscale"
    text = " ".join(problem.format_message().split())  # pyright: ignore[reportAttributeAccessIssue]
    text = text.replace("Value error, ", "").replace("Input should be", "it should be").rstrip(".")
    return f"{command}: {text[:1].lower()}{text[1:]}; `{command} --help` shows the options"


def _query_message(text: str) -> str:
    """DuckDB's message with a remedy. DuckDB takes an unquoted `model.kind` for column `kind` of a table `model`."""
    if "; " in text:
        return text
    if "Referenced table" in text and "not found" in text:
        return f'{text}; a setting is written in double quotes, as in "model.kind"'
    if "Referenced column" in text and "not found" in text:
        return (
            f"{text}; text is written in single quotes, and `loopscale query 'DESCRIBE trials'` lists columns"
        )
    if "Table with name" in text:
        return f"{text}; there are trials, curves, history and studies"
    return f"{text}; `loopscale query --help` has an example"
