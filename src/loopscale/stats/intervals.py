"""The noise of single runs, learnt from all groups of replicates together, and Student's t.

Two or three replicates say almost nothing about their own variance. The cells of a study are trained alike, so their
noise is pooled. Logarithms are used because errors are positive and their noise is relative. If the noises of the
cells differ, the average over cells is right, and the interval of the noisiest cell is too narrow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, stdtr, stdtrit  # pyright: ignore[reportMissingTypeStubs]: scipy has no stubs

Array = NDArray[np.float64]
LEVEL = 0.95
"""The level of all intervals: the share that covers the truth."""
DOUBT = 0.01
"""The level of the F test by which a scatter exceeds the noise of the replicates."""
LEAST_VARIANCE = 1e-16
"""Noise below this is rounding."""


@dataclass(frozen=True)
class PooledVariance:
    """The variance of one observation, and the degrees of freedom behind it."""

    variance: float
    freedom: int

    def half_width(self, count: int) -> float:
        """Half the 95 % interval of a mean over `count` observations."""
        return student(self.freedom) * float(np.sqrt(self.variance / count))

    def plainly_exceeds(self, noise: "PooledVariance") -> bool:
        """True if an F test at level `DOUBT` tells this variance from the noise."""
        ratio = self.variance / max(noise.variance, LEAST_VARIANCE)
        return bool(fdtrc(self.freedom, noise.freedom, ratio) < DOUBT)


def student(freedom: int | float, level: float = LEVEL) -> float:
    """Half the width of Student's two-sided interval, in standard errors."""
    return float(stdtrit(freedom, (1 + level) / 2))


def student_p(t: float, freedom: int | float) -> float:
    """The two-sided p-value of Student's t."""
    return 2 * float(stdtr(freedom, -abs(t)))


def pool(groups: Sequence[Array]) -> PooledVariance | None:
    """The variance about the groups' own means; None if no group has two observations."""
    freedom = sum(len(group) - 1 for group in groups if len(group))
    if freedom < 1:
        return None
    square = sum(float(np.sum((group - group.mean()) ** 2)) for group in groups if len(group))
    return PooledVariance(square / freedom, freedom)
