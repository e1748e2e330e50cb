"""The Bayes predictor of sparse recovery, by counting supports (and signs): the spike and slab posterior with s known.

Given the support, and the signs where values are ±τ, everything is Gaussian, so that the posterior is a mixture of as
many Gaussians as there are supports (Mitchell and Beauchamp 1988, with a uniform prior on the supports of s
coordinates). Each is brought up to date pair by pair (recursive least squares), and weighted by how likely it made
what was seen.
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
from loopscale.solvers.prefixes import AT_ONCE
from loopscale.tasks.base import Task
from loopscale.tasks.sparse_recovery import SparseRegression

MOST = 20_000
"""Supports, with their signs, beyond which it is not run; d = 20 and s = 3 have 1,140, and 9,120 with signs."""
LEAST_NOISE = 1e-12
"""Of σ², as a share of a pair's variance. Without noise a pair tells wrong supports by what float32 resolves of it, so
that one in some hundred thousand still seems to fit."""


class SparsePosterior(Solver, kind="sparse_posterior"):
    """The mean of β's posterior over all supports: nothing has less error on average. It takes one step."""

    solves: ClassVar[type] = SparseRegression

    @override
    def accepts(self, problem: Any) -> bool:
        return self.takes(problem) and _count(problem) <= MOST

    @override
    def room_below(self, task: Task) -> float | None:
        return 0.0 if task.kind == "sparse_recovery" else None

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points 1"]:
        problem: SparseRegression = batch.problem
        columns, values = _hypotheses(problem)
        prompts = max(1, AT_ONCE // (len(columns) * columns.shape[1] ** 2))
        found = [
            _posterior_means(problem, columns, values, some)
            for some in torch.arange(len(problem.xs), device=problem.xs.device).split(prompts)
        ]
        return torch.cat(found)[:, problem.first :, None].expand(steps, -1, -1, -1)


def _count(problem: SparseRegression) -> int:
    return comb(problem.at_work, problem.nonzero) * (2**problem.nonzero if problem.signs else 1)


def _hypotheses(
    problem: SparseRegression,
) -> tuple[Int[Tensor, "some s"], Float[Tensor, "some s"] | None]:
    """The coordinates of every support, and with known sizes the values on it, once for every choice of signs."""
    supports = torch.tensor(list(combinations(range(problem.at_work), problem.nonzero)))
    if not problem.signs:
        return supports.to(problem.xs.device), None
    signs = torch.tensor(list(product((-1.0, 1.0), repeat=problem.nonzero)), dtype=torch.float64)
    columns = supports.repeat_interleave(len(signs), dim=0).to(problem.xs.device)
    return columns, (problem.value_variance**0.5 * signs.repeat(len(supports), 1)).to(problem.xs.device)


def _posterior_means(
    problem: SparseRegression,
    columns: Int[Tensor, "some s"],
    values: Float[Tensor, "some s"] | None,
    prompts: Int[Tensor, " few"],
) -> Float[Tensor, "few points"]:
    """E(y | the pairs before) at every x. With values known the Gaussians have no width."""
    xs, ys = problem.xs[prompts].double(), problem.ys[prompts].double()
    pair = problem.nonzero * problem.value_variance * float(problem.xs.double().square().mean())
    noise = max(problem.noise_variance, LEAST_NOISE * pair)
    size = columns.shape[1]
    if values is None:
        mean = xs.new_zeros(len(xs), len(columns), size)
        spread = (problem.value_variance * torch.eye(size).to(xs)).expand(*mean.shape, size)
    else:
        mean, spread = values.expand(len(xs), -1, -1), xs.new_zeros(len(xs), len(columns), size, size)
    likely, means = xs.new_zeros(len(xs), len(columns)), []
    for x, y in zip(xs.unbind(1), ys.unbind(1), strict=True):
        seen = x[:, columns]
        guess = (seen * mean).sum(-1)
        means.append((likely.softmax(-1) * guess).sum(-1))
        along = torch.einsum("bhij,bhj->bhi", spread, seen)
        width, missed = (seen * along).sum(-1) + noise, y[:, None] - guess
        likely = likely - (width.log() + missed.square() / width) / 2
        gain = along / width[..., None]
        mean = mean + gain * missed[..., None]
        spread = spread - gain[..., :, None] * along[..., None, :]
    return torch.stack(means, dim=1)
