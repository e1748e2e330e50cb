"""The contract of the models of the package (`loopscale.contracts.models`)."""

from loopscale.contracts.models import *  # noqa: F403
