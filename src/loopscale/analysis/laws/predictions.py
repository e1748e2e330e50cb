"""What a bound predicts along an axis, its unset settings filled from the trial by name."""

from collections.abc import Mapping, Sequence
from typing import Any

ALIASES = {"loop": ("loops", "steps"), "point": ("point", "points"), "prompts": ("prompts", "steps")}
"""What axes that are no settings are called among those of a bound."""


def comparable(kind: str, of: str, along: str) -> bool:
    """Whether the bound `kind` gives what was measured, and not its shape alone."""
    from loopscale.theory.bounds.base import Bound

    bound = Bound.choices()[kind]
    measured = f"{of} at a point" if along == "point" else of
    return bound.of == measured and not bound.hidden_constant


SQUARED = ("error", "error_last", "raw_error", "excess")
"""Measures that are means of squares."""


def predict(
    theory: str | Mapping[str, Any], settings: Mapping[str, Any], along: str, x: Sequence[float], of: str
) -> list[float]:
    """The bound's value at each x of the axis `along`, in a trial of these settings (by dotted path).

    A residual is a norm, of what an iteration leaves of the slowest direction; it is squared where squared errors are
    measured (`of`).
    Raises ValueError for an unknown bound, a setting out of its domain, and an axis that it has not got.
    """
    from loopscale.theory.bounds.base import Bound  # torch comes with it: only a study that tests a law pays

    given = {"kind": theory} if isinstance(theory, str) else dict(theory)
    kind, rest = str(given.pop("kind")), given
    fields = Bound.choices()[kind].settings() if kind in Bound.choices() else ()
    name = along.rsplit(".", 1)[-1]
    axis = next((field for field in (name, *ALIASES.get(name, ())) if field in fields), None)
    if fields and axis is None:
        raise ValueError(f"{kind} does not depend on {along}; it has {', '.join(fields)}")
    whole = [int(value) if float(value).is_integer() else value for value in x]
    others = {path: value for path, value in settings.items() if path.rpartition(".")[2] != axis}
    if (
        name == "prompts" and axis == "steps" and "batch_size" in fields
    ):  # prompts are steps of one prompt each
        rest = rest | {"batch_size": 1}
    bound = Bound.fill(kind, rest | ({axis: whole[0]} if axis else {}), others)
    power = 2 if bound.of == "residual" and of in SQUARED else 1
    return [float(value) ** power for value in bound.along(str(axis), whole)]
