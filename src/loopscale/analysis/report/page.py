"""Self-contained pages: a filled template, figures as data, and one copy of plotly.

A page loads nothing from the network. Plotly's basic bundle (1.2 MB, MIT, with its licence) is in this package.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jinja2
import plotly.graph_objects as go
from markupsafe import Markup

from loopscale.analysis.figures.base import Drawing
from loopscale.analysis.figures.panels import finished, shows_values
from loopscale.analysis.report.templates import plotly_script, template_environment
from loopscale.analysis.table import Column, number

LONG = 40
"""A text of more characters gets a wider cell."""
NEVER_WRAPPED = 24
"""A column without a longer text never wraps."""


def render(template: str, figures: Sequence[Drawing], **values: Any) -> str:
    """The page made from a template of this package. Figures without data are left out."""
    figures = [drawn for drawn in figures if shows_values(drawn.figure)]
    plotly = Markup(plotly_script().replace("</script", "<\\/script")) if figures else ""
    return _environment().get_template(template).render(figures=figures, plotly=plotly, data=_data, **values)


def _data(figure: go.Figure) -> Markup:
    """The figure as readers see it, as JSON that can stand in a script."""
    return Markup((finished(figure).to_json() or "").replace("<", "\\u003c"))


def duration(seconds: float | None) -> str:
    """A length of time in the largest suitable unit."""
    if seconds is None:
        return "–"
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size * (2 if unit == "days" else 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def text(value: Any) -> Any:
    """A value as a page shows it: texts and mappings unchanged, anything else as JSON."""
    return value if isinstance(value, str | Mapping) else json.dumps(value, indent=1, default=str)


def _cell(row: Any, column: Column[Any]) -> str:
    """The text of a table's cell."""
    return _text(column.value(row), column.unit)


def _text(value: Any, unit: str) -> str:
    if isinstance(value, tuple):
        low, high = (_text(end, unit) for end in value)
        return low if low == high else f"{low} to {high}"
    if unit == "s":
        return duration(value)
    if isinstance(value, float):
        return number(value)
    return "–" if value is None else str(value)


def _is_numeric(column: Column[Any], rows: Sequence[Any]) -> bool:
    values = [value for row in rows if (value := column.value(row)) is not None]
    return bool(values) and all(isinstance(value, int | float | tuple) for value in values)


def _is_long(row: Any, column: Column[Any]) -> bool:
    return len(_cell(row, column)) > LONG


def _is_short_in(column: Column[Any], rows: Sequence[Any]) -> bool:
    return all(len(_cell(row, column)) <= NEVER_WRAPPED for row in rows)


@cache
def _environment() -> jinja2.Environment:
    environment = template_environment()
    environment.filters |= {"figure": number, "cell": _cell, "is_long": _is_long}
    environment.tests |= {"is_numeric": _is_numeric, "short_in": _is_short_in}
    return environment
