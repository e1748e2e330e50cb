"""Regression tasks: the pairs for solvers, and the tokens for models.

A prompt has one of two formats [@liu2025slides, definitions of the inputs]. Decoder: x_1, y_1, x_2, y_2,
.., where every x is a query and a causal mask shows the query only the earlier pairs. Encoder: one token per pair,
and the last token is the only query. This query sees all pairs, and no token contains its answer, so a net may look
ahead.

The format also decides whether the loss covers every query or only the last query. A decoder trains on all queries,
and its `error_last` reports the last one. An encoder cannot train on all queries: every other x shares a token with
its y, and all tokens see this token. A query there would only copy its answer.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.tasks.base import GradedTask

Format = Literal["decoder", "encoder"]
"""decoder: x_1, y_1, x_2, y_2, .. with a query at every x. encoder: one token per pair, with one query at the end."""
LARGEST_NOISE = 1e9
"""The largest σ. The square of a larger one overflows in the float32 of a net."""


@dataclass(frozen=True)
class Pairs:
    """Pairs (x, y) with the constants that a Bayes predictor knows.

    Query k may use only the k earlier pairs. A y is a number (`Regression`) or a vector (`VectorRegression`).
    Regression solvers accept both.
    """

    xs: Float[Tensor, "batch points dim"]
    ys: Float[Tensor, "batch points *dim_out"]
    noise_variance: float
    """σ², the noise variance of every y."""
    weight_variance: float
    """τ², the prior variance of every weight: of w on `representation` if given, otherwise of w on `xs`."""
    representation: Float[Tensor, "batch points width"] | None = None
    """Φ(x), if y is linear in Φ(x) and not in x."""
    first: int = 0
    """Index of the first query. All later x are queries too. 0, or the index of the last x."""


@dataclass(frozen=True)
class Regression(Pairs):
    """Pairs whose y is a number, in one of the two formats."""

    ys: Float[Tensor, "batch points"]


@dataclass(frozen=True)
class VectorRegression(Pairs):
    """Pairs whose y is a vector. The coordinates of y have independent weights with the same distribution."""

    ys: Float[Tensor, "batch points dim_out"]


class RegressionTask(GradedTask):
    """N = `points` pairs of an x with d = `dim` coordinates and a number y."""

    dim: PositiveInt = 20
    """d, coordinates of x."""
    points: PositiveInt = 40
    """Pairs in the prompt. Query k = 0 .. points-1 has seen k pairs."""
    format: Format = "decoder"
    """Format of the prompt and of the loss. decoder: tokens x_1, y_1, x_2, .., with queries and loss at every x.
    encoder: one token per pair, with query and loss at the last x only, for nets that look ahead and would see other
    answers."""

    @property
    @override
    def prompt(self) -> Prompt:
        if self.whole:
            return Prompt(length=self.points, dim_in=self.dim + 2, dim_out=1, pairs="beside")
        return Prompt(length=2 * self.points, dim_in=self.dim + 1, dim_out=1, pairs="interleaved")

    @property
    @override
    def whole(self) -> bool:
        return self.format == "encoder"

    @property
    @override
    def seen(self) -> tuple[int, ...]:
        return (self.points - 1,) if self.whole else tuple(range(self.points))


class NoisyRegressionTask(RegressionTask):
    noise: float = Field(0.0, ge=0, le=LARGEST_NOISE)
    """σ, the standard deviation of the noise in y."""

    @property
    @override
    def noise_variance(self) -> float:
        return self.noise**2


def pose(problem: Regression, format: Format = "decoder") -> Batch:
    """The problem as a batch of prompts.

    A decoder's prompt also contains the last y, as in @garg2022 and @yang2023. A causal mask hides it from all
    queries.
    """
    points = problem.ys.shape[1]
    if format == "encoder":
        return Batch(
            tokens=side_by_side(problem.xs, problem.ys),
            targets=problem.ys[:, -1:, None],
            queries=torch.arange(points - 1, points),
            problem=replace(problem, first=points - 1),
        )
    return Batch(
        tokens=interleave(problem.xs, problem.ys),
        targets=problem.ys[..., None],
        queries=torch.arange(0, 2 * points, 2),
        problem=problem,
    )


def side_by_side(
    xs: Float[Tensor, "batch points dim"], ys: Float[Tensor, "batch points"]
) -> Float[Tensor, "batch points dim+2"]:
    """Tokens (x_1, 1, y_1), .., (x_N, 0, 0): one pair per token. The flag is 1 if y is known; the query has y = 0.

    @liu2025slides appends a position and then the flag. Here nets have their own positions, and y is the last
    coordinate.
    """
    known = torch.ones_like(ys)
    known[:, -1] = 0
    return torch.cat([xs, known[..., None], (ys * known)[..., None]], dim=-1)


def interleave(
    xs: Float[Tensor, "batch points dim"], ys: Float[Tensor, "batch points"]
) -> Float[Tensor, "batch 2*points dim+1"]:
    """Tokens x1, y1, x2, y2, ... An x fills the first `dim` coordinates of its token, a y the last coordinate.

    The separate coordinate for y distinguishes the tokens without a type flag. @yang2023 put y into the first
    coordinate of x.
    """
    x_tokens = torch.nn.functional.pad(xs, (0, 1))
    y_tokens = torch.nn.functional.pad(ys[..., None], (xs.shape[-1], 0))
    return torch.stack([x_tokens, y_tokens], dim=2).flatten(1, 2)


def only_first(xs: Float[Tensor, "*batch dim"], active: int | None) -> Float[Tensor, "*batch dim"]:
    """`xs` with zeros after the first `active` coordinates, as in the curriculum of @garg2022."""
    if active is None:
        return xs
    return xs * (torch.arange(xs.shape[-1], device=xs.device) < active)
