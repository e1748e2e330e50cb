"""Columns of the tables of answers. Each column is declared once, with the answer that the column belongs to.

The command line, the report and the notebooks print the same columns; `--json` uses the same names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import pandas as pd

Row = TypeVar("Row")


class Interval(NamedTuple):
    """The ends of a 95 % interval."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.4g} .. {self.high:.4g}"

    @classmethod
    def of(cls, low: float | None, high: float | None) -> "Interval | None":
        return None if low is None or high is None else cls(low, high)


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table.

    Attributes
    ----------
    names
        The name in notebooks and in `--json`. An interval has two names, one for each end.
    heading
        The heading in the terminal and in the report.
    value
        The value of a row: a number, a text, an `Interval` or None.
    unit
        The unit of the value, empty if the heading says enough.
    """

    names: tuple[str, ...]
    heading: str
    value: Callable[[Row], Any]
    unit: str = ""

    @classmethod
    def attribute(cls, name: str, heading: str = "", unit: str = "") -> "Column[Any]":
        """A column that shows the attribute `name` of a row."""
        return cls((name,), heading or name, lambda row: getattr(row, name), unit)

    @classmethod
    def interval(cls, low: str, high: str, heading: str = "95 % interval") -> "Column[Any]":
        """A column that shows the two attributes as one interval."""
        return cls((low, high), heading, lambda row: Interval.of(getattr(row, low), getattr(row, high)))


def headings(columns: Sequence[Column[Row]]) -> list[str]:
    return [column.heading for column in columns]


def cells(columns: Sequence[Column[Row]], row: Row) -> list[Any]:
    """The values of a row for readers, one for each heading."""
    return [column.value(row) for column in columns]


def frame(
    columns: Sequence[Column[Row]], rows: Iterable[Row], others: Iterable[Mapping[str, Any]] = ()
) -> pd.DataFrame:
    """The table of a notebook, indexed by its first column. Both ends of an interval have their own column.

    Parameters
    ----------
    others
        Further rows as values by name, for which some columns have no value.
    """
    records = []
    for row in rows:
        record: dict[str, Any] = {}
        for column in columns:
            value = column.value(row)
            parts = (value,) if len(column.names) == 1 else value or (None,) * len(column.names)
            record |= zip(column.names, parts, strict=True)
        records.append(record)
    names = [name for column in columns for name in column.names]
    table = pd.DataFrame([*records, *others], columns=names)
    return table.set_index(names[0]).rename_axis(columns[0].heading)
