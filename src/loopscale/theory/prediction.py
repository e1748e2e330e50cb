"""The course that a bound predicts for a measure along an axis."""

from collections.abc import Mapping, Sequence
from typing import Any

from loopscale.theory.bounds.base import Bound

ALIASES = {"loop": ("loops", "steps"), "point": ("point", "points"), "prompts": ("prompts", "steps")}
"""The names that a bound may use for axes that are no settings."""
SQUARED = ("error", "error_last", "raw_error", "excess", "regret", "regret_last")
"""Measures that are means of squares."""


def predict(
    theory: str | Mapping[str, Any], settings: Mapping[str, Any], along: str, x: Sequence[float], of: str
) -> list[float]:
    """The bound's value at each x of an axis, in a trial of these settings.

    A residual is a norm: what an iteration leaves of the slowest direction. It is squared if `of` is a squared error.

    Parameters
    ----------
    theory
        A bound's kind, or a mapping with `kind` and settings.
    settings
        The settings of the trial, by dotted path.

    Raises
    ------
    ValueError
        For an unknown bound, a setting out of its domain, or an axis on which the bound does not depend.
    """
    given = {"kind": theory} if isinstance(theory, str) else dict(theory)
    kind, rest = str(given.pop("kind")), given
    fields = Bound.choices()[kind].settings() if kind in Bound.choices() else ()
    name = along.rsplit(".", 1)[-1]
    axis = next((field for field in (name, *ALIASES.get(name, ())) if field in fields), None)
    if fields and axis is None:
        raise ValueError(f"{kind} does not depend on {along}; it has {', '.join(fields)}")
    places = [int(value) if float(value).is_integer() else value for value in x]
    others = {path: value for path, value in settings.items() if path.rpartition(".")[2] != axis}
    if name == "prompts" and axis == "steps" and "batch_size" in fields:
        rest = rest | {"batch_size": 1}  # prompts are counted as steps of one prompt each
    bound = Bound.fill(kind, rest | ({axis: places[0]} if axis else {}), others)
    power = 2 if bound.of == "residual" and of in SQUARED else 1
    return [float(value) ** power for value in bound.along(str(axis), places)]
