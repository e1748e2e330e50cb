"""The Bayes predictor of sparse recovery, by enumeration of supports and signs: spike-and-slab posterior with known s.

Given the support, and the signs if values are ±τ, everything is Gaussian. So the posterior is a mixture with one
Gaussian per hypothesis [@mitchell1988], with a uniform prior on the supports of s coordinates.
Recursive least squares updates each Gaussian pair by pair. The weights are the likelihoods of the visible pairs.
"""

from itertools import combinations, product
from math import comb
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.solvers.base import Solver
from loopscale.solvers.prefixes import prompts_per_chunk
from loopscale.tasks.base import Task
from loopscale.tasks.sparse_recovery import SparseRegression

MAX_HYPOTHESES = 20_000
"""The largest number of hypotheses, supports with signs. d = 20 and s = 3 have 1,140 supports, and 9,120 with signs."""
LEAST_NOISE = 1e-12
"""The smallest σ², relative to the variance of a pair. Without noise the labels have the resolution of float32. One
wrong support in some hundred thousand still seems to fit at this resolution."""


class SparsePosterior(Solver, kind="sparse_posterior", titled="Bayes predictor of sparse weights"):
    """The posterior mean of β over all supports: no predictor has a smaller mean error. Takes one step."""

    solves: ClassVar[type] = SparseRegression

    @override
    def accepts(self, problem: Any) -> bool:
        return self.takes(problem) and _count(problem) <= MAX_HYPOTHESES

    @override
    def room_below(self, task: Task) -> float | None:
        return 0.0 if task.kind == "sparse_recovery" else None

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points 1"]:
        problem: SparseRegression = batch.problem
        columns, values = _hypotheses(problem)
        prompts = prompts_per_chunk(len(columns) * columns.shape[1] ** 2)
        means = [
            _posterior_means(problem, columns, values, chunk)
            for chunk in torch.arange(len(problem.xs), device=problem.xs.device).split(prompts)
        ]
        return torch.cat(means)[:, problem.first :, None].expand(steps, -1, -1, -1)


def _count(problem: SparseRegression) -> int:
    return comb(problem.at_work, problem.nonzero) * (2**problem.nonzero if problem.signs else 1)


def _hypotheses(
    problem: SparseRegression,
) -> tuple[Int[Tensor, "hypotheses s"], Float[Tensor, "hypotheses s"] | None]:
    """The coordinates of every support. For values of known size also the values, once for every choice of signs."""
    supports = torch.tensor(list(combinations(range(problem.at_work), problem.nonzero)))
    if not problem.signs:
        return supports.to(problem.xs.device), None
    signs = torch.tensor(list(product((-1.0, 1.0), repeat=problem.nonzero)), dtype=torch.float64)
    columns = supports.repeat_interleave(len(signs), dim=0).to(problem.xs.device)
    return columns, (problem.value_variance**0.5 * signs.repeat(len(supports), 1)).to(problem.xs.device)


def _posterior_means(
    problem: SparseRegression,
    columns: Int[Tensor, "hypotheses s"],
    values: Float[Tensor, "hypotheses s"] | None,
    prompts: Int[Tensor, " few"],
) -> Float[Tensor, "few points"]:
    """E(y | the pairs before) at every x. If the values are known, the covariances are 0."""
    xs, ys = problem.xs[prompts].double(), problem.ys[prompts].double()
    pair_variance = problem.nonzero * problem.value_variance * float(problem.xs.double().square().mean())
    noise = max(problem.noise_variance, LEAST_NOISE * pair_variance)
    size = columns.shape[1]
    if values is None:
        mean = xs.new_zeros(len(xs), len(columns), size)
        covariance = (problem.value_variance * torch.eye(size).to(xs)).expand(*mean.shape, size)
    else:
        mean, covariance = values.expand(len(xs), -1, -1), xs.new_zeros(len(xs), len(columns), size, size)
    log_likelihood, means = xs.new_zeros(len(xs), len(columns)), []
    for x, y in zip(xs.unbind(1), ys.unbind(1), strict=True):
        inputs = x[:, columns]
        guess = (inputs * mean).sum(-1)
        means.append((log_likelihood.softmax(-1) * guess).sum(-1))
        along = torch.einsum("bhij,bhj->bhi", covariance, inputs)
        variance, residual = (inputs * along).sum(-1) + noise, y[:, None] - guess
        log_likelihood = log_likelihood - (variance.log() + residual.square() / variance) / 2
        gain = along / variance[..., None]
        mean = mean + gain * residual[..., None]
        covariance = covariance - gain[..., :, None] * along[..., None, :]
    return torch.stack(means, dim=1)
