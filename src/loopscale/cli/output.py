"""What goes to standard output: tables for people, JSON for programs."""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from loopscale.core.visible import visible

NOTHING = "–"
WIDE = 10_000
"""Columns where nobody watches: a table that goes to a file or a pipe is never cut."""
READABLE = 120
"""Columns there of a table of sentences, which nobody cuts up by lines."""


def say(text: str = "") -> None:
    """A line for people."""
    print(visible(text), flush=True)


def tell(text: str) -> None:
    """A line beside the output: progress and warnings."""
    print(visible(text), file=sys.stderr, flush=True)


def show_json(value: Any) -> None:
    """One JSON document. What is not finite is null, since JSON has no word for it."""
    print(visible(json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False)), flush=True)


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "", width: int = WIDE
) -> None:
    """Numbers to the right, text to the left; as wide as the terminal is, elsewhere no wider than `width`.

    What is wider is broken into lines, and nothing is left out. `COLUMNS` in the environment is a width of one's own
    for tables that are broken.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    table = Table(
        box=box.SIMPLE_HEAD,
        title=Text(visible(title)) if title else None,
        title_justify="left",
        pad_edge=False,
    )
    for n, name in enumerate(columns):
        values = [row[n] for row in rows if row[n] is not None]
        numeric = bool(values) and all(
            isinstance(value, int | float) and value is not True for value in values
        )
        table.add_column(Text(visible(name)), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(value)) for value in row))
    if width < WIDE and (asked := os.environ.get("COLUMNS", "")).isdecimal():
        width = int(asked) or width
    console = Console() if sys.stdout.isatty() else Console(width=width)
    console.print(table)


def shown(value: Any) -> str:
    """A value as a table has it."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.4g}"
    return visible(str(value))


def interval(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"{low:.4g} .. {high:.4g}"


def clock(seconds: float) -> str:
    """A length of time as a person says it."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours / 24:.1f} days"


def size(count: float) -> str:
    """Bytes as a person says them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def counted(number: int, noun: str) -> str:
    """1 trial, 2 trials."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _plain(value: Any) -> Any:
    """As JSON has it. Floats stay floats: what reads it need not guess."""
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
