"""The contract of the solvers of the package (`loopscale.contracts.solvers`)."""

from loopscale.contracts.solvers import *  # noqa: F403
