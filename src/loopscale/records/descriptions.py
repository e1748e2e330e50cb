"""The form of a study's recorded description, the artifact study.json."""

import json
from collections.abc import Mapping
from typing import Any

DESCRIPTION_PARTS = {
    "question": str,
    "source": str,
    "cells": list,
    "search": dict,
    "scheduler": dict,
    "laws": list,
    "claims": list,
    "baselines": list,
    "evaluate": dict,
    "nuisance": dict,
    "replicates": int,
    "planned": int,
    "plan": list,
    "predictions": dict,
    "decisions": dict,
    "until": dict,
    "plugins": list,
}
"""The parts of a study's description that may be present, with their types."""
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Exceptions for a description that no driver has written."""


def parse_description(text: str | bytes) -> dict[str, Any]:
    """The description. Raises one of `DAMAGE` unless the text has the form that `Study.document` writes."""
    description = json.loads(text)
    if not isinstance(description, dict):
        raise ValueError("it is no JSON object")
    for part, kind in DESCRIPTION_PARTS.items():
        if not isinstance(description.get(part) or kind(), kind):
            raise ValueError(f"`{part}` has the wrong type")
    if "cells" not in description:
        raise ValueError("`cells` is missing")
    _check_cells(description)
    return description


def _check_cells(description: Mapping[str, Any]) -> None:
    for cell in description["cells"]:
        if not (isinstance(cell["key"], str) and isinstance(cell["label"], str) and cell["values"].items):
            raise ValueError("`cells` has the wrong form")
    for cell in description.get("plan") or []:
        amounts = (cell["tuning"], cell["replicates"], cell["trained_share"], *cell["flops"])
        numeric = all(isinstance(amount, int | float) for amount in amounts)
        if len(amounts) != 5 or not numeric or not cell["key"]:
            raise ValueError("`plan` has the wrong form")
