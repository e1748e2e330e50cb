"""Errors of SQLite, of MLflow, of plugins and of imports that a person can mend, as errors of `loopscale.errors`."""

import errno
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from loopscale.core.plugins import fault_of_plugin
from loopscale.errors import LoopscaleError, StoreError

UNUSABLE = {
    errno.ENOSPC: "make room there, or give another --store or --storage",
    errno.EDQUOT: "make room in the quota, or give another --store or --storage",
    errno.EROFS: "give another --store or --storage, because the file system is read only",
    errno.EACCES: "change its permissions, or give another --store or --storage",
    errno.EPERM: "change its permissions, or give another --store or --storage",
    errno.ENOLCK: "mount the file system with locks, or give a --storage that has locks",
    errno.EIO: "check the disk, or give another --store or --storage",
    errno.ESTALE: "mount the file system again",
}
"""The remedy for each error of a disk or a file system."""
DAMAGED = ("malformed", "disk I/O", "not a database", "readonly", "disk is full", "unable to open")
"""Parts of SQLite's messages for a faulty file, as opposed to a faulty query."""
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def as_loopscale_error(problem: Exception | SystemExit) -> LoopscaleError | None:
    """The error as an error of `loopscale.errors`; None for a bug. A plugin's SystemExit would end this program."""
    from loopscale.records.model import explain_denial

    if isinstance(problem, OSError) and problem.errno in UNUSABLE and not isinstance(problem, LoopscaleError):
        place = f" {problem.filename}" if problem.filename else " the disk"
        return StoreError(f"cannot use{place} ({problem.strerror})", UNUSABLE[problem.errno])
    if _reports_a_lock(problem):
        return StoreError("the store's database is locked by another program", "end it, or try again later")
    if isinstance(problem, sqlite3.DatabaseError) and any(word in str(problem) for word in DAMAGED):
        what = f"the store's database cannot be read ({problem})"
        return StoreError(what, "restore it from a copy, or give another --store")
    from_store = isinstance(problem, StoreError) or type(problem).__module__.startswith("mlflow")
    if from_store and (message := explain_denial(str(problem))):
        return StoreError(*message.split("; ", 1))
    return (
        problem
        if isinstance(problem, LoopscaleError)
        else fault_of_plugin(problem) or _fault_of_import(problem)
    )


def _fault_of_import(problem: Exception | SystemExit) -> LoopscaleError | None:
    """The error that ended the import of a library: it is not whole, or reads a variable with an odd value."""
    frames = [frame for frame, _ in traceback.walk_tb(problem.__traceback__)]
    importing = (frame.f_globals["__name__"] for frame in frames if frame.f_code.co_name == "<module>")
    names = (name.partition(".")[0] for name in importing)
    if (library := next((name for name in names if name not in ("loopscale", "__main__")), None)) is None:
        return None
    reason = next(
        (line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__
    )
    remedy = f"correct the variable if the reason names one, or install {library} again"
    return LoopscaleError(f"{library} does not import ({reason[:300].rstrip('.')}); {remedy}")


def _reports_a_lock(problem: BaseException) -> bool:
    """True for an error of SQLite, of SQLAlchemy or of MLflow that a locked database has caused."""
    of_database = type(problem).__module__.partition(".")[0] in ("sqlite3", "sqlalchemy", "mlflow")
    return of_database and "database is locked" in str(problem)


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as problem:
        known = as_loopscale_error(problem)
        if known is None or known is problem:
            raise
        raise known from problem


def with_loopscale_errors(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function with every error that a person can mend as an error of `loopscale.errors`."""

    @wraps(function)
    def translated(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        with _translating():
            return function(*arguments, **options)

    return translated
