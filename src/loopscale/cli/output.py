"""The output of the verbs: tables and lines for people, JSON for programs."""

import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from loopscale.core.titles import plural as plural
from loopscale.core.visible import tell as tell
from loopscale.core.visible import visible
from loopscale.interface import types
from loopscale.redaction import redacted

_for_json: TextIO | None = None
"""Standard output, while everything but JSON goes to standard error."""
NOTHING = "–"
WIDE = 10_000
"""Columns of a table that goes to a file or a pipe: it is never cut."""
READABLE = 120
"""Columns of a table of sentences there."""
FOR_SENTENCES = 60
"""Fewest columns of a terminal for a table of sentences. In a narrower terminal every row becomes a paragraph."""
NARROWEST = 20
"""The first column of a table in parts is at least that wide, if its cells need the width."""


def say(text: str = "") -> None:
    """Print a line on standard output, without passwords."""
    print(visible(redacted(text)), flush=True)


def say_folded(text: str) -> None:
    """Print paragraphs. A terminal that is narrower than a paragraph gets lines that end between words.

    Elsewhere the lines stay as they are. An indented line is code, and is never folded.
    """
    if not sys.stdout.isatty():
        say(text)
        return
    width = shutil.get_terminal_size().columns
    for n, paragraph in enumerate(text.split("\n\n")):
        lines = paragraph.split("\n")
        if any(len(line) > width for line in lines) and not any(line.startswith(" ") for line in lines):
            lines = textwrap.wrap(" ".join(lines), width, break_long_words=False, break_on_hyphens=False)
        say(("\n" if n else "") + "\n".join(lines))


def show_verbatim(text: str) -> None:
    """Print a script or another document for programs, exactly as it is."""
    print(visible(text), flush=True)


def show_json(value: Any) -> None:
    """Print one JSON document. Numbers that are not finite become null, and bytes become hexadecimal digits."""
    stream = _for_json or sys.stdout
    text = visible(json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False))
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:  # the stream would write `?` for a letter, and JSON has escapes for letters
        text = visible(json.dumps(_plain(value), indent=1, allow_nan=False))
    print(text, file=stream, flush=True)


@contextmanager
def json_alone() -> Generator[None]:
    """Standard output receives JSON alone. Everything else that is printed goes to standard error.

    A task or a model of a plugin may print, and a program reads the JSON.
    """
    global _for_json
    _for_json = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _for_json = None


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    title: str = "",
    sentences: bool = False,
    leaving: Sequence[Sequence[int]] = (),
) -> None:
    """Print a table, numbers to the right and text to the left. A row of one cell is a heading of the rows below it.

    A terminal sets the width. Elsewhere a table of sentences has the width of `COLUMNS` in the environment, or a
    readable width. In a table of sentences long cells are folded, except in the first column. From another table that
    is wider than the terminal, columns leave until the rest fits, and a line names them. If the rest still does not
    fit, the table is printed in parts. Every part begins with the first column.

    Parameters
    ----------
    leaving
        Places of columns that leave together, in the order of leaving. A verb with leaving columns has `--wide`.
    """
    from rich.console import Console  # here, because JSON needs no rich

    rows = [list(row) for row in rows]
    asked = os.environ.get("COLUMNS", "")
    readable = (int(asked) if asked.isdecimal() else 0) or READABLE
    console = Console() if sys.stdout.isatty() else Console(width=readable if sentences else WIDE)
    everything = list(range(len(columns)))
    whole = _table(columns, rows, everything, title, sentences)
    if _width(whole, console) <= console.width:
        console.print(whole)
        return
    if sentences:
        if console.width < FOR_SENTENCES:
            _print_paragraphs(columns, rows, title, console)
        else:
            console.print(whole)
        return
    kept, left = everything, list[int]()
    for group in leaving:
        if _width(_table(columns, rows, kept, first=NARROWEST), console) <= console.width:
            break
        kept, left = [place for place in kept if place not in group], [*left, group[0]]
    least = _width(_table(columns, rows, kept, first=NARROWEST), console)
    if least <= console.width:
        console.print(_table(columns, rows, kept, title, first=NARROWEST + console.width - least))
    else:
        first = max(NARROWEST, console.width // 3)
        for n, part in enumerate(_parts(columns, rows, kept, console, first)):
            console.print(_table(columns, rows, part, "" if n else title, first=first))
    if left:
        names = ", ".join(columns[place] for place in sorted(left))
        say_folded(f"left out at {console.width} columns: {names}; --wide prints them")


def _print_paragraphs(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str, console: "types.Console"
) -> None:
    """A table of sentences, one paragraph for each row: first cell, named cells, sentence."""
    from rich.padding import Padding
    from rich.text import Text

    for heading in filter(None, [title]):
        console.print(Text(visible(heading)))
    for row in rows:
        console.print()
        style = "bold" if len(row) > 1 else "underline"  # of the heading of the rows below
        console.print(Text(format_value(row[0]).strip(), style=style))
        named = [
            f"{name}: {format_value(cell)}" for name, cell in zip(columns[1:-1], row[1:-1], strict=False)
        ]
        for text in [*named, *map(format_value, row[1:][-1:])]:
            console.print(Padding(Text(text), (0, 0, 0, 2)))
    console.print()


def _parts(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    shown: Sequence[int],
    console: "types.Console",
    first: int,
) -> list[list[int]]:
    """The shown columns of each part of a table, so that every part fits the terminal."""
    parts = [[0]]
    for column in shown[1:]:
        longer = [*parts[-1], column]
        fits = _width(_table(columns, rows, longer, first=first), console) <= console.width
        if fits or len(parts[-1]) == 1:
            parts[-1] = longer
        else:
            parts.append([0, column])
    return parts


def _width(table: "types.RichTable", console: "types.Console") -> int:
    """The columns of a terminal that a table needs to fold no cell."""
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(max_width=WIDE), table).maximum


def _table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    shown: Sequence[int],
    title: str = "",
    sentences: bool = False,
    first: int | None = None,
) -> "types.RichTable":
    """The shown columns of a table. `first` is the largest width of the first column."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    heading = Text(visible(title)) if title else None
    table = Table(box=box.SIMPLE_HEAD, title=heading, title_justify="left", pad_edge=False)
    for n in shown:
        values = [row[n] for row in rows if len(row) > 1 and row[n] is not None]
        numeric = bool(values) and all(
            isinstance(value, int | float) and value is not True for value in values
        )
        side, never_cut = "right" if numeric else "left", sentences and n == 0
        table.add_column(
            Text(visible(columns[n])),
            justify=side,
            overflow="fold",
            no_wrap=never_cut,
            max_width=None if n else first,
        )
    for row in rows:
        if len(row) == 1 < len(columns):
            table.add_section()
        table.add_row(*(Text(format_value(row[n])) for n in shown if n < len(row)))
    return table


def show_answers(
    columns: "Sequence[types.Column[types.Row]]", rows: "Iterable[types.Row]", wide: bool = False
) -> None:
    """Print a table of answers by its declared columns, without the columns in which no answer has a value.

    With `wide`, no column leaves a narrow terminal.
    """
    from loopscale.analysis.table import cells, headings

    table = [cells(columns, row) for row in rows]
    filled = [n for n in range(len(columns)) if not table or any(row[n] is not None for row in table)]
    shown = [columns[n] for n in filled]
    show_table(
        headings(shown), ([row[n] for n in filled] for row in table), leaving=() if wide else _leaving(shown)
    )


def _leaving(columns: "Sequence[types.Column[Any]]") -> list[list[int]]:
    """The places of columns that may leave, from right to left. An interval leaves with the column before it."""
    groups = list[list[int]]()
    for place, column in enumerate(columns):
        if column.leaves:
            joins = len(column.names) == 2 and bool(groups) and groups[-1][-1] == place - 1
            groups[-1].append(place) if joins else groups.append([place])
    return groups[::-1]


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
    """`12.5 s`, `7 min`, `3 h 20 min`, `2.5 days`. A damaged record may hold any number."""
    if seconds < 60 or not math.isfinite(seconds):
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{round(hours / 24, 1):.8g} days"


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
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Path):
        return str(value)
    return value if value is None or isinstance(value, str | int | bool) else str(value)
