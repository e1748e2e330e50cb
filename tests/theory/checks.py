"""Shared by the tests of bounds: values and slopes by kind, and comparisons with sample means."""

import math

import numpy as np
import pytest

from loopscale.theory.bounds.base import Bound


def bound(kind: str, **settings) -> Bound:
    return Bound.model_validate({"kind": kind} | settings)


def value(kind: str, **settings) -> float:
    return bound(kind, **settings).value()


def slope(kind: str, setting: str, over: tuple[float, float] | None = None, **settings) -> float:
    return bound(kind, **settings).slope(setting, over)


def assert_agrees(sample: np.ndarray, exact: float, within: float = 0.05) -> None:
    """The sample mean equals `exact` within 4 standard errors, and these are below the share `within` of `exact`."""
    sem = sample.std() / math.sqrt(len(sample))
    assert 4 * sem < within * exact, f"too few draws: 4 standard errors are {4 * sem / exact:.1%}"
    assert sample.mean() == pytest.approx(exact, abs=4 * sem)


def assert_refused(kind: str, settings: dict, condition: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} requires .*{condition}"):
        value(kind, **settings)
