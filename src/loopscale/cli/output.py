"""The output of the verbs: tables and lines for people, JSON for programs."""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopscale.core.visible import visible

if TYPE_CHECKING:  # see loopscale.cli
    from loopscale.analysis.table import Column, Row

NOTHING = "–"
WIDE = 10_000
"""Columns of a table that goes to a file or a pipe: it is never cut."""
READABLE = 120
"""Columns of a table of sentences there."""


def say(text: str = "") -> None:
    """Print a line on standard output."""
    print(visible(text), flush=True)


def tell(text: str) -> None:
    """Print a line of progress or a warning on standard error."""
    print(visible(text), file=sys.stderr, flush=True)


def show_json(value: Any) -> None:
    """Print one JSON document. Numbers that are not finite become null."""
    print(visible(json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False)), flush=True)


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "", sentences: bool = False
) -> None:
    """Print a table, numbers to the right and text to the left. A row of one cell is a heading of the rows below it.

    A terminal sets the width. Elsewhere a table of sentences has the width of `COLUMNS` in the environment, or a
    readable width. Longer cells are folded, except in the first column, and nothing is left out.
    """
    from rich import box  # here, because JSON needs no rich
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    heading = Text(visible(title)) if title else None
    table = Table(box=box.SIMPLE_HEAD, title=heading, title_justify="left", pad_edge=False)
    for n, name in enumerate(columns):
        values = [row[n] for row in rows if len(row) > 1 and row[n] is not None]
        numeric = bool(values) and all(
            isinstance(value, int | float) and value is not True for value in values
        )
        side, never_cut = "right" if numeric else "left", sentences and n == 0
        table.add_column(Text(visible(name)), justify=side, overflow="fold", no_wrap=never_cut)
    for row in rows:
        if len(row) == 1 < len(columns):
            table.add_section()
        table.add_row(*(Text(format_value(value)) for value in row))
    asked = os.environ.get("COLUMNS", "")
    readable = (int(asked) if asked.isdecimal() else 0) or READABLE
    console = Console() if sys.stdout.isatty() else Console(width=readable if sentences else WIDE)
    console.print(table)


def show_answers(columns: "Sequence[Column[Row]]", rows: "Iterable[Row]") -> None:
    """Print a table of answers by its declared columns."""
    from loopscale.analysis.table import cells, headings

    show_table(headings(columns), (cells(columns, row) for row in rows))


def format_value(value: Any) -> str:
    """A value in a table."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.4g}"
    return visible(str(value))


def format_duration(seconds: float) -> str:
    """`12.5 s`, `7 min`, `3 h 20 min`, `2.5 days`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours / 24:.1f} days"


def format_bytes(count: float) -> str:
    """`512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def format_outcomes(counts: Mapping[str, int]) -> str:
    """`7 finished, 1 out of memory`."""
    return ", ".join(f"{number:,} {outcome.replace('_', ' ')}" for outcome, number in counts.items())


def first_few(items: Sequence[str], most: int = 3, separator: str = ", ") -> str:
    """The first `most` items, and `...` if there are more."""
    return separator.join([*items[:most], *(["..."] if len(items) > most else [])])


def plural(number: int, noun: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _plain(value: Any) -> Any:
    """A value of JSON's types. Floats stay floats, so that a reader need not guess the type."""
    if hasattr(value, "item") and not isinstance(value, Mapping):  # numpy's numbers, without importing numpy
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    return value if value is None or isinstance(value, str | int | bool) else str(value)
