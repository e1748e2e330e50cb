"""Limits of a query: its time, its memory, and its room for temporary files.

DuckDB runs a query on a thread of its own here, because the thread of the caller must hear Ctrl-C at once.
"""

import shutil
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from loopscale.core.temporary import temporary_folder
from loopscale.errors import QueryError
from loopscale.records.deferred_imports import duckdb, pa

GRACE = 2.0
"""Seconds for DuckDB to end a query. A few of DuckDB's functions end only with their value."""
PAUSE = 0.05
"""Seconds between two interrupts of a query."""
SHARE = 0.5
"""The share of the free memory, and of the free disk of temporary files, that a query may use."""
LEAST_MEMORY = 2**28
"""A query may use so many bytes of memory in any case."""
TOO_LARGE = "the query needs more than half of the free memory and disk; ask for less, as by LIMIT or WHERE"
ANSWER_SHARE = 0.5
"""The share of a query's memory that its answer may use. DuckDB's limit does not count the answer."""
ROWS_AT_ONCE = 100_000
"""Rows of an answer between two looks at its size."""
Answer = TypeVar("Answer")
_stuck: list[threading.Event] = []
"""One event for each query that was told to end. The event is set when the query has ended."""


def has_stuck_query() -> bool:
    """True if a query runs on, although DuckDB was told to end the query."""
    return not all(ended.is_set() for ended in _stuck)


def run_query(
    ask: Callable[[], Answer], connection: "duckdb.DuckDBPyConnection", seconds: float | None
) -> Answer:
    """The answer of `ask`, which uses the connection. Raises QueryError after the seconds.

    KeyboardInterrupt ends the query too.
    """
    answers: list[Answer] = []
    problems: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        try:
            answers.append(ask())
        except BaseException as problem:
            problems.append(problem)
        finally:
            ended.set()

    try:
        # Ctrl-C may arrive as soon as the query runs, and therefore before `start` returns.
        threading.Thread(target=work, daemon=True).start()
        ended.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
    except KeyboardInterrupt:
        _end(ended, connection)
        raise
    if not ended.is_set():
        _end(ended, connection)
        raise QueryError(
            f"the query takes more than {seconds:g} s; give more with --timeout, or ask for less"
        )
    if problems:
        raise problems[0]
    return answers[0]


def _end(ended: threading.Event, connection: "duckdb.DuckDBPyConnection") -> None:
    _stuck.append(ended)
    # An interrupt before the first step of the query ends nothing, so there are several.
    for _ in range(round(GRACE / PAUSE)):
        connection.interrupt()
        if ended.wait(PAUSE):
            return


def bounded_answer(reader: "pa.RecordBatchReader") -> "pa.Table":
    """The answer as a table. Raises QueryError if the answer outgrows its share of the free memory."""
    room, batches = ANSWER_SHARE * free_memory(), list["pa.RecordBatch"]()
    for batch in reader:
        room -= batch.nbytes
        if room < 0:
            raise QueryError(TOO_LARGE)
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def free_memory() -> int:
    """Bytes that a query may use: half of the free memory of the machine or of the container."""
    free: list[int] = []
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    with suppress(OSError, ValueError):  # no number means no limit
        limit, used = (
            int(Path("/sys/fs/cgroup", f"memory.{name}").read_text()) for name in ("max", "current")
        )
        free.append(limit - used)
    return max(LEAST_MEMORY, int(SHARE * min(free, default=2**31)))


@contextmanager
def spilling(connection: "duckdb.DuckDBPyConnection") -> Iterator[None]:
    """Limit the memory of a connection. Larger queries use a temporary folder, which is removed at the end.

    By itself DuckDB takes four fifths of the memory, and writes temporary files into the working directory.
    """
    connection.execute(f"SET memory_limit = '{free_memory() // 2**20}MiB'")
    with _folder() as folder:
        connection.execute(f"SET temp_directory = '{str(folder or '').replace(chr(39), chr(39) * 2)}'")
        if folder:
            room = int(SHARE * shutil.disk_usage(folder).free)
            connection.execute(f"SET max_temp_directory_size = '{room // 2**20}MiB'")
        yield


@contextmanager
def _folder() -> Generator[Path | None]:
    """A temporary folder; None on a machine whose disk takes no folder."""
    made = temporary_folder("query")
    try:
        folder = made.__enter__()
    except OSError:
        yield None
        return
    try:
        yield folder
    finally:
        made.__exit__(None, None, None)
