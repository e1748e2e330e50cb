"""Sparse recovery in context: y = <x, β> + noise, where few coordinates of β are not zero.

The sparse part of the slides on Liu et al. 2025; the sparse linear functions of Garg et al. 2022, section 3.1. The
pairs (x, y) are the rows of a measurement matrix and what was measured, and a prediction is asked for at every x.

Conventions, where the sources differ or say nothing. The support is uniform among the coordinates at work, as in
Garg et al., so that an easier task has as many non-zeros, or all that fit. (Yang et al. draw it among all of them
and then cut, which leaves fewer.) With `matrices: fixed` one Gaussian matrix, by its seed, is that of all prompts,
and its rows are rescaled to the length that a Gaussian row has in the root mean square, without which predicting
nothing would not cost the same at every query. What its last row would measure, though, is a linear function of what
the others do but for little, the same in all prompts: with d = 8 and 7 rows the best one, which knows of no β, is left
with .06 of the variance. Only who finds β can answer a query of its own, which is `query: drawn`. The source gives no
sizes: d = 20 and s = 3 are those of Garg et al.

The floor is σ², and below it nothing; the Bayes predictor averages over all supports, which is the solver
`sparse_posterior` where these can be counted. `oracle_support`, which is told the support, is below that.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch, Predictor
from loopscale.core.seeds import stream
from loopscale.tasks.induced import induced_weights
from loopscale.tasks.regression import Regression, RegressionTask, only_first, pose

PROBED = 4
"""One prompt in so many is asked for its β, which takes as many predictions as β has coordinates."""


@dataclass(frozen=True, kw_only=True)
class SparseRegression(Regression):
    """A regression whose weights are sparse, and what an oracle would know of them."""

    weights: Float[Tensor, "batch dim"]
    """β."""
    value_variance: float
    """τ², of a coordinate of β that is not zero."""
    nonzero: int
    """s, how many are not."""
    at_work: int
    """Of how many that may be other than zero, the first."""
    signs: bool
    """Whether each of them is ±τ rather than normal."""

    @property
    def support(self) -> Bool[Tensor, "batch dim"]:
        """Which are not."""
        return self.weights != 0


class SparseRecovery(RegressionTask, kind="sparse_recovery", allow_inf_nan=False):
    dim: PositiveInt = 20
    """Coordinates of x and β, d."""
    points: PositiveInt = 21
    """Pairs in the prompt: query k = 0 .. points-1 has seen k of them."""
    nonzero: PositiveInt = 3
    """s, the coordinates of β that are not zero; all that are at work, where an easier task has fewer."""
    matrices: Literal["drawn", "fixed"] = "drawn"
    """drawn: fresh x's for every prompt. fixed: the same x's, in the same order, in all of them."""
    query: Literal["row", "drawn"] = "row"
    """Of a fixed matrix: whether the last x, which has seen all pairs, is its last row, or drawn for every prompt."""
    matrix_seed: NonNegativeInt = 0
    """Which matrix, where it is fixed."""
    values: Literal["gaussian", "signs"] = "gaussian"
    """Of the coordinates that are not zero: normal with standard deviation τ, or ±τ."""
    noise: NonNegativeFloat = 0.0
    """σ, the standard deviation of what is added to y."""
    x_scale: PositiveFloat = 1.0
    """The root mean square of a coordinate of x."""
    w_scale: PositiveFloat = 1.0
    """τ, the root mean square of a coordinate of β that is not zero."""

    @model_validator(mode="after")
    def _settings_agree(self) -> "SparseRecovery":
        if self.nonzero > self.dim:
            raise ValueError(
                f"nonzero {self.nonzero} is more than the dim {self.dim} coordinates that there are; "
                f"write {self.dim} or less"
            )
        if self.matrices == "drawn" and (self.query, self.matrix_seed) != ("row", 0):
            raise ValueError(
                "query and matrix_seed are of a fixed matrix, and here every x is drawn; "
                "leave them out, or write matrices: fixed"
            )
        return self

    @property
    def present(self) -> int:
        """Coordinates of β that are other than zero."""
        return min(self.nonzero, self.at_work)

    @property
    @override
    def variance(self) -> float:
        return self.present * (self.w_scale * self.x_scale) ** 2 + self.noise_variance

    @property
    @override
    def noise_variance(self) -> float:
        return self.noise**2

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        xs = torch.randn(batch_size, self.points, self.dim, generator=rng)
        order = torch.rand(batch_size, self.at_work, generator=rng)
        values = torch.randn(batch_size, self.present, generator=rng)
        noise = self.noise * torch.randn(batch_size, self.points, generator=rng)
        if self.matrices == "fixed":
            last = xs[:, -1:]
            xs = _matrix(self.matrix_seed, self.dim, self.points, self.at_work).expand_as(xs)
            xs = torch.cat([xs[:, :-1], last], dim=1) if self.query == "drawn" else xs
        xs = self.x_scale * only_first(xs, self.active)
        if self.values == "signs":
            values = torch.where(values < 0, -1.0, 1.0)
        chosen = order.argsort(-1)[:, : self.present]
        weights = torch.zeros(batch_size, self.dim).scatter(1, chosen, self.w_scale * values)
        ys = torch.einsum("bnd,bd->bn", xs, weights) + noise
        share = self.present / self.at_work
        return pose(
            SparseRegression(
                xs,
                ys,
                self.noise_variance,
                share * self.w_scale**2,
                weights=weights,
                value_variance=self.w_scale**2,
                nonzero=self.present,
                at_work=self.at_work,
                signs=self.values == "signs",
            ),
            self.format,
        )

    @override
    def probes(
        self, predictor: Predictor, batch: Batch, steps: int
    ) -> dict[str, Float[Tensor, "steps some"]]:
        """How well β itself is found from all pairs but the last one, by its weights at the last query.

        `support_recovery`: the share of the s largest |β^| that are in the support of β. As many are chosen as there
        are, so precision and recall are the same. By chance it is s/d. `weights_error`: |β^ - β|² over what it is
        on average for β^ = 0. Both are of every fourth prompt. For a net trained with `matrices: fixed, query: row`
        the queries that are asked for are new ones.
        """
        some = _every(batch, PROBED)
        problem: SparseRegression = some.problem
        found = induced_weights(predictor, some, steps, self.at_work, self.x_scale)
        largest = found.abs().topk(self.present, dim=-1).indices
        hits = problem.support.expand(found.shape).gather(-1, largest)
        scale = self.present * self.w_scale**2
        return {
            "support_recovery": hits.to(found.dtype).mean(-1),
            "weights_error": (found - problem.weights).square().sum(-1) / scale,
        }


@cache
def _matrix(seed: int, dim: int, points: int, at_work: int) -> Float[Tensor, "points dim"]:
    """The fixed matrix for x_scale 1. A row does not depend on how many there are."""
    rows = [torch.randn(dim, generator=stream(seed, "measurement", row)) for row in range(points)]
    matrix = only_first(torch.stack(rows), at_work)
    return matrix * (at_work**0.5 / matrix.norm(dim=-1, keepdim=True))


def _every(batch: Batch, each: int) -> Batch:
    """The first prompt, and every so many'th after it."""
    problem = batch.problem
    parts = {name: value[::each] for name, value in vars(problem).items() if isinstance(value, Tensor)}
    return Batch(
        batch.tokens[::each],
        batch.targets[::each],
        batch.queries,
        type(problem)(**(vars(problem) | parts)),
    )
