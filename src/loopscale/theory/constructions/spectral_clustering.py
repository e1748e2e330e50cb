"""Two clusters by the sign of the first principal component.

The net reads points, a token each, whose clusters are on either side of 0, and puts out -1 or 1 at every one: the sign
of x_i·v, where v is the first eigenvector of (1/N) Σ x_i x_i'. Which cluster is 1 is v's start to say.
"""

import torch
from jaxtyping import Float
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.example import Example
from loopscale.theory.constructions.plan import Plan, Rows
from loopscale.theory.constructions.principal_components import PowerMethod, covariance, powers


class SpectralClustering(PowerMethod, kind="spectral_clustering"):
    """The sign, but for rounding, wherever |x_i·v| is `margin` or more, and x_i·v / `margin` nearer to 0.

    There are 2 + 2 `iterations` + `polish` layers, and the last puts out the signs.
    """

    source = "He et al. 2025, spectral clustering of two-component Gaussian mixtures by transformers"
    algorithm = "spectral_clustering"
    iterations: PositiveInt = 20
    """Of the power method."""
    margin: PositiveFloat = 1e-3
    """Of |x_i·v|, from which on a label is whole."""

    @override
    def example(self, rng: torch.Generator) -> Example:
        x = clusters(rng, self.eigenvalues)
        found = projections(x, self.starts(x.shape[2], 1), self.iterations)
        clear = found.abs() >= 2 * self.margin  # a norm is never so far off
        self.require(bool(clear.any(1).all()), f"a margin below what points lie apart, not {self.margin:g}")
        expected = found.new_full((2 + 2 * self.iterations + self.polish, *found.shape, 1), torch.nan)
        expected[-1, ..., 0] = torch.where(clear, found.sign(), torch.nan)
        return Example(x, expected)

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(prompt.dim_out == 1, "targets of one coordinate")
        dim = prompt.dim_in
        rows = Rows(x=dim, A=dim, E=dim, u=dim, v=dim, one=1, first=1, projection=1, label=1)
        one, label, over = rows["one"], rows["label"], rows["projection"] / self.margin
        signs = Plan().pair([(rows["x"], rows["v"])], [(one, rows["projection"])])
        signs.unit(over + one, 0.0, label).unit(over - one, 0.0, -label).constant(label, -1.0)
        plans = [covariance(rows, prompt.length), *self.iterated(rows, rows["v"], self.iterations), signs]
        positions = self.positions(rows, dim, prompt.length)
        return Design(
            rows, rows["x"].T, label, positions, plans,
            attention="relu", registers=len(positions) - prompt.length,
        )  # fmt: skip


def clusters(
    rng: torch.Generator, eigenvalues: tuple[float, float], dim: int = 4, count: int = 20, prompts: int = 8
) -> Float[Tensor, "prompts count dim"]:
    """Points about a centre and its opposite, as large as makes the first eigenvalue one between these two."""
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
    """x_i·v, v of so many iterations of the power method: a point's cluster is the sign."""
    return (points @ powers(points, start, iterations).mT)[..., 0]
