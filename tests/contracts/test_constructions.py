"""The contract of the constructions of the package (`loopscale.contracts.constructions`)."""

from loopscale.contracts.constructions import *  # noqa: F403
