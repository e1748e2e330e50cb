"""The contract of the tasks of the package (`loopscale.contracts.tasks`)."""

from loopscale.contracts.tasks import *  # noqa: F403
