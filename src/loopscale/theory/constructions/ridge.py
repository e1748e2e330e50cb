"""Ridge regression by plain and accelerated gradient steps on every prefix, and by Newton's iteration.

The nets read tokens (x_i, y_i) and output w at every token. Registers hold data-independent numbers: d further pairs
(√λ e_k, 0), whose squares add up to the penalty, or the columns of matrices.
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor
from torch.nn.functional import normalize, pad
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions import matrices
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows
from loopscale.theory.constructions.example import Example, Limit, Stated
from loopscale.theory.constructions.gadgets import SoftmaxSums
from loopscale.theory.constructions.logic import SignedAttention, signed_heads

SYSTEM = "decision making"


SQRT_LAYERS = "Õ(√T) for T rounds"


class Curvature(Construction):
    """Shared by constructions that solve with λI + Σ_i x_i x_i': bounds on the eigenvalues of this matrix."""

    penalty: PositiveFloat = 1.0
    """λ."""
    bound: PositiveFloat = 3.0
    """An upper bound on |x|."""

    def largest(self, pairs: int) -> float:
        """λ + pairs · bound², an upper bound on the eigenvalues."""
        return self.penalty + pairs * self.bound**2

    @override
    def stated(self, prompt: Prompt) -> Stated:
        accuracy = "logarithms of the probabilities of soft LinUCB within ε"
        return Stated(accuracy, layers=SQRT_LAYERS, width="O(dA) for A arms")

    def features(self, prompt: Prompt) -> int:
        """d, for tokens (x, y) with output w. Raises ValueError if the prompt does not fit."""
        fits = prompt.dim_in == prompt.dim_out + 1
        self.require(
            fits, "tokens that hold x's coordinates and then y, and outputs with as many coordinates as x"
        )
        return prompt.dim_out


class PrefixDescent(Curvature, SoftmaxSums):
    """Shared by plain and accelerated steps: the prefix of i tokens has its own w, by causal attention.

    Token i descends from 0 on `(λ|w|² + Σ_{j<=i} (w·x_j - y_j)²) / 2`, divided by i + d if `mean` is set. The step is
    1 / (the largest curvature that `bound` allows).
    """

    source: ClassVar[str] = "@lin2024, theorem 8 (its ridge regression)"
    accelerated: ClassVar[bool] = False
    variant: Literal["linear", "relu", "sink"] = "linear"
    """How products are summed: exactly (linear, relu), or with softmax (sink) as `scale` goes to 0."""
    mean: bool = False
    """True if sums are divided by the number of tokens, as linear and relu attention do without further weights."""
    depth: PositiveFloat = 34.0
    """C, the score of the sink without log N."""

    @property
    @override
    def limit(self) -> Limit | None:
        return self.scale_limit(coarser=10.0) if self.variant == "sink" else None

    def curvatures(self, length: int, dim: int) -> tuple[float, float]:
        """Bounds on the smallest and the largest curvature over all prefixes."""
        if self.mean:
            return self.penalty / (dim + length), self.bound**2 + self.penalty / (dim + 1)
        return self.penalty, self.largest(length)

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(not (self.mean and self.variant == "sink"), "mean: false with softmax attention")
        dim, sink = self.features(prompt), int(self.variant == "sink")
        rows = StateRows(x=dim, y=1, w=dim, v=dim, g=dim, one=1, sink=1)
        registers = [rows.state(sink, one=1.0, sink=1.0), penalty_registers(rows, dim, self.penalty)]
        return Design(
            rows,
            rows.read_in("x", "y"),
            rows["w"],
            torch.cat([*registers, rows.state(prompt.length, one=1.0)]),
            loop=[self._step(rows, *self.curvatures(prompt.length, dim))],
            attention="softmax" if self.variant == "sink" else self.variant,
            causal=True,
            normaliser="position" if self.mean else "none",
        )

    @override
    def example(self, rng: torch.Generator) -> Example:
        x, y = random_bounded_regression(rng, dim=3, pairs=10, bound=self.bound)
        smallest, largest = self.curvatures(length=10, dim=3)
        carried = nesterov_momentum(smallest, largest) if self.accelerated else 0.0
        weights = nesterov_descent(*prefix_moments(x, y, self.penalty, self.mean), largest, carried, steps=20)
        return Example(torch.cat([x, y[..., None]], -1), weights)

    def _step(self, rows: StateRows, smallest: float, largest: float) -> BlockPlan:
        if not self.accelerated:
            return self._gradient(rows, "w", "w", largest)
        plan = self._gradient(rows, "v", "g", largest)
        return add_nesterov_update(
            plan, rows["w"], rows["v"], rows["g"], nesterov_momentum(smallest, largest)
        )

    def _gradient(self, rows: StateRows, at: str, target: str, largest: float) -> BlockPlan:
        """Heads that add -Σ_j (v·x_j - y_j) x_j / largest to the target rows, where v stands in the rows named `at`."""
        mean = self.summed_by(self.variant)
        query, key = torch.cat([rows[at], -rows["one"]]), torch.cat([rows["x"], rows["y"]])
        return mean.add(BlockPlan(), query, key, (-rows["x"] / largest, rows[target]), mean.sink(rows))


class RidgeDescent(PrefixDescent, kind="ridge_descent"):
    """Plain gradient descent on ridge regression, for every prefix at once. One block per step."""

    algorithm = "gradient descent on the ridge objective of every prefix"


class RidgeAcceleration(PrefixDescent, kind="ridge_acceleration"):
    """Nesterov's accelerated descent on ridge regression, for every prefix at once. One block per step.

    The gradient is taken at v: w' = v - ∇(v)/L, v' = w' + m (w' - w).
    """

    algorithm = "accelerated gradient descent on the ridge objective of every prefix"
    accelerated = True


class RidgeNewton(Curvature, kind="ridge_newton"):
    """Ridge regression on all pairs by Newton's iteration for the inverse, with full attention. One block per step.

    Register j holds the j-th columns of S = λI + Σ_i x_i x_i' and of M. M starts at I/c and becomes 2M - M S M. One
    layer before the loop sums S and b = Σ_i y_i x_i, and one layer after the loop computes M b. About log2(c/λ) + 5
    steps suffice.
    """

    source = "@gao2024, theorem 4.1; Newton-Schulz on the Gram matrix"
    algorithm = "Newton's iteration for (λI + X'X)⁻¹, from I/c"
    attention: SignedAttention = "linear"
    """The kind of attention. Both kinds are exact."""

    @override
    def design(self, prompt: Prompt) -> Design:
        dim, kind = self.features(prompt), self.attention
        rows = StateRows(x=dim, y=1, b=dim, w=dim, one=1, e=dim, s=dim, m=dim)
        before = matrices.add_squares(BlockPlan(), rows, kind)
        signed_heads(before, kind, [(rows["one"], rows["y"])], [(rows["x"], rows["b"])])
        start = matrices.register_states(rows, dim, s=self.penalty, m=1 / self.largest(prompt.length))
        positions = torch.cat([start, rows.state(prompt.length, one=1.0)])
        loop, after = (
            matrices.inverse_step(rows, kind),
            matrices.multiply(BlockPlan(), rows, kind, "m", "b", "w"),
        )
        return Design(rows, rows.read_in("x", "y"), rows["w"], positions, [before], [loop], [after], kind)

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated(
            "one loop is one Newton step of the regression; no rate", "1 pre + 1 loop + 2 post", "2"
        )

    @override
    def example(self, rng: torch.Generator) -> Example:
        x, y = random_bounded_regression(rng, dim=3, pairs=20, bound=self.bound)
        second, moment = (moments[:, -1] for moments in prefix_moments(x, y, self.penalty))
        weights = inverse_iterates(second, self.largest(pairs=20), steps=14) @ moment[..., None]
        return Example(torch.cat([x, y[..., None]], -1), weights.mT.expand(-1, -1, 20, -1))


def nesterov_momentum(smallest: float, largest: float) -> float:
    """Nesterov's momentum for a quadratic with curvatures between `smallest` and `largest`."""
    root = (largest / smallest) ** 0.5
    return (root - 1) / (root + 1)


def add_nesterov_update(
    plan: BlockPlan, w: Tensor, v: Tensor, g: Tensor, momentum: float, push: Tensor | float = 0.0
) -> BlockPlan:
    """The MLP sets w' = v + g + push and v' = w' + momentum (w' - w), and clears g."""
    updated = v + g + push
    return plan.add(updated - w, w).add((1 + momentum) * updated - momentum * w - v, v).clear(g)


def penalty_registers(rows: StateRows, dim: int, penalty: float) -> Tensor:
    """Registers (√λ e_k, 0), whose squares add up to the penalty λI."""
    return rows.state(dim, one=1.0, x=penalty**0.5 * torch.eye(dim, dtype=torch.float64))


def random_bounded_regression(
    rng: torch.Generator, dim: int, pairs: int, bound: float, prompts: int = 8
) -> tuple[Float[Tensor, "prompts pairs dim"], Float[Tensor, "prompts pairs"]]:
    """xs with |x| at most `bound`, and ys linear in x with noise. ys are of order 1 for every bound."""
    normal = torch.randn(prompts, pairs + 1, dim, generator=rng, dtype=torch.float64)
    length, noise = torch.rand(2, prompts, pairs, 1, generator=rng, dtype=torch.float64)
    x = bound * length * normalize(normal[:, 1:], dim=-1)
    return x, (x @ normal[:, :1].mT / bound + 0.3 * (2 * noise - 1))[..., 0]


def pair_and_arm_tokens(
    x: Float[Tensor, "prompts pairs dim"],
    y: Float[Tensor, "prompts pairs"],
    others: Float[Tensor, "prompts others dim"],
) -> Float[Tensor, "prompts tokens dim_in"]:
    """Pairs (x, y, 0), then (0, 0, other)."""
    dim = x.shape[-1]
    return torch.cat([pad(torch.cat([x, y[..., None]], -1), (0, dim)), pad(others, (dim + 1, 0))], 1)


def prefix_moments(
    x: Float[Tensor, "prompts pairs dim"],
    y: Float[Tensor, "prompts pairs"],
    penalty: float,
    mean: bool = False,
) -> tuple[Float[Tensor, "prompts pairs dim dim"], Float[Tensor, "prompts pairs dim"]]:
    """λI + Σ_j x_j x_j' and Σ_j y_j x_j over the first i pairs, divided by i + d if `mean` is set."""
    pairs, dim = x.shape[1:]
    second = penalty * torch.eye(dim, dtype=x.dtype) + (x[..., None] * x[..., None, :]).cumsum(1)
    share = 1 / (dim + torch.arange(1, pairs + 1, dtype=x.dtype)[:, None]) if mean else x.new_ones(pairs, 1)
    return share[..., None] * second, share * (x * y[..., None]).cumsum(1)


def nesterov_descent(
    second: Float[Tensor, "prompts #points dim dim"],
    moment: Float[Tensor, "prompts points dim"],
    largest: float,
    momentum: float,
    steps: int,
) -> Float[Tensor, "steps prompts points dim"]:
    """w after every step of size 1 / largest from 0 towards second · w = moment. Momentum 0 is plain descent."""
    w, ahead, iterates = torch.zeros_like(moment), torch.zeros_like(moment), []
    for _ in range(steps):
        last, w = w, ahead - ((second @ ahead[..., None])[..., 0] - moment) / largest
        ahead = w + momentum * (w - last)
        iterates.append(w)
    return torch.stack(iterates)


def inverse_iterates(
    matrices: Float[Tensor, "prompts dim dim"], largest: float, steps: int
) -> Float[Tensor, "steps prompts dim dim"]:
    """M after every step of Newton's iteration M <- 2M - M S M, from I / largest, for the inverse of each matrix S."""
    inverse, iterates = torch.eye(matrices.shape[-1], dtype=matrices.dtype) / largest, []
    for _ in range(steps):
        inverse = 2 * inverse - inverse @ matrices @ inverse
        iterates.append(inverse)
    return torch.stack(iterates)
