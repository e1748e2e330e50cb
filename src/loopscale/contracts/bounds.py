"""The contract of every bound: claim and source, a round trip, and extreme settings."""

import contextlib

import numpy as np
import pytest
from pydantic import ValidationError

from loopscale.contracts.members import under_test
from loopscale.theory.bounds.base import Bound
from loopscale.theory.statement import OTHER, SYSTEMS

EVERY = pytest.mark.parametrize("kind", under_test(Bound))


@EVERY
def test_every_bound_declares_claim_quantity_source_and_settings(kind: str):
    member = Bound.choices()[kind]
    assert member.claim in ("=", "~", "<=", ">=")
    assert isinstance(member.of, str)
    assert isinstance(member.source, str)
    systems = (*SYSTEMS, OTHER) if member.plugin else SYSTEMS
    assert member.system() in systems, f"{member.__module__} needs a constant SYSTEM"
    assert member.__doc__
    assert member.settings() == tuple(member.model_fields)


@EVERY
def test_a_bound_survives_a_round_trip_through_json(kind: str):
    default = Bound.model_validate({"kind": kind})
    assert Bound.model_validate(default.model_dump(mode="json")) == default


@EVERY
@pytest.mark.parametrize("size", [pytest.param(10**4, marks=pytest.mark.slow), 1e300, 1e-300])
def test_extreme_settings_give_a_value_or_a_violated_condition(kind: str, size: float):
    """No overflow: a report must not fail because of an extreme setting of a study."""
    # Left out: these settings are numbers of terms, so large values take too long.
    for setting in set(Bound.choices()[kind].settings()) - {"dim", "points", "nonzero"}:
        try:
            extreme = Bound.model_validate({"kind": kind, setting: size})
        except ValidationError:
            continue
        if (kind, size) != ("decoder_floor", 10**4):  # takes minutes
            with contextlib.suppress(ValueError), np.errstate(all="ignore"):
                assert isinstance(extreme.value(), float)
