"""Least squares on every prefix of every prompt at once, in the eigenbasis in which the problems become scalar.

Let S = X'X over the pairs before a query. Every method in `regression.py` has iterates M X'y, where M is a function
of S (for conjugate gradients, of S and y). In the eigenbasis of S such an iterate is a scalar recursion for each
eigenvalue. After one eigendecomposition no matrix products are needed.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

MAX_ENTRIES = 2**23
"""The largest number of float64 entries in a stack of matrices or residuals, 64 MiB. Larger batches are split."""


def prompts_per_chunk(entries: int) -> int:
    """The number of prompts in a chunk, if each prompt has this number of entries in the largest tensor."""
    return max(1, MAX_ENTRIES // entries)


@dataclass(frozen=True)
class Prefixes:
    """A regression before each query, in the eigenbasis of the query's prefix. float64.

    Directions that the visible pairs do not span have eigenvalue 0 and moment 0, exactly. Rounding leaves about
    1e-15 of the largest eigenvalue there. Iterations that divide by eigenvalues or double them would amplify this
    error.
    """

    eigenvalues: Float[Tensor, "batch points width"]
    """The eigenvalues of S, ascending."""
    moment: Float[Tensor, "*dim_out batch points width"]
    """X'y, for every coordinate of y."""
    query: Float[Tensor, "batch points width"]
    """The input at which the prediction is asked for."""
    seen: Float[Tensor, " points"]
    """The number of pairs in the prefix. 0 for the first query."""

    @classmethod
    def of(
        cls, xs: Float[Tensor, "batch pairs width"], ys: Float[Tensor, "batch pairs *dim_out"], first: int = 0
    ) -> "Prefixes":
        """The prefixes before the queries `first` and later."""
        xs, ys = xs.double(), ys.double()
        earlier, later = xs[:, :first], xs[:, first:]
        gram = earlier.mT.matmul(earlier)[:, None] + sums_before(torch.einsum("bni,bnj->bnij", later, later))
        terms = xs * (ys.movedim(2, 0) if ys.ndim == 3 else ys)[..., None]
        sums = terms[..., :first, :].sum(-2, keepdim=True) + sums_before(terms[..., first:, :], dim=-2)
        eigenvalues, basis = torch.linalg.eigh(gram)
        # Twice numpy's threshold for the rank of a matrix. Measured rounding errors are 1e-15 of the largest.
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
        """True for directions that the visible pairs span."""
        return self.eigenvalues > 0

    @property
    def largest(self) -> Float[Tensor, "batch points 1"]:
        """The largest eigenvalue. 1 before the first pair, to allow division."""
        top = self.eigenvalues[..., -1:]
        return torch.where(top > 0, top, 1)

    @property
    def smallest(self) -> Float[Tensor, "batch points 1"]:
        """The smallest nonzero eigenvalue. 1 before the first pair."""
        low = torch.where(self.spanned, self.eigenvalues, torch.inf).amin(-1, keepdim=True)
        return torch.where(low.isfinite(), low, 1)

    def predict(
        self, weights: Float[Tensor, "*dim_out batch points width"]
    ) -> Float[Tensor, "batch points out"]:
        guesses = (weights * self.query).sum(-1)
        return guesses.movedim(0, 2) if guesses.ndim == 3 else guesses[..., None]


_SHARED: ContextVar["list[tuple[Tensor, Tensor, int, list[Prefixes]]] | None"] = ContextVar(
    "shared", default=None
)


@contextmanager
def shared_prefixes() -> Generator[None]:
    """Within the context, solvers of the same pairs share the eigendecompositions. The context keeps the results."""
    before = _SHARED.set([])
    try:
        yield
    finally:
        _SHARED.reset(before)


def chunks(
    xs: Float[Tensor, "batch pairs width"], ys: Float[Tensor, "batch pairs *dim_out"], first: int = 0
) -> Iterator[Prefixes]:
    """The prefixes before the queries `first` and later, for as many prompts at a time as fit into memory."""
    kept = _SHARED.get()
    if kept is None:
        yield from _computed_chunks(xs, ys, first)
        return
    for kept_xs, kept_ys, kept_first, parts in kept:
        if first == kept_first and torch.equal(xs, kept_xs) and torch.equal(ys, kept_ys):
            yield from parts
            return
    parts = list(_computed_chunks(xs, ys, first))
    kept.append((xs, ys, first, parts))
    yield from parts


def _computed_chunks(xs: Tensor, ys: Tensor, first: int) -> Iterator[Prefixes]:
    prompts = prompts_per_chunk((xs.shape[1] - first) * xs.shape[2] ** 2)
    for chunk_xs, chunk_ys in zip(xs.split(prompts), ys.split(prompts), strict=True):
        yield Prefixes.of(chunk_xs, chunk_ys, first)


def sums_before(terms: Tensor, dim: int = 1) -> Tensor:
    """The sum of the terms strictly before each point, without subtraction, which would add rounding errors."""
    first, others = terms.narrow(dim, 0, 1), terms.narrow(dim, 0, terms.shape[dim] - 1)
    return torch.cat([torch.zeros_like(first), others.cumsum(dim)], dim=dim)
