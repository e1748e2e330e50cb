"""What clustering solvers read: points, and for a Bayesian the mixture that they came from."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Clusters:
    """Prompts to cluster; all points of a prompt are seen at once.

    What follows `components` is the mixture, where there is one that somebody could know: point = centre of its
    component + noise, which the whitener makes isotropic and of variance 1.
    """

    xs: Float[Tensor, "batch points dim"]
    components: int
    """K."""
    centres: Float[Tensor, "batch K dim"] | None = None
    """`None` for tables, of which nobody knows a mixture."""
    whitener: Float[Tensor, "batch dim dim"] | None = None
    """W, with W'W the inverse of the noise's covariance; zero for coordinates that are not at work."""
    log_weights: Float[Tensor, "batch K"] | None = None
    at_work: int = 0
    """Coordinates that are at work."""
    tails: int | None = None
    """Degrees of freedom of the noise, Student's t; `None` for Gaussian noise."""


def standardised(problem: Clusters) -> Clusters:
    """The same prompts with mean 0 and a mean square of 1 per coordinate, the mixture changed alike."""
    mean = problem.xs.mean(1, keepdim=True)
    centred = problem.xs - mean
    size = centred.square().mean((1, 2), keepdim=True).sqrt()
    size = torch.where(size > 0, size, 1)
    return replace(
        problem,
        xs=centred / size,
        centres=None if problem.centres is None else (problem.centres - mean) / size,
        whitener=None if problem.whitener is None else problem.whitener * size,
    )
