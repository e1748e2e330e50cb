"""Gradient descent on least squares with full attention, on x or on a representation of x [@gao2024, A.2 and 3.1].

The net reads x_1, y_1, ..., x_N, y_N, x_test and predicts y at x_test. The state holds the residual
`u_j = w_k·x_j - y_j` on every pair, and w_k·x_test on the test token. A loop subtracts `rate · (1/N) Σ_j u_j (x_j·x_i)`
from every u_i. This is one step of gradient descent from 0 on `(1/2N) Σ_j (w·x_j - y_j)²`. If y has several
coordinates, each coordinate has its own w.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.tasks.regression import Regression
from loopscale.tasks.representation_regression import RepresentationRegression
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows
from loopscale.theory.constructions.example import Example, Limit, Stated
from loopscale.theory.constructions.gadgets import (
    UNDERFLOW,
    AnySums,
    Variant,
    hide_keys,
    nearest_position,
)

SYSTEM = "AlgoFormer"


class FullAttention(AnySums):
    """Shared by constructions that read pairs and a test token with full (non-causal) attention."""

    solves = Regression

    @property
    @override
    def limit(self) -> Limit | None:
        return self.scale_limit() if self.order else None

    def pairs(self, prompt: Prompt) -> int:
        """N, for a prompt of 2N + 1 tokens. Raises ValueError if the prompt does not fit."""
        self.require(prompt.length % 2 == 1, "an odd number of tokens: x_1, y_1, ..., x_N, y_N, x_test")
        self.require(prompt.dim_in > prompt.dim_out, "tokens that hold x's coordinates and then y's")
        self.require(self.variant != "mirrored" or self.expansion > 1, "expansion 2 or 4 with mirrored keys")
        return prompt.length // 2

    @property
    def summing(self) -> Kind:
        """The kind of attention that sums products. Tokens are selected by softmax attention."""
        return "softmax" if self.variant in ("mirrored", "sink") else self.variant


class PairTokens:
    """The state rows that distinguish tokens, and the layers that copy x and y between the tokens of a pair."""

    SIZES: ClassVar[dict[str, int]] = dict.fromkeys(("one", "tx", "ty", "test", "sink", "p", "p2"), 1)

    def __init__(self, rows: StateRows, pairs: int, sink: bool) -> None:
        self.rows, self.pairs, self.has_sink = rows, pairs, sink

    @property
    def positions(self) -> Tensor:
        index = torch.arange(2 * self.pairs + 1)
        p, odd = index // 2 + 1.0, (index % 2).double()
        prompt = self.rows.state(
            len(index), one=1.0, tx=1 - odd, ty=odd, test=(index == index[-1]).double(), p=p, p2=p**2
        )
        return torch.cat([self.rows.state(int(self.has_sink), one=1.0, sink=1.0), prompt])

    def copy(self, plan: BlockPlan, target: str, sign: float) -> BlockPlan:
        """A head that gives the x of a pair its y, times `sign`. All other tokens read 0 from the test token."""
        rows = self.rows
        to_test = UNDERFLOW * ((self.pairs + 1) ** 2 + 2) * (rows["ty"] + rows["sink"])
        score = [*nearest_position(rows), hide_keys(rows, rows["tx"] - rows["test"]), (to_test, rows["test"])]
        return plan.head(score, [(sign * rows["y"], rows[target])])

    def keys(self, plan: BlockPlan, variant: Variant) -> BlockPlan:
        """Fill kx. Mirrored keys: x on the x of a pair, -x on its y. Otherwise: x on pairs, 0 on the test token."""
        rows = self.rows
        own_x = [*nearest_position(rows), hide_keys(rows, rows["ty"])]
        if variant == "mirrored":
            return plan.head(own_x, [(-rows["x"], rows["kx"])]).add(2 * rows["x"], rows["kx"])
        to_a_y = (UNDERFLOW * (2 * (self.pairs + 1) ** 2 + 2) * rows["test"], rows["ty"])
        return plan.head([*own_x, to_a_y], [(rows["x"], rows["kx"])])

    def unseen(self, variant: Variant) -> list:
        """Score terms that hide the test token as a key. In relu and linear attention its key kx is 0 instead."""
        return [hide_keys(self.rows, self.rows["test"])] if variant in ("mirrored", "sink") else []


class GradientDescent(FullAttention, kind="gradient_descent"):
    """The solver `gradient_descent` with the same rate: one layer before the loop, one block in the loop."""

    source = "@gao2024, lemma A.2 and theorem 3.1"
    algorithm = "gradient_descent"
    rate: PositiveFloat = 0.1
    """η, the step size for the mean over the pairs."""

    @override
    def design(self, prompt: Prompt) -> Design:
        return self._design(prompt, prompt.dim_in - prompt.dim_out, ())

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return self._stated(representation=0)

    def _stated(self, representation: int) -> Stated:
        layers = f"{representation + 1} pre + 1 loop + 1 post"
        return Stated.of_loops("gradient step", layers, heads="2, and 1 after the loop")

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, ys = random_linear_regression(rng, dim=5, pairs=20)
        return Example.at_last(interleaved_tokens(xs, ys), least_squares_descent(xs, ys, self.rate, steps=20))

    def _design(self, prompt: Prompt, width: int, represent: Sequence[Tensor], slope: float = 1.0) -> Design:
        """The net on x, or on leaky ReLU layers with the matrices `represent` [in, out], at most `width` wide."""
        pairs, targets = self.pairs(prompt), prompt.dim_out
        dim = prompt.dim_in - targets
        rows = StateRows(x=width, y=targets, kx=width, u=targets, **PairTokens.SIZES)
        tokens = PairTokens(rows, pairs, sink=self.variant == "sink")
        before = [leaky_layer(rows, weight.double().T, slope) for weight in represent]
        before.append(tokens.keys(tokens.copy(BlockPlan(), "u", -1.0), self.variant))
        mean, key = (
            self.summed_by(self.variant, max(pairs, 1)),
            rows["x"] if self.variant == "sink" else rows["kx"],
        )
        selection = [*tokens.unseen(self.variant), *mean.sink(rows)]
        loop = mean.add(BlockPlan(), rows["x"], key, (-self.rate * rows["u"], rows["u"]), selection)
        read_in = torch.cat([rows.part("x", 0, dim), rows["y"]]).T
        selecting: list[Kind] = ["softmax" for _ in before]
        return Design(
            rows, read_in, rows["u"], tokens.positions, before, [loop], attention=[*selecting, self.summing]
        )


class RepresentationDescent(GradientDescent, kind="representation_descent"):
    """Gradient descent on Φ(x). The net has one more layer for each layer of Φ, before the layer that pairs x and y.

    Φ is computed exactly. It is the Φ of the task `representation_regression` with the same settings.
    """

    source = "@gao2024, theorem 3.1"
    rate: PositiveFloat = 0.05
    """η, the step size for the mean over the pairs. Features have a large common mean: twice this rate may diverge."""
    layers: PositiveInt = 3
    """The number of layers of Φ."""
    width: PositiveInt = 20
    """The width of Φ."""
    slope: float = Field(0.01, ge=0, le=1)
    """The slope of Φ's leaky ReLU below 0."""
    gain: PositiveFloat = 1.0
    """The gain of Φ's layers, as in the task."""
    representation_seed: int = Field(0, ge=0)
    """The seed from which Φ is drawn."""

    @override
    def design(self, prompt: Prompt) -> Design:
        dim = prompt.dim_in - prompt.dim_out
        return self._design(prompt, max(dim, self.width), self._task(dim).representation.weights, self.slope)

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return self._stated(self.layers)

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, _ = random_linear_regression(rng, dim=5, pairs=20)
        features = self._task(dim=5).representation(xs)
        ys = features @ torch.randn(len(xs), self.width, 1, generator=rng, dtype=torch.float64)
        return Example.at_last(
            interleaved_tokens(xs, ys), least_squares_descent(features, ys, self.rate, steps=20)
        )

    def _task(self, dim: int) -> RepresentationRegression:
        names = ("layers", "width", "slope", "gain", "representation_seed")
        return RepresentationRegression(dim=dim, **{name: getattr(self, name) for name in names})


def random_linear_regression(
    rng: torch.Generator, dim: int, pairs: int, targets: int = 1, prompts: int = 8
) -> tuple[Float[Tensor, "prompts points dim"], Float[Tensor, "prompts points targets"]]:
    """xs and ys of the pairs and of one test point. y is linear in x, without noise."""
    xs = torch.randn(prompts, pairs + 1, dim, generator=rng, dtype=torch.float64)
    w = torch.randn(prompts, dim, targets, generator=rng, dtype=torch.float64)
    return xs, xs @ w


def interleaved_tokens(
    xs: Float[Tensor, "prompts points dim"], ys: Float[Tensor, "prompts points targets"]
) -> Float[Tensor, "prompts tokens dim_in"]:
    """x_1, y_1, ..., x_N, y_N, x_test."""
    x, y = pad(xs, (0, ys.shape[-1])), pad(ys, (xs.shape[-1], 0))
    return torch.stack([x, y], 2).flatten(1, 2)[:, :-1]


def least_squares_descent(
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points targets"],
    rate: float,
    steps: int,
) -> Float[Tensor, "steps prompts targets"]:
    """The prediction at the last point after every step of gradient descent from 0 on all other points."""
    inputs, targets = xs[:, :-1], ys[:, :-1]
    weights, guesses = xs.new_zeros(len(xs), xs.shape[2], ys.shape[2]), []
    for _ in range(steps):
        residuals = inputs @ weights - targets
        weights = weights - rate / inputs.shape[1] * inputs.mT @ residuals
        guesses.append((xs[:, -1:] @ weights)[:, 0])
    return torch.stack(guesses)


def leaky_layer(rows: StateRows, weight: Tensor, slope: float, name: str = "x") -> BlockPlan:
    """x <- leaky(W x) with W [out, in], exactly, in a block without heads. Rows beyond W's outputs become 0."""
    size_out, size_in = weight.shape
    image = torch.zeros_like(rows[name])
    image[:size_out] = weight @ rows.part(name, 0, size_in)
    plan = BlockPlan().unit(image, 0.0, rows[name]).unit(-image, 0.0, -slope * rows[name])
    return plan.clear(rows[name])
