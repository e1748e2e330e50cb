"""The contract of the optimizers of the package (`loopscale.contracts.optimizers`)."""

from loopscale.contracts.optimizers import *  # noqa: F403
