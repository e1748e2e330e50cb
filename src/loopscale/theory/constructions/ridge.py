"""Ridge regression by plain and accelerated gradient steps, one for every prefix, and by Newton's iteration.

The nets read tokens (x_i, y_i). Registers hold what does not depend on them: d further pairs (√λ e_k, 0), whose
squares are the penalty, or the columns of matrices. Read out is w, at every token.
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor
from torch.nn.functional import normalize, pad
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions import columns
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.gadgets import SEEN, Mean
from loopscale.theory.constructions.logic import Signed, passing
from loopscale.theory.constructions.plan import Plan, Rows


class Curvature(Construction):
    """What constructions share that solve with λI + Σ x_i x_i': bounds on its eigenvalues."""

    penalty: PositiveFloat = 1.0
    """λ."""
    bound: PositiveFloat = 3.0
    """|x| at most."""

    def largest(self, pairs: int) -> float:
        """λ + n·bound², at least as large as any eigenvalue of n pairs."""
        return self.penalty + pairs * self.bound**2

    def features(self, prompt: Prompt) -> int:
        """d, of tokens (x, y) of which w is asked for."""
        fits = prompt.dim_in == prompt.dim_out + 1
        self.require(fits, "tokens of x's coordinates and then y, and guesses of as many as x has")
        return prompt.dim_out


class Descent(Curvature):
    """What the two kinds of gradient step share: the prefix of i tokens has its own w, by causal attention.

    Token i descends on λ|w|² + Σ_{j≤i} (w·x_j - y_j)², halved, from 0; by mean, on that over i + d.
    The step is 1 over the largest curvature that the bound allows.
    """

    source: ClassVar[str] = "Lin et al. 2024 (Transformers as decision makers), ridge regression for LinUCB"
    accelerated: ClassVar[bool] = False
    variant: Literal["linear", "relu", "sink"] = "linear"
    """How sums are made: exactly, by linear or relu attention, or by softmax with a sink, in the limit of a scale."""
    mean: bool = False
    """Whether sums are divided by the number of tokens, which linear and relu attention do by themselves."""
    expansion: Literal[1, 2, 4] = 4
    """The order of the error in `scale`, of softmax."""
    scale: PositiveFloat = 1e-4
    """c, on the scores of softmax."""
    depth: PositiveFloat = 34.0
    """C, of the sink."""

    @property
    @override
    def limit(self) -> Limit | None:
        if self.variant != "sink":
            return None
        # Coarser than elsewhere: scores are about 1 and steps short, so that little of an error is seen.
        return Limit("scale", self.expansion, tuple(10 * scale for scale in SEEN[self.expansion]))

    def curvatures(self, length: int, dim: int) -> tuple[float, float]:
        """The smallest and the largest that the bound allows, over all prefixes."""
        if self.mean:
            return self.penalty / (dim + length), self.bound**2 + self.penalty / (dim + 1)
        return self.penalty, self.largest(length)

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(not (self.mean and self.variant == "sink"), "mean: false, where attention is softmax")
        dim, sink = self.features(prompt), int(self.variant == "sink")
        rows = Rows(x=dim, y=1, w=dim, v=dim, g=dim, one=1, sink=1)
        registers = [rows.state(sink, one=1.0, sink=1.0), further_pairs(rows, dim, self.penalty)]
        return Design(
            rows, torch.cat([rows["x"], rows["y"]]).T, rows["w"],
            torch.cat([*registers, rows.state(prompt.length, one=1.0)]),
            loop=[self._step(rows, *self.curvatures(prompt.length, dim))],
            attention="softmax" if self.variant == "sink" else self.variant,
            causal=True, normaliser="position" if self.mean else "none", registers=sink + dim,
        )  # fmt: skip

    @override
    def example(self, rng: torch.Generator) -> Example:
        x, y = problem(rng, dim=3, pairs=10, bound=self.bound)
        smallest, largest = self.curvatures(length=10, dim=3)
        carried = momentum(smallest, largest) if self.accelerated else 0.0
        weights = descent(*prefixes(x, y, self.penalty, self.mean), largest, carried, steps=20)
        return Example(torch.cat([x, y[..., None]], -1), weights)

    def _step(self, rows: Rows, smallest: float, largest: float) -> Plan:
        if not self.accelerated:
            return self._gradient(rows, "w", "w", largest)
        plan = self._gradient(rows, "v", "g", largest)
        return accelerate(plan, rows["w"], rows["v"], rows["g"], momentum(smallest, largest))

    def _gradient(self, rows: Rows, at: str, target: str, largest: float) -> Plan:
        """Heads that add -Σ_j (v·x_j - y_j) x_j / largest to a target, v being the rows named `at`."""
        mean = Mean(self.variant, 1, self.expansion, self.scale, self.depth)
        query, key = torch.cat([rows[at], -rows["one"]]), torch.cat([rows["x"], rows["y"]])
        return mean.add(Plan(), query, key, (-rows["x"] / largest, rows[target]), mean.sink(rows))


class RidgeDescent(Descent, kind="ridge_descent"):
    """Plain gradient descent on ridge regression, for every prefix at once: one block a step."""

    algorithm = "gradient descent on the ridge objective of every prefix"


class RidgeAcceleration(Descent, kind="ridge_acceleration"):
    """Nesterov's accelerated descent on ridge regression, for every prefix at once: one block a step.

    v is where the gradient is taken: w' = v - ∇(v)/L, v' = w' + m (w' - w).
    """

    algorithm = "accelerated gradient descent on the ridge objective of every prefix"
    accelerated = True


class RidgeNewton(Curvature, kind="ridge_newton"):
    """Ridge regression on all pairs by Newton's iteration for the inverse, by full attention: one block a step.

    Register j holds the j-th columns of S = λI + Σ x_i x_i' and of M, which starts at I/c and becomes 2M - MSM;
    a layer before the loop sums S and Σ y_i x_i, one after it multiplies the two. About log2(c/λ) + 5 steps.
    """

    source = "Gao et al. 2024 (AlgoFormer), theorem 4.1; Newton-Schulz on the Gram matrix"
    algorithm = "Newton's iteration for (λI + X'X)⁻¹, from I/c"
    attention: Signed = "linear"
    """Of the layers that multiply coordinates, exactly."""

    @override
    def design(self, prompt: Prompt) -> Design:
        dim, kind = self.features(prompt), self.attention
        rows = Rows(x=dim, y=1, b=dim, w=dim, one=1, e=dim, s=dim, m=dim)
        before = columns.add_squares(Plan(), rows, kind)
        passing(before, kind, [(rows["one"], rows["y"])], [(rows["x"], rows["b"])])
        start = columns.registers(rows, dim, s=self.penalty, m=1 / self.largest(prompt.length))
        return Design(
            rows, torch.cat([rows["x"], rows["y"]]).T, rows["w"],
            torch.cat([start, rows.state(prompt.length, one=1.0)]),
            [before], [columns.inverse_step(rows, kind)], [columns.apply(Plan(), rows, kind, "m", "b", "w")],
            kind, registers=dim,
        )  # fmt: skip

    @override
    def example(self, rng: torch.Generator) -> Example:
        x, y = problem(rng, dim=3, pairs=20, bound=self.bound)
        second, moment = (each[:, -1] for each in prefixes(x, y, self.penalty))
        weights = inverses(second, self.largest(pairs=20), steps=14) @ moment[..., None]
        return Example(torch.cat([x, y[..., None]], -1), weights.mT.expand(-1, -1, 20, -1))


def momentum(smallest: float, largest: float) -> float:
    """Nesterov's, for a quadratic with curvatures in between."""
    root = (largest / smallest) ** 0.5
    return (root - 1) / (root + 1)


def accelerate(
    plan: Plan, w: Tensor, v: Tensor, g: Tensor, momentum: float, push: Tensor | float = 0.0
) -> Plan:
    """The MLP sets w' = v + g + push and v' = w' + momentum (w' - w), and clears g."""
    moved = v + g + push
    return plan.add(moved - w, w).add((1 + momentum) * moved - momentum * w - v, v).clear(g)


def further_pairs(rows: Rows, dim: int, penalty: float) -> Tensor:
    """Registers whose squares sum to the penalty: pairs (√λ e_k, 0)."""
    return rows.state(dim, one=1.0, x=penalty**0.5 * torch.eye(dim, dtype=torch.float64))


def problem(
    rng: torch.Generator, dim: int, pairs: int, bound: float, prompts: int = 8
) -> tuple[Float[Tensor, "prompts pairs dim"], Float[Tensor, "prompts pairs"]]:
    """xs at most as long as the bound, and ys linear in them but for noise, about 1 whatever the bound is."""
    normal = torch.randn(prompts, pairs + 1, dim, generator=rng, dtype=torch.float64)
    length, noise = torch.rand(2, prompts, pairs, 1, generator=rng, dtype=torch.float64)
    x = bound * length * normalize(normal[:, 1:], dim=-1)
    return x, (x @ normal[:, :1].mT / bound + 0.3 * (2 * noise - 1))[..., 0]


def tokens(
    x: Float[Tensor, "prompts pairs dim"],
    y: Float[Tensor, "prompts pairs"],
    others: Float[Tensor, "prompts others dim"],
) -> Float[Tensor, "prompts tokens dim_in"]:
    """Pairs (x, y, 0), and then (0, 0, other)."""
    dim = x.shape[-1]
    return torch.cat([pad(torch.cat([x, y[..., None]], -1), (0, dim)), pad(others, (dim + 1, 0))], 1)


def prefixes(
    x: Float[Tensor, "prompts pairs dim"],
    y: Float[Tensor, "prompts pairs"],
    penalty: float,
    mean: bool = False,
) -> tuple[Float[Tensor, "prompts pairs dim dim"], Float[Tensor, "prompts pairs dim"]]:
    """λI + Σ x_j x_j' and Σ y_j x_j of the first i pairs; by mean, over i + d."""
    pairs, dim = x.shape[1:]
    second = penalty * torch.eye(dim, dtype=x.dtype) + (x[..., None] * x[..., None, :]).cumsum(1)
    share = 1 / (dim + torch.arange(1, pairs + 1, dtype=x.dtype)[:, None]) if mean else x.new_ones(pairs, 1)
    return share[..., None] * second, share * (x * y[..., None]).cumsum(1)


def descent(
    second: Float[Tensor, "prompts #points dim dim"],
    moment: Float[Tensor, "prompts points dim"],
    largest: float,
    momentum: float,
    steps: int,
) -> Float[Tensor, "steps prompts points dim"]:
    """Nesterov's steps from 0 towards the w with second · w = moment, of length 1 / largest; momentum 0 is plain."""
    w, ahead, found = torch.zeros_like(moment), torch.zeros_like(moment), []
    for _ in range(steps):
        last, w = w, ahead - ((second @ ahead[..., None])[..., 0] - moment) / largest
        ahead = w + momentum * (w - last)
        found.append(w)
    return torch.stack(found)


def inverses(
    matrices: Float[Tensor, "prompts dim dim"], largest: float, steps: int
) -> Float[Tensor, "steps prompts dim dim"]:
    """Newton's iteration M <- 2M - MSM for their inverses, from I / largest."""
    inverse, found = torch.eye(matrices.shape[-1], dtype=matrices.dtype) / largest, []
    for _ in range(steps):
        inverse = 2 * inverse - inverse @ matrices @ inverse
        found.append(inverse)
    return torch.stack(found)
