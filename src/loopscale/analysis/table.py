"""Columns of the tables of answers. Each column is declared once, with the answer that the column belongs to.

The command line, the report and the notebooks print the same columns; `--json` uses the same names.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from loopscale.core.visible import visible

Row = TypeVar("Row")
MOST_ROWS = 200
"""A notebook shows a longer table as pandas does, with the first and the last rows."""


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
    """One column of a table."""

    names: tuple[str, ...]
    """The name in notebooks and in `--json`. An interval has two names, one for each end."""
    heading: str
    """The heading in the terminal and in the report."""
    value: Callable[[Row], Any]
    """The value of a row: a number, a text, an `Interval` or None."""
    unit: str = ""
    """The unit of the value, empty if the heading says enough."""
    leaves: bool = False
    """Whether a table in a narrow terminal may leave out the column. An interval leaves with the column before it."""

    detail: bool = False
    """Whether the report shows the column in a table of details."""

    @classmethod
    def attribute(
        cls, name: str, heading: str = "", unit: str = "", leaves: bool = False, detail: bool = False
    ) -> "Column[Any]":
        """A column that shows the attribute `name` of a row."""
        return cls((name,), heading or name, lambda row: getattr(row, name), unit, leaves, detail)

    @classmethod
    def interval(
        cls, low: str, high: str, heading: str = "95 % interval", leaves: bool = False
    ) -> "Column[Any]":
        """A column that shows the two attributes as one interval."""
        ends = lambda row: Interval.of(getattr(row, low), getattr(row, high))  # noqa: E731
        return cls((low, high), heading, ends, leaves=leaves)


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
    return StyledTable(table.set_index(names[0]).rename_axis(columns[0].heading))


class StyledTable(pd.DataFrame):
    """A table that a notebook shows with three digits, whole texts, and a dash for a missing value."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:  # selections and copies keep the style
        return StyledTable

    def _repr_html_(self) -> str | None:
        shown = pd.DataFrame(self.reset_index() if any(self.index.names) else self).astype(object)
        if len(shown) > MOST_ROWS:
            with pd.option_context("display.precision", 3, "display.max_colwidth", None):
                return super()._repr_html_()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
        with pd.option_context("display.max_colwidth", None):
            table = shown.map(_shown).to_html(index=not any(self.index.names), border=0, justify="left")
        return f'<div style="overflow-x: auto">{table}</div>'


class CaptionedTable(StyledTable):
    """A table that a notebook shows with sentences below. Selections and copies have no caption."""

    _metadata = ["caption"]

    def __init__(self, table: pd.DataFrame, sentences: Sequence[str]) -> None:
        super().__init__(table)  # pyright: ignore[reportCallIssue]: the stubs know no arguments of the constructor
        self.caption = " ".join(sentences)

    def _repr_html_(self) -> str | None:
        table = super()._repr_html_()
        return f"{table}<p>{escape(self.caption)}</p>" if table and self.caption else table


class Sentences(tuple[str, ...]):
    """Sentences that a notebook shows as paragraphs."""

    def __new__(cls, sentences: Iterable[str]) -> "Sentences":
        return super().__new__(cls, map(visible, sentences))

    def __repr__(self) -> str:
        return "\n".join(self)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(sentence)}</p>" for sentence in self)


def number(value: float | None) -> str:
    """A number with three digits."""
    if value is None or value != value:
        return "–"
    return "unbounded" if value in (float("inf"), float("-inf")) else f"{value:.3g}"


def _shown(value: Any) -> str:
    """A value of a cell: floats with three digits, or whole from 1,000 to a million."""
    if value is None or value is pd.NA or (isinstance(value, float | np.floating) and math.isnan(value)):
        return "–"
    if isinstance(value, float | np.floating):
        return f"{value:,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"
    if isinstance(value, tuple):
        return " .. ".join(dict.fromkeys(map(_shown, value)))  # the ends of a range, or one value
    return str(value)
