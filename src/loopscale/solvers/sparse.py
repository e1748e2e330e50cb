"""Classical sparse regression from the visible pairs: by l1 penalty, greedily, and with an oracle.

The l1 methods minimise |Xβ - y|² / 2n + λ |β|₁ over the n pairs before a query (scikit-learn's convention). So λ has
the same meaning for every prefix. Before the first pair every solver predicts 0.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice, repeat
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.solvers.base import Solver
from loopscale.solvers.feature_sign import lasso
from loopscale.solvers.prefixes import prompts_per_chunk, sums_before
from loopscale.solvers.regression import Ridge
from loopscale.tasks.base import Task
from loopscale.tasks.regression import Regression
from loopscale.tasks.sparse_recovery import SparseRecovery, SparseRegression


class Correlations:
    """A regression before each query: the statistics of the pairs that these methods read. float64.

    With n visible pairs, `gram` is X'X/n and `moment` is X'y/n. Both are 0 before the first pair.
    """

    def __init__(self, xs: Float[Tensor, "batch points dim"], ys: Float[Tensor, "batch points"]) -> None:
        xs, ys = xs.double(), ys.double()
        self.seen = torch.arange(xs.shape[1], dtype=torch.float64, device=xs.device)
        pairs = self.seen.clamp_min(1)
        self.gram: Float[Tensor, "batch points dim dim"] = (
            sums_before(torch.einsum("bni,bnj->bnij", xs, xs)) / pairs[:, None, None]
        )
        self.moment: Float[Tensor, "batch points dim"] = sums_before(xs * ys[..., None]) / pairs[:, None]
        self.query = xs

    def gradient(self, weights: Float[Tensor, "batch points dim"]) -> Float[Tensor, "batch points dim"]:
        """The gradient of |Xβ - y|² / 2n."""
        return torch.einsum("bnij,bnj->bni", self.gram, weights) - self.moment

    @property
    def step(self) -> Float[Tensor, "batch points 1"]:
        """1/L, where L is the largest eigenvalue of the Gram matrix. 1 before the first pair."""
        largest = torch.linalg.eigvalsh(self.gram)[..., -1:]
        return 1 / torch.where(largest > 0, largest, 1)


class SparseSolver(Solver, allow_inf_nan=False):
    """A method that gives a sequence of β for every prefix."""

    solves: ClassVar[type] = Regression
    iterative: ClassVar[bool] = True
    """False if the first step already gives the solution."""

    @abstractmethod
    def iterates(self, pairs: Correlations) -> Iterable[Float[Tensor, "batch points dim"]]:
        """β after step 1, 2, ..., without end."""

    @classmethod
    @override
    def stepwise(cls, problem: Any) -> tuple[Solver, ...]:
        return (cls(),) if cls.iterative and isinstance(problem, SparseRegression) else ()

    def resolved(self, problem: Regression) -> "SparseSolver":
        """This solver, with default settings taken from the problem."""
        return self

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points 1"]:
        xs, ys = batch.problem.xs, batch.problem.ys
        solver, prompts = self.resolved(batch.problem), prompts_per_chunk(xs.shape[1] * xs.shape[2] ** 2)
        parts = []
        for chunk in zip(xs.split(prompts), ys.split(prompts), strict=True):
            pairs = Correlations(*chunk)
            weights = torch.stack(list(islice(solver.iterates(pairs), steps)))
            parts.append((weights * pairs.query).sum(-1, keepdim=True))
        return torch.cat(parts, dim=1)[:, :, batch.problem.first :]


class Ista(SparseSolver, kind="ista", titled="ISTA"):
    """ISTA, iterative soft thresholding [@daubechies2004; @liu2025slides, display before eq. 4].

    β <- S_{λ/L}(β - X'(Xβ - y) / nL) from 0, where S is the soft threshold and L the largest eigenvalue of X'X/n.
    """

    penalty: NonNegativeFloat = 0.01
    """λ. Without noise the error of the limit is about λ. A smaller λ converges more slowly."""

    @override
    def iterates(self, pairs: Correlations) -> Iterable[Float[Tensor, "batch points dim"]]:
        weights, step = torch.zeros_like(pairs.moment), pairs.step
        while True:
            weights = soft_threshold(weights - step * pairs.gradient(weights), step * self.penalty)
            yield weights


class Fista(SparseSolver, kind="fista", titled="FISTA"):
    """FISTA: ISTA's step from a point extrapolated by Nesterov's momentum [@beck2009, eqs. 4.1 to 4.3]."""

    penalty: NonNegativeFloat = 0.01
    """λ, as in `ista`."""

    @override
    def iterates(self, pairs: Correlations) -> Iterable[Float[Tensor, "batch points dim"]]:
        weights = ahead = torch.zeros_like(pairs.moment)
        step, momentum = pairs.step, 1.0
        while True:
            last, weights = weights, soft_threshold(ahead - step * pairs.gradient(ahead), step * self.penalty)
            last_momentum, momentum = momentum, (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            ahead = weights + (last_momentum - 1) / momentum * (weights - last)
            yield weights


class Lasso(SparseSolver, kind="lasso"):
    """The exact minimum of |Xβ - y|² / 2n + λ |β|₁, by feature-sign search [@lee2007]."""

    iterative = False
    penalty: PositiveFloat = 0.01
    """λ. 0.01 is the best value in @garg2022. With noise, about σ √(2 ln d / n) is suitable."""

    @override
    def iterates(self, pairs: Correlations) -> Iterable[Float[Tensor, "batch points dim"]]:
        return repeat(lasso(pairs.gram, pairs.moment, self.penalty))


class OrthogonalMatchingPursuit(SparseSolver, kind="orthogonal_matching_pursuit"):
    """Orthogonal matching pursuit [@pati1993; @tropp2007].

    Each step adds the coordinate with the normalised column of X that is most aligned with the residual. Then it solves
    least squares on all chosen coordinates.
    """

    atoms: PositiveInt | None = None
    """The number of chosen coordinates, one per step. `None`: the s of a sparse task, else until the residual is 0."""

    @override
    def resolved(self, problem: Regression) -> "OrthogonalMatchingPursuit":
        known = problem.nonzero if isinstance(problem, SparseRegression) else None
        return OrthogonalMatchingPursuit(atoms=self.atoms or known)

    @override
    def iterates(self, pairs: Correlations) -> Iterable[Float[Tensor, "batch points dim"]]:
        size = pairs.gram.diagonal(dim1=-2, dim2=-1).sqrt()
        weights, chosen = torch.zeros_like(pairs.moment), torch.zeros_like(pairs.moment, dtype=torch.bool)
        start = _aligned(pairs.moment, size, chosen).amax(-1)
        for _ in range(self.atoms or pairs.moment.shape[-1]):
            alignment = _aligned(pairs.gradient(weights), size, chosen)
            # A residual of the size of rounding errors has no direction.
            going = (alignment.amax(-1) > 1e-10 * start) & (chosen.sum(-1) < pairs.seen)
            best = torch.nn.functional.one_hot(alignment.argmax(-1), size.shape[-1]).bool()
            chosen = chosen | (best & going[..., None])
            weights = _least_squares(pairs, chosen)
            yield weights
        yield from repeat(weights)


class OracleSupport(
    Solver, kind="oracle_support", titled="least squares with known support", allow_inf_nan=False
):
    """Ridge regression on the true support, the oracle of @candes2007. No other solver knows the support.

    With Gaussian values the default is the Bayes predictor given the support, with a smaller error than every
    predictor. Penalty 0 is least squares, as in the paper.
    """

    solves: ClassVar[type] = SparseRegression
    oracle: ClassVar[bool] = True
    penalty: NonNegativeFloat | None = None
    """The penalty in |Xβ - y|² + penalty |β|², where both terms are sums. By default the σ²/τ² of the task."""

    @override
    def room_below(self, task: Task) -> float | None:
        gaussian = isinstance(task, SparseRecovery) and task.values == "gaussian"
        return 0.0 if gaussian and self.penalty is None else None

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points 1"]:
        problem: SparseRegression = batch.problem
        on_support = problem.xs * problem.support[:, None, :]
        bayes = problem.noise_variance / problem.value_variance
        ridge = Ridge(penalty=bayes if self.penalty is None else self.penalty)
        return ridge.predict(replace(batch, problem=replace(problem, xs=on_support)), steps)


def soft_threshold(
    value: Float[Tensor, "*batch dim"], threshold: Float[Tensor, "*batch 1"]
) -> Float[Tensor, "*batch dim"]:
    """Move each value towards 0 by `threshold`. Smaller values become 0."""
    return value - torch.maximum(torch.minimum(value, threshold), -threshold)


def _aligned(
    moment: Float[Tensor, "batch points dim"],
    size: Float[Tensor, "batch points dim"],
    chosen: Bool[Tensor, "batch points dim"],
) -> Float[Tensor, "batch points dim"]:
    """The alignment of the residual with each column. 0 for chosen columns and zero columns."""
    possible = (size > 0) & ~chosen
    return torch.where(possible, moment.abs() / torch.where(possible, size, 1), 0)


def _least_squares(
    pairs: Correlations, chosen: Bool[Tensor, "batch points dim"]
) -> Float[Tensor, "batch points dim"]:
    """Least squares on the chosen coordinates. The others are 0."""
    both = chosen[..., :, None] & chosen[..., None, :]
    system = torch.where(both, pairs.gram, 0) + torch.diag_embed((~chosen).double())
    return torch.linalg.solve(system, torch.where(chosen, pairs.moment, 0))
