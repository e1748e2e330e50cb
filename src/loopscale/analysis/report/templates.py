"""The templates and scripts of this package as texts. Importing this module loads neither figures nor results."""

from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from loopscale.core.visible import visible


def asset(name: str) -> str:
    """The text of a file of this package."""
    return files("loopscale.analysis.report").joinpath(name).read_text(encoding="utf-8")


def plotly_script() -> str:
    """Plotly's basic bundle."""
    return asset("plotly-basic.min.js")


def template_environment() -> jinja2.Environment:
    """The templates of this package, which escape every text."""
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )


def _printable(value: Any) -> Any:
    """Text without control characters, because a page may also be read in a terminal."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
