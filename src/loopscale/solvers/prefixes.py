"""Least squares on every prefix of every prompt at once, in the basis where it falls into scalar problems.

With S = X'X over the pairs that a query has seen, every method in `regression.py` has iterates M X'y where
M is a function of S (for conjugate gradients, of S and y). In the eigenbasis of S such a method is a scalar
recursion for each eigenvalue: one eigendecomposition, and no product of matrices after it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

AT_ONCE = 2**23
"""Entries of a stack of S's, 64 MiB: so many prompts are taken at a time that it stays below."""


@dataclass(frozen=True)
class Prefixes:
    """A regression before each of its queries, in coordinates that belong to the query. float64.

    Directions that the pairs seen do not span have eigenvalue and moment 0, exactly: rounding leaves about
    1e-15 of the largest eigenvalue there, which an iteration that divides by eigenvalues, or doubles them,
    would blow up.
    """

    eigenvalues: Float[Tensor, "batch points width"]
    """Of S, ascending."""
    moment: Float[Tensor, "*dim_out batch points width"]
    """X'y, of every coordinate of y where it is a vector."""
    query: Float[Tensor, "batch points width"]
    """The input at which the prediction is asked for."""
    seen: Float[Tensor, " points"]
    """The number of pairs in the prefix, 0 for the first query."""

    @classmethod
    def of(
        cls,
        xs: Float[Tensor, "batch pairs width"],
        ys: Float[Tensor, "batch pairs *dim_out"],
        first: int = 0,
    ) -> "Prefixes":
        """Before the queries `first` and later."""
        xs, ys = xs.double(), ys.double()
        sooner, later = xs[:, :first], xs[:, first:]
        gram = sooner.mT.matmul(sooner)[:, None] + before(torch.einsum("bni,bnj->bnij", later, later))
        terms = xs * (ys.movedim(2, 0) if ys.ndim == 3 else ys)[..., None]
        sums = terms[..., :first, :].sum(-2, keepdim=True) + before(terms[..., first:, :], dim=-2)
        eigenvalues, basis = torch.linalg.eigh(gram)
        # numpy's rule for the rank of a matrix, twice over: what rounding leaves was measured at 1e-15 of
        # the largest.
        rounding = 2 * max(xs.shape[1:]) * torch.finfo(torch.float64).eps
        spanned = eigenvalues > rounding * eigenvalues[..., -1:]
        moment = torch.einsum("bnij,...bni->...bnj", basis, sums)
        return cls(
            eigenvalues=eigenvalues * spanned,
            moment=moment * spanned,
            query=torch.einsum("bnij,bni->bnj", basis, later),
            seen=torch.arange(first, xs.shape[1], dtype=torch.float64, device=xs.device),
        )

    @property
    def spanned(self) -> Tensor:
        """Which directions the pairs seen span."""
        return self.eigenvalues > 0

    @property
    def largest(self) -> Float[Tensor, "batch points 1"]:
        """The largest eigenvalue; 1 before the first pair, so that one may divide by it."""
        top = self.eigenvalues[..., -1:]
        return torch.where(top > 0, top, 1)

    @property
    def smallest(self) -> Float[Tensor, "batch points 1"]:
        """The smallest eigenvalue that is not zero; 1 before the first pair."""
        low = torch.where(self.spanned, self.eigenvalues, torch.inf).amin(-1, keepdim=True)
        return torch.where(low.isfinite(), low, 1)

    def predict(
        self, weights: Float[Tensor, "*dim_out batch points width"]
    ) -> Float[Tensor, "batch points out"]:
        guesses = (weights * self.query).sum(-1)
        return guesses.movedim(0, 2) if guesses.ndim == 3 else guesses[..., None]


def chunks(
    xs: Float[Tensor, "batch pairs width"], ys: Float[Tensor, "batch pairs *dim_out"], first: int = 0
) -> Iterator[Prefixes]:
    """The prefixes before the queries `first` and later, of as many prompts at a time as fit into memory."""
    prompts = max(1, AT_ONCE // ((xs.shape[1] - first) * xs.shape[2] ** 2))
    for some_xs, some_ys in zip(xs.split(prompts), ys.split(prompts), strict=True):
        yield Prefixes.of(some_xs, some_ys, first)


def before(terms: Tensor, dim: int = 1) -> Tensor:
    """The sum of the terms strictly before each point, added up without its own term rather than less it."""
    first, others = terms.narrow(dim, 0, 1), terms.narrow(dim, 0, terms.shape[dim] - 1)
    return torch.cat([torch.zeros_like(first), others.cumsum(dim)], dim=dim)
