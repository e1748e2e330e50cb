"""The problem that solvers of principal components read, and measures for estimated eigenvectors.

An eigenvector has no sign, so all measures ignore the sign. The order of the estimates is the order of the
eigenvalues. Only `unordered` matches estimates to eigenvectors in the best order.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from loopscale.tasks.relabelling import naming


@dataclass(frozen=True)
class Eigenvectors:
    """Prompts. The task is to find the k leading eigenvectors of A = (1/N) Σ x x'."""

    xs: Float[Tensor, "batch points dim"]
    starts: Float[Tensor, "batch k dim"]
    """Start vectors of iterative solvers: unit vectors, uniform on the sphere."""

    @property
    def covariance(self) -> Float[Tensor, "batch dim dim"]:
        """A, in the precision of the points."""
        return self.xs.mT @ self.xs / self.xs.shape[1]


def leading(matrix: Float64[Tensor, "batch dim dim"], components: int) -> Float64[Tensor, "batch k dim"]:
    """Unit eigenvectors of symmetric matrices, largest eigenvalue first, with arbitrary sign."""
    _, vectors = torch.linalg.eigh(matrix)
    return vectors.flip(-1).mT[:, :components]


def squared_distance(
    guess: Float[Tensor, "*steps batch k dim"], truth: Float[Tensor, "batch k dim"]
) -> Float[Tensor, "*steps batch k"]:
    """min(|v^ - v|², |v^ + v|²): 0 for the eigenvector, 1 for a zero estimate, 2 for an orthogonal unit vector."""
    truth = truth.to(guess.dtype)
    sign = torch.where((guess.detach() * truth).sum(-1, keepdim=True) < 0, -1, 1).to(guess.dtype)
    return (guess - sign * truth).square().sum(-1)


def mean_cosine(dim: int) -> float:
    """The mean of |cos| of the angle between an axis and a uniform unit vector.

    A fixed guess v of this length has the least mean squared distance up to sign: 1 - |v|².
    """
    return math.exp(math.lgamma(dim / 2) - math.lgamma((dim + 1) / 2)) / math.sqrt(math.pi)


def vector_agreement(
    guess: Float[Tensor, "steps batch k dim"], truth: Float[Tensor, "batch k dim"]
) -> dict[str, Float[Tensor, "steps batch"]]:
    """Measures of k estimated eigenvectors.

    `cosine_1` .. `cosine_k`: |cos| of the angle to each eigenvector, 0 for a zero estimate. `unordered`: the error in
    the best order of the estimates. `subspace`: the share of the span of the k eigenvectors that the estimates miss.
    """
    guess, truth = guess.double(), truth.double()
    length = guess.norm(dim=-1, keepdim=True)
    unit = guess / torch.where(length > 0, length, 1)
    cosines = (unit * truth).sum(-1).abs()
    distances = torch.stack(
        [squared_distance(guess, vector[:, None].expand_as(truth)) for vector in truth.unbind(1)], dim=-2
    )
    best = distances.gather(-1, naming(distances).unsqueeze(-1))[..., 0]
    by_rank = {f"cosine_{n + 1}": cosine for n, cosine in enumerate(cosines.unbind(-1))}
    return by_rank | {"unordered": best.mean(-1), "subspace": _missed(unit, truth)}


def _missed(
    unit: Float64[Tensor, "steps batch k dim"], truth: Float64[Tensor, "batch k dim"]
) -> Float64[Tensor, "steps batch"]:
    """1 - |P V'|² / k, where P projects on the span of the estimates."""
    _, sizes, right = torch.linalg.svd(unit.nan_to_num(0, 0, 0), full_matrices=False)
    basis = right * (sizes > 1e-9)[..., None]
    return 1 - (basis @ truth.mT).square().sum((-1, -2)) / truth.shape[-2]
