"""Two clusters by the sign of the first principal component.

The net reads points, one per token, from two clusters on opposite sides of 0. It outputs -1 or 1 at every point: the
sign of x_i·v, where v is the first eigenvector of (1/N) Σ_i x_i x_i'. The start of v determines which cluster is 1.
"""

import torch
from jaxtyping import Float
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows
from loopscale.theory.constructions.example import Example, Stated
from loopscale.theory.constructions.principal_components import PowerIterations, covariance_plan, power_method

SYSTEM = "spectral methods"


class SpectralClustering(PowerIterations, kind="spectral_clustering"):
    """The sign, up to rounding, where |x_i·v| is at least `margin`. Nearer to 0 the output is x_i·v / `margin`.

    The net has 2 + 2 `iterations` + `polish` layers. The last layer outputs the signs.
    """

    source = "@he2025spectral, theorem 3.2"
    algorithm = "spectral_clustering"
    iterations: PositiveInt = 20
    """The number of iterations of the power method."""
    margin: PositiveFloat = 1e-3
    """The |x_i·v| from which on a label is -1 or 1."""

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated(
            "an error (d ln²N / N)^⅓ + C n^(-1/7) after training; the number of layers is not known here"
        )

    @override
    def example(self, rng: torch.Generator) -> Example:
        x = random_clusters(rng, self.eigenvalues)
        projected = projections(x, self.starts(x.shape[2], 1), self.iterations)
        clear = projected.abs() >= 2 * self.margin  # the norm of v is off by less than a factor 2
        self.require(
            bool(clear.any(1).all()), f"a margin below the distances between points, not {self.margin:g}"
        )
        expected = projected.new_full((2 + 2 * self.iterations + self.polish, *projected.shape, 1), torch.nan)
        expected[-1, ..., 0] = torch.where(clear, projected.sign(), torch.nan)
        return Example(x, expected)

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(prompt.dim_out == 1, "targets of one coordinate")
        dim = prompt.dim_in
        rows = StateRows(x=dim, A=dim, E=dim, u=dim, v=dim, one=1, first=1, projection=1, label=1)
        one, label, over = rows["one"], rows["label"], rows["projection"] / self.margin
        signs = BlockPlan().signed_pair([(rows["x"], rows["v"])], [(one, rows["projection"])])
        signs.unit(over + one, 0.0, label).unit(over - one, 0.0, -label).constant(label, -1.0)
        plans = [
            covariance_plan(rows, prompt.length),
            *self.iterated(rows, rows["v"], self.iterations),
            signs,
        ]
        positions = self.positions(rows, dim, prompt.length)
        return Design(rows, rows.read_in("x"), label, positions, plans, attention="relu")


def random_clusters(
    rng: torch.Generator, eigenvalues: tuple[float, float], dim: int = 4, count: int = 20, prompts: int = 8
) -> Float[Tensor, "prompts count dim"]:
    """Points around a centre and around its opposite, scaled so that the first eigenvalue lies in the given range."""
    side = torch.randint(2, (prompts, count, 1), generator=rng) * 2.0 - 1.0
    centre, noise = (
        torch.randn(prompts, size, dim, generator=rng, dtype=torch.float64) for size in (1, count)
    )
    x = side * centre + 0.3 * noise
    first = torch.linalg.matrix_norm(x, ord=2, keepdim=True) / count**0.5
    return x / first * (eigenvalues[0] * eigenvalues[1] ** 3) ** (1 / 8)


def projections(
    points: Float[Tensor, "prompts count dim"], start: Float[Tensor, "1 dim"], iterations: int
) -> Float[Tensor, "prompts count"]:
    """x_i·v, with v after `iterations` iterations of the power method. The sign is the cluster of the point."""
    return (points @ power_method(points, start, iterations).mT)[..., 0]
