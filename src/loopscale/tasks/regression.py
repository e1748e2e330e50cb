"""What the regression tasks share: the pairs that a solver reads, and the tokens that a model reads.

A prompt comes in one of two formats (slides on He et al. 2025, definitions of the inputs). In a decoder's, x_1, y_1,
x_2, y_2, .., every x is a query, which under a causal mask sees the pairs before it. In an encoder's a token holds a
pair, and the last one the only query: it sees all pairs, and nothing in the prompt tells its answer, so that a net may
look ahead.

Whether the loss is that of every query or of the last one alone follows from the format, and is no setting beside it.
A decoder is trained on all, and its `error_last` reports the last. An encoder cannot be: in its prompt every other x
stands in one token with its y, and all tokens see that one, so that a query there would only have to copy its answer.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.tasks.graded import GradedTask

Format = Literal["decoder", "encoder"]
"""Of a prompt: x_1, y_1, x_2, y_2, .. with a query at every x, or pairs side by side with one query at the end."""


@dataclass(frozen=True)
class Pairs:
    """The pairs themselves, and what a Bayesian would know of them. The k-th query may use only the k pairs
    before it. Regression solvers take any; a y is a number (`Regression`) or a vector (`VectorRegression`).
    """

    xs: Float[Tensor, "batch points dim"]
    ys: Float[Tensor, "batch points *dim_out"]
    noise_variance: float
    """σ², of every y."""
    weight_variance: float
    """τ², of every weight before a pair is seen: of w on `xs`, or on `representation` where there is one."""
    representation: Float[Tensor, "batch points width"] | None = None
    """Φ(x), where y is linear in that rather than in x."""
    first: int = 0
    """The first x at which a prediction is asked for, and then at all after it: 0, or the last one alone."""


@dataclass(frozen=True)
class Regression(Pairs):
    """Pairs in one of the two formats, every y a number."""

    ys: Float[Tensor, "batch points"]


@dataclass(frozen=True)
class VectorRegression(Pairs):
    """Pairs whose y is a vector: coordinates with weights of their own, alike and independent."""

    ys: Float[Tensor, "batch points dim_out"]


class RegressionTask(GradedTask):
    """N = `points` pairs of x, of d = `dim` coordinates, and a y that is a number."""

    format: Format = "decoder"
    """Of the prompt, and thereby of the loss. decoder: x_1, y_1, x_2, .., asked and judged at every x. encoder: pairs
    side by side, asked and judged at the last x alone, for nets that look ahead: they would see any other answer.
    """

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


def pose(problem: Regression, format: Format = "decoder") -> Batch:
    """The problem as a prompt.

    For a decoder the last y is fed as well, as in Garg et al. and Yang et al.; under a causal mask no query sees it.
    """
    points = problem.ys.shape[1]
    if format == "encoder":
        return Batch(
            tokens=side_by_side(problem.xs, problem.ys),
            targets=problem.ys[:, -1:, None],
            queries=torch.tensor([points - 1]),
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
    """(x_1, 1, y_1), .., (x_N, 0, 0): a pair a token, its flag 1, and last the query, its flag and its y 0.

    The slides put the flag last, after a position, which a net here has of its own; y stays the last coordinate.
    """
    known = torch.ones_like(ys)
    known[:, -1] = 0
    return torch.cat([xs, known[..., None], (ys * known)[..., None]], dim=-1)


def interleave(
    xs: Float[Tensor, "batch points dim"], ys: Float[Tensor, "batch points"]
) -> Float[Tensor, "batch 2*points dim+1"]:
    """x1, y1, x2, y2, ...: an x fills the first `dim` coordinates of its token, a y the last one.

    A coordinate of its own for y tells the tokens apart without a type flag; Yang et al. put y in x's first
    one.
    """
    x_tokens = torch.nn.functional.pad(xs, (0, 1))
    y_tokens = torch.nn.functional.pad(ys[..., None], (xs.shape[-1], 0))
    return torch.stack([x_tokens, y_tokens], dim=2).flatten(1, 2)


def only_first(xs: Float[Tensor, "*batch dim"], active: int | None) -> Float[Tensor, "*batch dim"]:
    """`xs` with every coordinate after the first `active` at zero, as the curriculum of Garg et al. truncates
    them.
    """
    if active is None:
        return xs
    return xs * (torch.arange(xs.shape[-1]) < active)
