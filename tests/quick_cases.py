"""A few cases of a test for the gate, and all cases for `make slow`."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def quick(cases: Iterable[Any], first: int) -> list[Any]:
    """The cases for `parametrize`. All cases after the `first` are slow. A case of several arguments is a tuple."""
    listed = list(cases)
    return [*listed[:first], *map(_slow, listed[first:])]


def named(cases: Mapping[str, Any]) -> list[Any]:
    """One case for each entry, under the name of the entry. A case of several arguments is a tuple."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), id=name) for name, case in cases.items()
    ]


def _slow(case: Any) -> Any:
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
