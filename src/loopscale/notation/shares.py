"""Shares in a study's file: a number, or text in percent such as `20%`."""

import math
from typing import Any

from pydantic import WithJsonSchema

_PERCENT = {"type": "string", "pattern": r"^[0-9]*\.?[0-9]+ ?%$"}
PERCENT = WithJsonSchema(_PERCENT)
"""A share in percent, for the schema of an editor."""
NUMBER_OR_PERCENT = WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, _PERCENT]})
"""A share as a number or in percent."""


def share_of(data: Any) -> float:
    """The share in a number or in percent; NaN for anything else."""
    if isinstance(data, str) and data.endswith("%"):
        try:
            return float(data.removesuffix("%")) / 100
        except ValueError:
            return math.nan
    return float(data) if type(data) in (int, float) else math.nan
