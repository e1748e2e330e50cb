"""The problem that clustering solvers read: points, and the true mixture for Bayesian solvers."""

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from loopscale.tasks.point_clouds import mean_and_size


@dataclass(frozen=True)
class Clusters:
    """Prompts to cluster. Solvers see all points of a prompt at once.

    The fields after `components` describe the true mixture, if the mixture is known. A point is the centre of its
    component plus noise.
    """

    xs: Float[Tensor, "batch points dim"]
    components: int
    """K."""
    centres: Float[Tensor, "batch K dim"] | None = None
    """`None` for tables, because their mixture is unknown."""
    whitener: Float[Tensor, "batch dim dim"] | None = None
    """W, where W'W is the inverse of the noise covariance. Zero for unused coordinates."""
    log_weights: Float[Tensor, "batch K"] | None = None
    at_work: int = 0
    """Number of coordinates that can be non-zero."""
    tails: int | None = None
    """Degrees of freedom of Student's t noise; `None` for Gaussian noise."""


def standardised(problem: Clusters) -> Clusters:
    """The prompts, shifted and scaled to mean 0 and mean square 1 per coordinate, together with the mixture."""
    mean, size = mean_and_size(problem.xs)
    return replace(
        problem,
        xs=(problem.xs - mean) / size,
        centres=None if problem.centres is None else (problem.centres - mean) / size,
        whitener=None if problem.whitener is None else problem.whitener * size,
    )
