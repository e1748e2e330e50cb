"""The contract of the kinds of clusters of the package (`loopscale.contracts.clusters`)."""

from loopscale.contracts.clusters import *  # noqa: F403
