"""Gradient descent on least squares by full attention, and the same on a representation (AlgoFormer, A.2 and 3.1).

The net reads x_1, y_1, .., x_N, y_N, x_test, and guesses y at x_test. Its state keeps the residuals
u_j = w_k·x_j - y_j on the pairs and w_k·x_test on the test token; a loop subtracts
rate · (1/N) Σ_j u_j (x_j·x_i) from every one of them, which is a step of gradient descent from 0 on
(1/2N) Σ_j (w·x_j - y_j)², and on several targets at once where y has several coordinates.
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
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.gadgets import SEEN, SURE, Mean, Order, Variant, hidden, nearest
from loopscale.theory.constructions.plan import Plan, Rows


class FullAttention(Construction):
    """What constructions share that read pairs and a test token, and see all of them at once."""

    solves = Regression
    variant: Variant = "mirrored"
    """How products are summed: by softmax with mirrored keys or with a sink, or exactly by relu or linear attention."""
    expansion: Order = 4
    """The order of the error in `scale`, of softmax; 1, as printed in the paper, needs the sink."""
    scale: PositiveFloat = 1e-4
    """c, on the scores of softmax."""
    depth: PositiveFloat = 28.0
    """C, of the sink."""

    @property
    def order(self) -> Order | None:
        """The power of `scale` with which products are summed; `None` where they are exactly."""
        return self.expansion if self.variant in ("mirrored", "sink") else None

    @property
    @override
    def limit(self) -> Limit | None:
        return Limit("scale", self.order, SEEN[self.order]) if self.order else None

    def pairs(self, prompt: Prompt) -> int:
        """N, of a prompt of 2N + 1 tokens."""
        self.require(prompt.length % 2 == 1, "x_1, y_1, .., x_N, y_N, x_test, an odd number of tokens")
        self.require(prompt.dim_in > prompt.dim_out, "tokens of x's coordinates and then y's")
        self.require(
            self.variant != "mirrored" or self.expansion > 1, "expansion 2 or 4, where keys are mirrored"
        )
        return prompt.length // 2

    def mean(self, pairs: int) -> Mean:
        return Mean(self.variant, max(pairs, 1), self.expansion, self.scale, self.depth)

    @property
    def summing(self) -> Kind:
        """The kind of attention that sums products; that which chooses tokens is softmax."""
        return "softmax" if self.variant in ("mirrored", "sink") else self.variant


class Tokens:
    """The rows of the state that tell tokens apart, and what every token has in them."""

    SIZES: ClassVar[dict[str, int]] = dict.fromkeys(("one", "tx", "ty", "test", "sink", "p", "p2"), 1)

    def __init__(self, rows: Rows, pairs: int, sink: bool) -> None:
        self.rows, self.pairs, self.registers = rows, pairs, int(sink)

    @property
    def positions(self) -> Tensor:
        index = torch.arange(2 * self.pairs + 1)
        p, odd = index // 2 + 1.0, (index % 2).double()
        prompt = self.rows.state(
            len(index), one=1.0, tx=1 - odd, ty=odd, test=(index == index[-1]).double(), p=p, p2=p**2
        )
        return torch.cat([self.rows.state(self.registers, one=1.0, sink=1.0), prompt])

    def copy(self, plan: Plan, target: str, sign: float) -> Plan:
        """A head that gives the x of a pair its y, times `sign`; all others get exactly 0, of the test token."""
        rows = self.rows
        away = SURE * ((self.pairs + 1) ** 2 + 2) * (rows["ty"] + rows["sink"])
        score = [*nearest(rows), hidden(rows, rows["tx"] - rows["test"]), (away, rows["test"])]
        return plan.head(score, [(sign * rows["y"], rows[target])])

    def keys(self, plan: Plan, variant: Variant) -> Plan:
        """kx: for mirrored keys x on the x of a pair and -x on its y, else x on pairs and 0 on the test token."""
        rows = self.rows
        own = [*nearest(rows), hidden(rows, rows["ty"])]
        if variant == "mirrored":
            return plan.head(own, [(-rows["x"], rows["kx"])]).add(2 * rows["x"], rows["kx"])
        to_a_y = (SURE * (2 * (self.pairs + 1) ** 2 + 2) * rows["test"], rows["ty"])
        return plan.head([*own, to_a_y], [(rows["x"], rows["kx"])])

    def unseen(self, variant: Variant) -> list:
        """The terms that keep the test token from being a key; in relu and linear attention its key is 0."""
        return [hidden(self.rows, self.rows["test"])] if variant in ("mirrored", "sink") else []


class GradientDescent(FullAttention, kind="gradient_descent"):
    """Step by step the solver `gradient_descent` with the same rate: one layer before the loop, one block in it."""

    source = "Gao et al. 2024 (AlgoFormer), lemma A.2 and theorem 3.1"
    algorithm = "gradient_descent"
    rate: PositiveFloat = 0.1
    """η, for the mean over the pairs."""

    @override
    def design(self, prompt: Prompt) -> Design:
        return self._design(prompt, prompt.dim_in - prompt.dim_out, ())

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, ys = problem(rng, dim=5, pairs=20)
        return Example.at_last(paired(xs, ys), descent(xs, ys, self.rate, steps=20))

    def _design(self, prompt: Prompt, width: int, represent: Sequence[Tensor], slope: float = 1.0) -> Design:
        """The net on x, or on layers of leaky ReLU above it, `represent` [in, out] each, at most `width` wide."""
        pairs, targets = self.pairs(prompt), prompt.dim_out
        dim = prompt.dim_in - targets
        rows = Rows(x=width, y=targets, kx=width, u=targets, **Tokens.SIZES)
        tokens = Tokens(rows, pairs, sink=self.variant == "sink")
        before = [layer(rows, weight.double().T, slope) for weight in represent]
        before.append(tokens.keys(tokens.copy(Plan(), "u", -1.0), self.variant))
        mean, key = self.mean(pairs), rows["x"] if self.variant == "sink" else rows["kx"]
        loop = mean.add(
            Plan(), rows["x"], key, (-self.rate * rows["u"], rows["u"]),
            [*tokens.unseen(self.variant), *mean.sink(rows)],
        )  # fmt: skip
        read_in = torch.cat([rows.part("x", 0, dim), rows["y"]]).T
        choosing: list[Kind] = ["softmax" for _ in before]
        return Design(
            rows, read_in, rows["u"], tokens.positions, before, [loop],
            attention=[*choosing, self.summing], registers=tokens.registers,
        )  # fmt: skip


class RepresentationDescent(GradientDescent, kind="representation_descent"):
    """The same on Φ(x): a layer of the net for each of Φ's, exactly, before the one that pairs x and y.

    Φ is that of the task `representation_regression` with these settings.
    """

    source = "Gao et al. 2024 (AlgoFormer), theorem 3.1"
    rate: PositiveFloat = 0.05
    """η, for the mean over the pairs. Features have a large common mean: with twice as much descent may diverge."""
    layers: PositiveInt = 3
    """Of Φ."""
    width: PositiveInt = 20
    """Of Φ."""
    slope: float = Field(0.01, ge=0, le=1)
    """Of Φ's leaky ReLU, below 0."""
    gain: PositiveFloat = 1.0
    """Of Φ's layers, as in the task."""
    representation_seed: int = Field(0, ge=0)
    """Which Φ."""

    @override
    def design(self, prompt: Prompt) -> Design:
        dim = prompt.dim_in - prompt.dim_out
        return self._design(prompt, max(dim, self.width), self._task(dim).representation.weights, self.slope)

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, _ = problem(rng, dim=5, pairs=20)
        features = self._task(dim=5).representation(xs)
        ys = features @ torch.randn(len(xs), self.width, 1, generator=rng, dtype=torch.float64)
        return Example.at_last(paired(xs, ys), descent(features, ys, self.rate, steps=20))

    def _task(self, dim: int) -> RepresentationRegression:
        names = ("layers", "width", "slope", "gain", "representation_seed")
        return RepresentationRegression(dim=dim, **{name: getattr(self, name) for name in names})


def problem(
    rng: torch.Generator, dim: int, pairs: int, targets: int = 1, prompts: int = 8
) -> tuple[Float[Tensor, "prompts points dim"], Float[Tensor, "prompts points targets"]]:
    """xs and ys of as many pairs and a test token, y linear in x without noise."""
    xs = torch.randn(prompts, pairs + 1, dim, generator=rng, dtype=torch.float64)
    w = torch.randn(prompts, dim, targets, generator=rng, dtype=torch.float64)
    return xs, xs @ w


def paired(
    xs: Float[Tensor, "prompts points dim"], ys: Float[Tensor, "prompts points targets"]
) -> Float[Tensor, "prompts tokens dim_in"]:
    """x_1, y_1, .., x_N, y_N, x_test."""
    x, y = pad(xs, (0, ys.shape[-1])), pad(ys, (xs.shape[-1], 0))
    return torch.stack([x, y], 2).flatten(1, 2)[:, :-1]


def descent(
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points targets"],
    rate: float,
    steps: int,
) -> Float[Tensor, "steps prompts targets"]:
    """What gradient descent from 0 on all points but the last guesses at the last, after every step."""
    known, wanted = xs[:, :-1], ys[:, :-1]
    weights, guesses = xs.new_zeros(len(xs), xs.shape[2], ys.shape[2]), []
    for _ in range(steps):
        residuals = known @ weights - wanted
        weights = weights - rate / known.shape[1] * known.mT @ residuals
        guesses.append((xs[:, -1:] @ weights)[:, 0])
    return torch.stack(guesses)


def layer(rows: Rows, weight: Tensor, slope: float, name: str = "x") -> Plan:
    """x <- leaky(W x), W [out, in], exactly, in a block without heads; what W has no row for becomes 0."""
    out, into = weight.shape
    image = torch.zeros_like(rows[name])
    image[:out] = weight @ rows.part(name, 0, into)
    plan = Plan().unit(image, 0.0, rows[name]).unit(-image, 0.0, -slope * rows[name])
    return plan.clear(rows[name])
