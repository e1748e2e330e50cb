"""Cases of a test that are a mapping from names."""

from collections.abc import Mapping
from typing import Any

import pytest


def named(cases: Mapping[str, Any]) -> list[Any]:
    """One case for each entry, under the name of the entry. A case of several arguments is a tuple."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), id=name) for name, case in cases.items()
    ]
