"""Gradient descent on an autoregression x_t = A Φ(x_{t-q}, ..., x_{t-1}), and its forecast [@gao2024, theorem 3.2].

The net reads x_1, ..., x_N and forecasts x_{N+1}. Two registers stand for t = 0, with x = 0, and for t = N + 1. Heads
copy the past of every t to its token, and layers apply Φ to the past. Let Φ_t be the result. The state holds the
residual u_t = A_k Φ_t - x_t, and A_k Φ_{N+1} at t = N + 1. A loop is one step on `(1/2n) Σ_t |A Φ_t - x_t|²`, as in
`gradient_descent`. Attention is full, because all residuals belong to the same A.

Correction: the paper's layout keeps Φ of a past that ends at t beside x_t. The regression needs pairs of x_t and Φ of
the past before t. So all features stand one token later here.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.tasks.representation_regression import Representation
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.block_plan import BlockPlan, Form, StateRows, Term
from loopscale.theory.constructions.causal import EXAMPLE_SCALE_FACTOR, length_factor
from loopscale.theory.constructions.copying import add_lagged, windows
from loopscale.theory.constructions.example import Example, Limit, Stated
from loopscale.theory.constructions.gadgets import UNDERFLOW, SoftmaxSums, hide_keys
from loopscale.theory.constructions.regression import leaky_layer, least_squares_descent

SYSTEM = "AlgoFormer"


class PairTokenDescent(SoftmaxSums):
    """Shared by constructions that descend on pairs held by one token each, with a register as sink."""

    variant: Literal["sink", "relu"] = "sink"
    """How products are summed. sink: softmax attention with a sink, in the limit of a small scale. relu: exactly."""
    rate: PositiveFloat = 0.1
    """η, the step size for the mean over the pairs."""

    @property
    @override
    def limit(self) -> Limit | None:
        return self.scale_limit(EXAMPLE_SCALE_FACTOR * self.rate) if self.variant == "sink" else None

    @property
    def mask(self) -> float:
        """The score gap that hides a key. Any number above all scores works, and costs relu attention no precision."""
        return UNDERFLOW if self.variant == "sink" else 1e12

    def kinds(self, before: list[BlockPlan]) -> list[Kind]:
        """The kind of attention of each block: only the block in the loop sums products."""
        return [*("softmax" for _ in before), "relu" if self.variant == "relu" else "softmax", "softmax"]

    def descend(self, rows: StateRows, pairs: int, feature: Form, selection: list[Term]) -> BlockPlan:
        """One step of descent of u at every token, over the pairs that the score terms `selection` leave visible."""
        mean = self.summed_by(self.variant, pairs)
        move = (-self.rate * rows["u"], rows["u"])
        return mean.add(BlockPlan(), feature, feature, move, [*selection, *mean.sink(rows)])


class Autoregression(PairTokenDescent, kind="autoregression"):
    """Descent from A = 0, one step per loop. In and out: d coordinates. The last token outputs the forecast.

    Φ is a fixed net of leaky ReLU layers without biases, drawn as the Φ of the task `representation_regression`. Its
    input is x_{t-q}, ..., x_{t-1}, the oldest first. This net has one layer for each layer of Φ.
    """

    source = "@gao2024, theorem 3.2"
    algorithm = "gradient descent on an autoregression"
    lags: PositiveInt = 3
    """q."""
    padded: bool = False
    """True if the first q tokens count as pairs, with zeros for inputs before the prompt."""
    layers: NonNegativeInt = 0
    """The number of layers of Φ. With 0, Φ is the identity."""
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
        dim, pairs = prompt.dim_in, prompt.length - (0 if self.padded else self.lags)
        self.require(prompt.dim_out == dim, "forecasts with as many coordinates as x")
        self.require(pairs > 0, f"prompts of more than {self.lags} tokens")
        past = self.lags * dim
        features = max(past, self.width) if self.layers else past
        flags = dict.fromkeys(("one", "t", "t2", "sink", "query", "burn"), 1)
        rows = StateRows(x=dim, f=features, u=dim, out=dim, **flags)
        before = self._features(rows)
        masks = [hide_keys(rows, rows["query"], self.mask), hide_keys(rows, rows["burn"], self.mask)]
        loop = [self.descend(rows, pairs, rows["f"], masks)]
        answer = BlockPlan().head([(UNDERFLOW * rows["one"], rows["query"])], [(rows["u"], rows["out"])])
        positions = self._positions(rows, prompt.length)
        return Design(
            rows, rows.read_in("x"), rows["out"], positions, before, loop, [answer], self.kinds(before)
        )

    @override
    def stated(self, prompt: Prompt) -> Stated:
        heads = f"q = {self.lags} in the first layer, 2 in the loop, 1 in the others"
        return Stated.of_loops("gradient step", f"{self.layers + 2} pre + 1 loop + 1 post", heads)

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, phi = random_series(rng, dim=2, length=self.lags + 20), self.representation(2)
        # Φ is homogeneous. Descent converges if no feature is longer than rate^-1/2.
        xs = xs * length_factor(lagged_regression(xs, self.lags, phi, padded=True)[0], self.rate**-0.5)
        features, targets = lagged_regression(xs, self.lags, phi, self.padded)
        return Example.at_last(xs, least_squares_descent(features, targets, self.rate, steps=10))

    def representation(self, dim: int) -> Representation:
        """Φ, a function of q · `dim` coordinates."""
        return Representation(
            self.lags * dim, self.layers, self.width, self.slope, self.gain, self.representation_seed
        )

    def _features(self, rows: StateRows) -> list[BlockPlan]:
        """Layers after which f is Φ of the past, and u is -x."""
        dim = rows.sizes["x"]
        weights = self.representation(dim).weights
        plans = [leaky_layer(rows, weight.double().T, self.slope, "f") for weight in weights] or [BlockPlan()]
        for lag in range(1, self.lags + 1):
            add_lagged(rows, plans[0], lag, rows.part("f", (self.lags - lag) * dim, dim))
        plans[0].add(-rows["x"], rows["u"])
        return plans

    def _positions(self, rows: StateRows, length: int) -> Tensor:
        times = torch.arange(length).double() + 1
        t = torch.cat([torch.tensor([0.0, length + 1]), times])
        flags = {"sink": t == 0, "query": t == length + 1}
        if not self.padded:
            flags["burn"] = (t > 0) & (t <= self.lags)
        return rows.state(
            len(t), one=1.0, t=t, t2=t**2, **{name: flag.double() for name, flag in flags.items()}
        )


def lagged_regression(
    xs: Float[Tensor, "prompts tokens dim"], lags: int, phi: Callable[[Tensor], Tensor], padded: bool
) -> tuple[Float[Tensor, "prompts points features"], Float[Tensor, "prompts points dim"]]:
    """Φ of the past and x, for every token that counts and for the next token. The x of the next token is set to 0."""
    first = 0 if padded else lags
    features = phi(windows(pad(xs, (0, 0, 1, 0)), lags).flatten(2))
    return features[:, first:], pad(xs, (0, 0, 0, 1))[:, first:]


def random_series(
    rng: torch.Generator, dim: int, length: int, prompts: int = 8
) -> Float[Tensor, "prompts length dim"]:
    """A stable autoregression of order 2, with noise."""
    noise = torch.randn(length, prompts, dim, generator=rng, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(prompts, dim, dim, generator=rng, dtype=torch.float64))[0]
    xs = [noise[0], noise[1]]
    for shock in noise[2:]:
        xs.append(0.6 * (rotation @ xs[-1][..., None])[..., 0] - 0.3 * xs[-2] + 0.3 * shock)
    return torch.stack(xs, 1)
