"""What the regression tasks share: the pairs that a solver reads, and the tokens that a model reads."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from loopscale.core.prompt import Batch


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


@dataclass(frozen=True)
class Regression(Pairs):
    """Pairs that stand in the prompt as x1, y1, x2, y2, ..., every y a number."""

    ys: Float[Tensor, "batch points"]


@dataclass(frozen=True)
class VectorRegression(Pairs):
    """Pairs whose y is a vector: coordinates with weights of their own, alike and independent."""

    ys: Float[Tensor, "batch points dim_out"]


def pose(problem: Regression) -> Batch:
    """The problem as a prompt x1, y1, x2, y2, ... with a prediction asked for at every x.

    The last y is fed as well, as in Garg et al. and Yang et al.; under a causal mask no query sees it.
    """
    return Batch(
        tokens=interleave(problem.xs, problem.ys),
        targets=problem.ys[..., None],
        queries=torch.arange(0, 2 * problem.ys.shape[1], 2),
        problem=problem,
    )


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


def check_easier(dim: int, points: int, largest_dim: int, largest_points: int) -> None:
    """Raises ValueError unless `dim` and `points` lie within what the whole task has."""
    for name, value, largest in (("dim", dim, largest_dim), ("points", points, largest_points)):
        if not 1 <= value <= largest:
            raise ValueError(f"no easier task with {name} {value}; write {name} 1 .. {largest}")
