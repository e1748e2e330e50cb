"""Sparse recovery in context: y = <x, β> + noise, where only a few coordinates of β are non-zero.

Sources: the sparse part of @liu2025slides; the sparse linear functions of @garg2022, section
3.1. The pairs (x, y) are the rows of a measurement matrix with their measurements. Every x is a query.

Conventions, where the sources differ or leave a choice open:

- The support is uniform among the coordinates in use, as in @garg2022. So an easier task has as many non-zeros, or
  all that fit. (@yang2023 draw the support among all coordinates and then truncate, which leaves fewer non-zeros.)
- With `matrices: fixed` all prompts share one Gaussian matrix, given by its seed. Its rows are rescaled to the root
  mean square length of a Gaussian row. Otherwise predicting zero would not cost the same at every query.
- The last row of a fixed matrix is almost a linear combination of the other rows, the same in all prompts. With d = 8
  and 7 rows the best such combination, which does not use β, leaves .06 of the variance. Only a predictor that finds
  β can answer a new random query: this is `query: drawn`.
- The source gives no sizes. d = 20 and s = 3 come from @garg2022

Floor: σ². The Bayes predictor averages over all supports: the solver `sparse_posterior`, if the supports can be
enumerated. `oracle_support` reads the true support and can fall below the Bayes predictor.
"""

from dataclasses import dataclass, replace
from functools import cache
from math import comb
from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch, Predictor
from loopscale.core.seeds import stream
from loopscale.tasks.base import FloorRule, Measures
from loopscale.tasks.induced import induced_weights
from loopscale.tasks.regression import NoisyRegressionTask, Regression, only_first, pose

MOST_HYPOTHESES = 3_000
"""The posterior of more supports costs minutes for a set of prompts, so a reference takes the place of the floor."""
PROBED = 4
"""β is probed in one of this many prompts, because a probe needs one prediction per coordinate of β."""


@dataclass(frozen=True, kw_only=True)
class SparseRegression(Regression):
    """A regression with sparse weights. The fields describe the weights for oracles and Bayesian solvers."""

    weights: Float[Tensor, "batch dim"]
    """β."""
    value_variance: float
    """τ², the variance of a non-zero coordinate of β."""
    nonzero: int
    """s, the number of non-zero coordinates of β."""
    at_work: int
    """Number of coordinates that can be non-zero: the first coordinates."""
    signs: bool
    """Whether a non-zero coordinate is ±τ. Otherwise it is normal."""

    @property
    def support(self) -> Bool[Tensor, "batch dim"]:
        """Which coordinates of β are non-zero."""
        return self.weights != 0


class SparseRecovery(NoisyRegressionTask, kind="sparse_recovery", allow_inf_nan=False):
    points: PositiveInt = 21
    nonzero: PositiveInt = 3
    """s, non-zero coordinates of β; all coordinates if an easier task has fewer than s."""
    matrices: Literal["drawn", "fixed"] = "drawn"
    """drawn: every prompt draws its x. fixed: all prompts have the same x in the same order."""
    query: Literal["row", "drawn"] = "row"
    """The last x for a fixed matrix. row: the last row of the matrix. drawn: random in every prompt."""
    matrix_seed: NonNegativeInt = 0
    """Seed of a fixed matrix."""
    values: Literal["gaussian", "signs"] = "gaussian"
    """Non-zero coordinates of β. gaussian: normal with standard deviation τ. signs: ±τ."""
    x_scale: PositiveFloat = 1.0
    """Root mean square of a coordinate of x."""
    w_scale: PositiveFloat = 1.0
    """τ, root mean square of a non-zero coordinate of β."""

    @model_validator(mode="after")
    def _settings_agree(self) -> "SparseRecovery":
        if self.nonzero > self.dim:
            raise ValueError(
                f"nonzero {self.nonzero} is more than the dim {self.dim} coordinates; "
                f"write {self.dim} or less"
            )
        if self.matrices == "drawn" and (self.query, self.matrix_seed) != ("row", 0):
            raise ValueError(
                "query and matrix_seed describe a fixed matrix, but here every x is random; "
                "leave them out, or write matrices: fixed"
            )
        return self

    @property
    def present(self) -> int:
        """Number of non-zero coordinates of β."""
        return min(self.nonzero, self.at_work)

    @property
    @override
    def variance(self) -> float:
        return self.present * (self.w_scale * self.x_scale) ** 2 + self.noise_variance

    @property
    @override
    def floor_rule(self) -> FloorRule:
        hypotheses = comb(self.at_work, self.present) * (2**self.present if self.values == "signs" else 1)
        if hypotheses <= MOST_HYPOTHESES:
            return FloorRule("bayes", {"kind": "sparse_posterior"})
        return FloorRule("reference", {"kind": "lasso"})

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        xs = torch.randn(batch_size, self.points, self.dim, generator=rng)
        order = torch.rand(batch_size, self.at_work, generator=rng)
        values = torch.randn(batch_size, self.present, generator=rng)
        noise = self.noise * torch.randn(batch_size, self.points, generator=rng)
        if self.matrices == "fixed":
            last = xs[:, -1:]
            xs = _matrix(self.matrix_seed, self.dim, self.points, self.at_work, rng.device).expand_as(xs)
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

    @property
    @override
    def probe_names(self) -> tuple[str, ...]:
        return ("support_recovery", "weights_error")

    @override
    def probes(self, predictor: Predictor, batch: Batch, steps: int) -> Measures:
        """How well the predictor recovers β from all pairs except the last pair.

        β^ are the effective weights at the last query (see `induced_weights`), in every fourth prompt. For a net
        trained with `matrices: fixed, query: row` these queries are new.

        `support_recovery`: the share of the s largest |β^| in the support of β. Precision equals recall, because both
        sets have s elements. Chance level is s/d. `weights_error`: |β^ - β|² over its mean for β^ = 0.
        """
        probed = _every(batch, PROBED)
        problem: SparseRegression = probed.problem
        weights = induced_weights(predictor, probed, steps, self.at_work, self.x_scale)
        largest = weights.abs().topk(self.present, dim=-1).indices
        hits = problem.support.expand(weights.shape).gather(-1, largest)
        scale = self.present * self.w_scale**2
        return {
            "support_recovery": hits.to(weights.dtype).mean(-1),
            "weights_error": (weights - problem.weights).square().sum(-1) / scale,
        }


@cache
def _matrix(
    seed: int, dim: int, points: int, at_work: int, device: torch.device
) -> Float[Tensor, "points dim"]:
    """The fixed matrix for x_scale 1. A row does not depend on the number of rows."""
    rows = [
        torch.randn(dim, generator=stream(seed, "measurement", row), device="cpu") for row in range(points)
    ]
    matrix = only_first(torch.stack(rows), at_work)
    return (matrix * (at_work**0.5 / matrix.norm(dim=-1, keepdim=True))).to(device)


def _every(batch: Batch, step: int) -> Batch:
    """Prompts 0, `step`, 2 `step` .. of the batch."""
    problem = batch.problem
    tensors = {name: value[::step] for name, value in vars(problem).items() if isinstance(value, Tensor)}
    return Batch(batch.tokens[::step], batch.targets[::step], batch.queries, replace(problem, **tensors))
