"""What solvers of principal components read, and what guesses of eigenvectors are judged by.

An eigenvector has no sign, so none of the measures has. Their order is the eigenvalues', and counts: only
`unordered` gives each eigenvector the guess that suits them all best.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from loopscale.tasks.relabelling import naming


@dataclass(frozen=True)
class Eigenvectors:
    """Prompts whose leading eigenvectors of A = (1/N) Σ x x' are sought, as many as there are starts."""

    xs: Float[Tensor, "batch points dim"]
    starts: Float[Tensor, "batch k dim"]
    """What an iteration starts from: unit vectors, uniform on the sphere."""

    @property
    def covariance(self) -> Float[Tensor, "batch dim dim"]:
        """A, in the precision of the points."""
        return self.xs.mT @ self.xs / self.xs.shape[1]


def leading(matrix: Float64[Tensor, "batch dim dim"], components: int) -> Float64[Tensor, "batch k dim"]:
    """Unit eigenvectors of symmetric matrices, the largest eigenvalue's first, of whatever sign."""
    _, vectors = torch.linalg.eigh(matrix)
    return vectors.flip(-1).mT[:, :components]


def squared_distance(
    guess: Float[Tensor, "*steps batch k dim"], truth: Float[Tensor, "batch k dim"]
) -> Float[Tensor, "*steps batch k"]:
    """min |v^ - v|², |v^ + v|²: 0 for the eigenvector, 1 for no guess at all, 2 for a unit vector at right angles."""
    truth = truth.to(guess.dtype)
    side = torch.where((guess.detach() * truth).sum(-1, keepdim=True) < 0, -1, 1).to(guess.dtype)
    return (guess - side * truth).square().sum(-1)


def agreement(
    guess: Float[Tensor, "steps batch k dim"], truth: Float[Tensor, "batch k dim"]
) -> dict[str, Float[Tensor, "steps batch"]]:
    """`cosine_1` .. `cosine_k`, |cos| of the angle to each eigenvector, 0 for no guess; `unordered`, the error of the
    best order of the guesses; `subspace`, the part of the span of the k eigenvectors that the guesses miss.
    """
    guess, truth = guess.double(), truth.double()
    length = guess.norm(dim=-1, keepdim=True)
    unit = guess / torch.where(length > 0, length, 1)
    cosines = (unit * truth).sum(-1).abs()
    every = torch.stack(
        [squared_distance(guess, each[:, None].expand_as(truth)) for each in truth.unbind(1)], dim=-2
    )
    best = every.gather(-1, naming(every).unsqueeze(-1))[..., 0]
    named = {f"cosine_{n + 1}": each for n, each in enumerate(cosines.unbind(-1))}
    return named | {"unordered": best.mean(-1), "subspace": _missed(unit, truth)}


def _missed(
    unit: Float64[Tensor, "steps batch k dim"], truth: Float64[Tensor, "batch k dim"]
) -> Float64[Tensor, "steps batch"]:
    """1 - |P V'|² / k, P the projection on the span of the guesses."""
    _, sizes, right = torch.linalg.svd(unit.nan_to_num(0, 0, 0), full_matrices=False)
    basis = right * (sizes > 1e-9)[..., None]
    return 1 - (basis @ truth.mT).square().sum((-1, -2)) / truth.shape[-2]
