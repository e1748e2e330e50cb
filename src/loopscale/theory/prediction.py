"""The course that a bound predicts for a measure along an axis, and the bounds that know an axis."""

from collections.abc import Mapping, Sequence
from typing import Any

from loopscale.theory.bounds.base import Bound
from loopscale.theory.bounds.linear_regression import LinearExcess

ALIASES = {
    "loop": ("loops", "steps"),
    "point": ("point", "points"),
    "prompts": ("prompts", "steps"),
    "pool": ("prompts",),
}
"""The names that a bound may use for axes that are no settings."""
SQUARED = ("error", "error_last", "raw_error", "excess", "regret", "regret_last")
"""Measures that are means of squares."""
NO_ERRORS = frozenset(
    {
        "agreement",
        "coefficient",
        "distance",
        "gap",
        "generalisation gap",
        "layers",
        "moment",
        "probability",
        "prompts",
        "regret",
        "steps",
        "threshold",
    }
)
"""Quantities of bounds that are no error of a prediction or an estimate."""


def predict(
    theory: str | Mapping[str, Any], settings: Mapping[str, Any], along: str, x: Sequence[float], of: str
) -> list[float]:
    """The bound's value at each x of an axis, in a trial of these settings.

    A residual is a norm: what an iteration leaves of the slowest direction. It is squared if `of` is a squared error.
    The regret of the last query is a share of the target's variance, and so is the excess that a bound gives for it.

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
    member = Bound.member(kind)
    fields = member.settings() if member else ()
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
    bounds = [bound.at(**{str(axis): place}) for place in places]
    shares = along != "point" and is_regret_of_last_query(type(bound), of)
    variances = [
        each.target_variance if shares and isinstance(each, LinearExcess) else 1.0 for each in bounds
    ]
    return [float(each.value()) ** power / var for each, var in zip(bounds, variances, strict=True)]


def missing_theory(along: str) -> str:
    """That no bound gives an error along an axis, and the quantities of the bounds that know it. Otherwise empty."""
    name = along.rsplit(".", 1)[-1]
    names = {name, *ALIASES.get(name, ())}
    known = {kind: bound.of for kind, bound in Bound.choices().items() if names & set(bound.settings())}
    if not set(known.values()) <= NO_ERRORS:
        return ""
    if not known:
        return f"no theorem of the package knows {along}"
    given = ", ".join(f"{kind} ({quantity})" for kind, quantity in known.items())
    return f"no theorem of the package gives an error along {along}; these give another quantity: {given}"


def is_regret_of_last_query(bound: type[Bound], of: str) -> bool:
    """True if the bound's value over the target's variance is the measure: the regret of the last query."""
    return of == "regret_last" and bound.of == "excess at a point" and issubclass(bound, LinearExcess)
