"""Dataclasses of texts and numbers as the rows of a CSV file."""

import csv
from collections.abc import Iterable
from dataclasses import fields
from io import StringIO
from typing import Any, TypeVar

DIGITS = 4

Row = TypeVar("Row")


def read_rows(kind: type[Row], text: str) -> list[Row]:
    """The rows of a CSV file. The names of its columns are the fields of `kind`."""
    types: dict[str, Any] = {field.name: field.type for field in fields(kind)}  # pyright: ignore[reportArgumentType]
    return [
        kind(**{name: types[name](value) for name, value in line.items()})
        for line in csv.DictReader(StringIO(text))
    ]


def write_rows(kind: type[Row], rows: Iterable[Row]) -> str:
    """A CSV file of the rows, with `DIGITS` digits after the point."""
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType]
    lines = StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = [getattr(row, name) for name in names]
        writer.writerow(round(value, DIGITS) if isinstance(value, float) else value for value in values)
    return lines.getvalue()
