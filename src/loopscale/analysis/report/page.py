"""Pages that stand alone: a template filled in, figures as data, and plotly inlined once.

Nothing is loaded from anywhere: plotly's basic bundle (1.2 MB, MIT, its licence beside it) is vendored.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
import plotly.graph_objects as go
from markupsafe import Markup

from loopscale.analysis.answers.findings import number
from loopscale.analysis.figures.style import ticked
from loopscale.core.visible import visible


@dataclass(frozen=True)
class Figure:
    """`text` is what the figure shows in words, for who cannot see it, and its caption.

    `name` is its identifier in the page: letters and digits.
    """

    title: str
    text: str
    name: str
    drawing: go.Figure

    @property
    def json(self) -> Markup:
        return Markup((ticked(self.drawing).to_json() or "").replace("<", "\\u003c"))


def render(template: str, figures: Sequence[Figure], **values: Any) -> str:
    """The page that a template of this package makes, with those of the figures that show anything."""
    drawn = [figure for figure in figures if figure.drawing.data]
    plotly = Markup(_asset("plotly-basic.min.js").replace("</script", "<\\/script")) if drawn else ""
    return _environment().get_template(template).render(figures=drawn, plotly=plotly, **values)


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {"figure": number, "time": duration, "span": span}
    made.filters["spantime"] = lambda ends: span(ends, duration)
    return made


def duration(seconds: float | None) -> str:
    """A length of time as a person says it."""
    if seconds is None:
        return "–"
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size * (2 if unit == "days" else 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def span(ends: tuple[float, float] | None, shown: Any = number) -> str:
    """From the one to the other, once where they are the same."""
    if ends is None:
        return "–"
    low, high = (shown(end) for end in ends)
    return low if low == high else f"{low} to {high}"


def text(value: Any) -> Any:
    """As a page shows it: words and tables as they are, all else as JSON."""
    return value if isinstance(value, str | Mapping) else json.dumps(value, indent=1, default=str)


def _shown(value: Any) -> Any:
    """Text without control characters: a page may be looked at in a terminal too."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _asset(name: str) -> str:
    return files("loopscale.analysis.report").joinpath(name).read_text(encoding="utf-8")
