"""What the tests of bounds share: a value by name, and means of samples held against it."""

import math

import numpy as np
import pytest

from loopscale.theory.bounds.base import Bound


def value(kind: str, **settings) -> float:
    return Bound.model_validate({"kind": kind} | settings).value()


def slope(kind: str, setting: str, over: tuple[float, float] | None = None, **settings) -> float:
    return Bound.model_validate({"kind": kind} | settings).slope(setting, over)


def assert_agrees(sample: np.ndarray, exact: float, within: float = 0.05) -> None:
    """The mean is `exact` to 4 standard errors, which are fine enough to see a difference of `within`."""
    sem = sample.std() / math.sqrt(len(sample))
    assert 4 * sem < within * exact, f"too few draws: 4 standard errors are {4 * sem / exact:.1%}"
    assert sample.mean() == pytest.approx(exact, abs=4 * sem)


def assert_refused(kind: str, settings: dict, condition: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} requires .*{condition}"):
        value(kind, **settings)
