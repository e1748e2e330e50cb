"""Gradient descent on an autoregression x_t = A Φ(x_{t-q} .. x_{t-1}), and its forecast (AlgoFormer, theorem 3.2).

The net reads x_1 .. x_N and forecasts x_{N+1}. Two registers stand for t = 0, whose x is 0, and for t = N + 1. Heads
copy the past of every t to it, layers apply Φ there, and residuals u_t = A_k Φ_t - x_t, at N + 1 A_k Φ_{N+1}, descend
as in `gradient_descent`: a loop is a step on (1/2n) Σ_t |A Φ_t - x_t|². All tokens are seen, since each residual
belongs to an A that all of them share. The paper keeps Φ of a past that ends at t beside x_t; the pairs of the
regression are Φ of the past before t, and x_t, so here everything stands one later.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.tasks.representation_regression import Representation
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.causal import descent_limit, stretch
from loopscale.theory.constructions.copying import back, windows
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.gadgets import SURE, Mean, Order, hidden
from loopscale.theory.constructions.plan import Form, Plan, Rows, Term
from loopscale.theory.constructions.regression import descent, layer


class Descent(Construction):
    """What constructions share that descend on pairs held by one token each, with a register for a sink."""

    variant: Literal["sink", "relu"] = "sink"
    """How products are summed: by softmax with a sink, or exactly by relu attention."""
    expansion: Order = 4
    """The order of the error in `scale`, of softmax."""
    scale: PositiveFloat = 1e-4
    """c, on the scores of softmax."""
    depth: PositiveFloat = 28.0
    """C, of the sink."""
    rate: PositiveFloat = 0.1
    """η, for the mean over the pairs."""

    @property
    @override
    def limit(self) -> Limit | None:
        return descent_limit(self.expansion, self.rate) if self.variant == "sink" else None

    @property
    def away(self) -> float:
        """What takes a key out. Any number larger than all scores does, and costs relu attention no precision."""
        return SURE if self.variant == "sink" else 1e12

    def descend(self, rows: Rows, pairs: int, feature: Form, others: list[Term]) -> Plan:
        """A step of descent by u of every token, over the pairs that `others` leave."""
        mean = Mean(self.variant, pairs, self.expansion, self.scale, self.depth)
        move = (-self.rate * rows["u"], rows["u"])
        return mean.add(Plan(), feature, feature, move, [*others, *mean.sink(rows)])


class Autoregression(Descent, kind="autoregression"):
    """Loop by loop descent from A = 0. In and out: d coordinates; the forecast stands at the last token.

    Φ is one fixed net of leaky ReLU layers without biases, drawn as that of the task `representation_regression` on
    x_{t-q} .. x_{t-1}, oldest first: a layer of this net for each of its layers.
    """

    source = "Gao et al. 2024 (AlgoFormer), theorem 3.2"
    algorithm = "gradient descent on an autoregression"
    REGISTERS: ClassVar[int] = 2
    lags: PositiveInt = 3
    """q."""
    padded: bool = False
    """Whether the first q tokens count as pairs, with zeros for what was before the prompt."""
    layers: NonNegativeInt = 0
    """Of Φ; 0 makes it the identity."""
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
        dim, pairs = prompt.dim_in, prompt.length - (0 if self.padded else self.lags)
        self.require(prompt.dim_out == dim, "forecasts of as many coordinates as x has")
        self.require(pairs > 0, f"prompts of more than {self.lags} tokens")
        past = self.lags * dim
        features = max(past, self.width) if self.layers else past
        rows = Rows(
            x=dim, f=features, u=dim, out=dim, **dict.fromkeys(("one", "t", "t2", "sink", "query", "burn"), 1)
        )
        before = self._features(rows)
        masks = [hidden(rows, rows["query"], self.away), hidden(rows, rows["burn"], self.away)]
        return Design(
            rows, rows["x"].T, rows["out"], self._positions(rows, prompt.length), before,
            [self.descend(rows, pairs, rows["f"], masks)],
            [Plan().head([(SURE * rows["one"], rows["query"])], [(rows["u"], rows["out"])])],
            attention=[*("softmax" for _ in before), "relu" if self.variant == "relu" else "softmax", "softmax"],
            normaliser="none", registers=self.REGISTERS,
        )  # fmt: skip

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, phi = series(rng, dim=2, length=self.lags + 20), self.representation(2)
        # Φ is homogeneous, and descent converges if no feature is longer than this.
        xs = xs * stretch(regression(xs, self.lags, phi, padded=True)[0], self.rate**-0.5)
        features, targets = regression(xs, self.lags, phi, self.padded)
        return Example.at_last(xs, descent(features, targets, self.rate, steps=10))

    def representation(self, dim: int) -> Representation:
        """Φ, of q times `dim` coordinates."""
        return Representation(
            self.lags * dim, self.layers, self.width, self.slope, self.gain, self.representation_seed
        )

    def _features(self, rows: Rows) -> list[Plan]:
        """Layers after which f is Φ of the past, and u is -x."""
        dim = rows.sizes["x"]
        weights = self.representation(dim).weights
        plans = [layer(rows, weight.double().T, self.slope, "f") for weight in weights] or [Plan()]
        for lag in range(1, self.lags + 1):
            back(rows, plans[0], lag, rows.part("f", (self.lags - lag) * dim, dim))
        plans[0].add(-rows["x"], rows["u"])
        return plans

    def _positions(self, rows: Rows, length: int) -> Tensor:
        times = torch.arange(length).double() + 1
        t = torch.cat([torch.tensor([0.0, length + 1]), times])
        flags = {"sink": t == 0, "query": t == length + 1}
        if not self.padded:
            flags["burn"] = (t > 0) & (t <= self.lags)
        return rows.state(
            len(t), one=1.0, t=t, t2=t**2, **{name: flag.double() for name, flag in flags.items()}
        )


def regression(
    xs: Float[Tensor, "prompts tokens dim"], lags: int, phi: Callable[[Tensor], Tensor], padded: bool
) -> tuple[Float[Tensor, "prompts points features"], Float[Tensor, "prompts points dim"]]:
    """Φ of the past, oldest first, and x, for every token that counts and for the one to come, whose x is put as 0."""
    first = 0 if padded else lags
    features = phi(windows(pad(xs, (0, 0, 1, 0)), lags).flatten(2))
    return features[:, first:], pad(xs, (0, 0, 0, 1))[:, first:]


def series(
    rng: torch.Generator, dim: int, length: int, prompts: int = 8
) -> Float[Tensor, "prompts length dim"]:
    """A stable autoregression of order 2, with noise."""
    noise = torch.randn(length, prompts, dim, generator=rng, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(prompts, dim, dim, generator=rng, dtype=torch.float64))[0]
    xs = [noise[0], noise[1]]
    for each in noise[2:]:
        xs.append(0.6 * (turn @ xs[-1][..., None])[..., 0] - 0.3 * xs[-2] + 0.3 * each)
    return torch.stack(xs, 1)
