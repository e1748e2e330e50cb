"""Unrolled iterative soft thresholding with learned weights: the shared parts of `lista`, `lista_cp` and `lista_vm`.

Tokens are pairs x1, y1, x2, y2, ..: x in the first coordinates, y in the last `dim_out`. If the prompt says so, a
token is a whole pair. A token's β uses the earlier pairs, and its output is <x, β> for the x in the token.

Every prefix of the prompt is a problem, whose matrix has one row per earlier pair. `lista` and `lista_cp` were designed
for one measurement matrix. So they have separate weights for every number of pairs: as many nets as prefixes, trained
together. `lista_vm` has the same weights for every number of pairs.

Differences from the sources: weights start small and random instead of at ISTA's weights, because a net is built
before any matrix is known. All layers are trained together on the prediction of the last layer, not one after the
other on β.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.base import Model, Net, Outputs, States, Tokens

Weights = Float[Tensor, "batch prefixes dim dim_out"]
"""β for every number of pairs."""
Xs = Float[Tensor, "batch pairs dim"]
Ys = Float[Tensor, "batch pairs dim_out"]


class Unrolled(Model):
    layers: PositiveInt = 8
    """K, the number of iterations."""
    threshold: PositiveFloat = 0.01
    """θ of every layer before training."""
    start: PositiveFloat = 0.1
    """Standard deviation of the initial weights, divided by the number of terms in their sum."""

    @property
    @override
    def depth(self) -> int:
        return self.layers

    @override
    def require(self, prompt: Prompt) -> None:
        if prompt.pairs is None:
            raise ValueError(
                f"model {self.kind} reads pairs (x, y), but these prompts have no pairs; "
                f"write a regression task, or another model"
            )
        if prompt.dim_in - prompt.beside <= prompt.dim_out or prompt.length < (2 if prompt.beside else 4):
            raise ValueError(
                f"model {self.kind} reads pairs of x and y, at least two, but these prompts have {prompt.length} "
                f"tokens of {prompt.dim_in} coordinates for targets of {prompt.dim_out}; write a regression task with "
                f"more points, or another model"
            )


class Threshold(nn.Module):
    """S_θ of one layer, with one θ for every number of pairs, or a single θ. A softplus keeps θ positive."""

    def __init__(self, values: int, start: float) -> None:
        super().__init__()
        self.before = nn.Parameter(torch.full((values,), math.log(math.expm1(start))))

    @override
    def forward(self, value: Weights) -> Weights:
        threshold = F.softplus(self.before[: value.shape[1], None, None])
        return value.sign() * (value.abs() - threshold).relu()


class Drawn(nn.Module):
    """Weights that are drawn when a net is built."""

    @abstractmethod
    def initialise(self, rng: torch.Generator, start: float) -> None:
        """Draw the weights, without gradient. `start` is the setting of the model."""


class PairMatrix(Drawn):
    """One matrix for every number n of pairs, with one row for each of the n pairs."""

    def __init__(self, prefixes: int, dim: int) -> None:
        super().__init__()
        self.prefixes = prefixes
        self.weight = nn.Parameter(torch.zeros(prefixes * (prefixes + 1) // 2, dim))

    @override
    def initialise(self, rng: torch.Generator, start: float) -> None:
        pairs = torch.arange(1, self.prefixes + 1)
        nn.init.normal_(self.weight, generator=rng)
        self.weight.mul_(start / pairs.repeat_interleave(pairs)[:, None])

    @override
    def forward(self, prefixes: int) -> Float[Tensor, "prefixes pairs dim"]:
        """The matrices for 1 .. `prefixes` pairs. Rows of unseen pairs are 0."""
        number, pair = torch.tril_indices(prefixes, prefixes, device=self.weight.device)
        whole = self.weight.new_zeros(prefixes, prefixes, self.weight.shape[1])
        return whole.index_put((number, pair), self.weight[: len(number)])


class Square(Drawn):
    """One matrix from β to β for every number of pairs. It starts near the identity."""

    def __init__(self, prefixes: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(dim).repeat(prefixes, 1, 1))

    @override
    def initialise(self, rng: torch.Generator, start: float) -> None:
        size = self.weight.shape[-1]
        self.weight.add_(torch.randn(self.weight.shape, generator=rng), alpha=start / size)

    @override
    def forward(self, weights: Weights) -> Weights:
        return torch.einsum("pde,bpeo->bpdo", self.weight[: weights.shape[1]], weights)


class UnrolledNet(Net):
    """Reads the tokens and passes β through the layers. `thresholds` is the number of θ in every layer."""

    def __init__(self, settings: Unrolled, prompt: Prompt, thresholds: int = 1) -> None:
        super().__init__()
        settings.require(prompt)
        self.depth, self.start = settings.layers, settings.start
        self.beside, self.dim_out = prompt.beside, prompt.dim_out
        self.dim = prompt.dim_in - prompt.dim_out - prompt.beside
        self.thresholds = nn.ModuleList(
            Threshold(thresholds, settings.threshold) for _ in range(settings.layers)
        )

    @abstractmethod
    def step(self, layer: int, weights: Weights | None, xs: Xs, ys: Ys) -> Weights:
        """The input of the threshold in layer `layer`, counted from 0. `weights` is the previous β, `None` for 0."""

    @override
    def forward(self, tokens: Tokens, steps: int, first: int = 1, truncate: bool = False) -> Outputs:
        self.check(steps, first)
        device = tokens.device.type
        # Never in reduced precision, because the iterations must converge.
        with nullcontext() if device == "meta" else torch.autocast(device, enabled=False):
            iterates = self._iterates(tokens, steps, first - 1 if truncate else 0)[first - 1 :]
            xs = tokens[..., : self.dim]
            return torch.stack([torch.einsum("bld,bldo->blo", xs, weights) for weights in iterates])

    @override
    def states(self, tokens: Tokens, steps: int) -> States:
        """β at every token, flattened."""
        self.check(steps, 1)
        return torch.stack(self._iterates(tokens, steps, 0)).flatten(-2)

    def _iterates(
        self, tokens: Tensor, steps: int, cut: int
    ) -> list[Float[Tensor, "batch length dim dim_out"]]:
        """β at every token after layers 1 .. `steps`, without gradient through the first `cut` layers."""
        length = tokens.shape[1]
        xs, ys = self._pairs(tokens, pairs_before_last(length, self.beside))
        weights, iterates = None, []
        for layer in range(steps):
            with torch.set_grad_enabled(torch.is_grad_enabled() and layer >= cut):
                weights = self.thresholds[layer](self.step(layer, weights, xs, ys))
            at_pairs = F.pad(weights, (0, 0, 0, 0, 1, 0))
            iterates.append(at_pairs if self.beside else at_pairs.repeat_interleave(2, dim=1)[:, :length])
        return iterates

    def _pairs(self, tokens: Tokens, pairs: int) -> tuple[Xs, Ys]:
        """x and y of the first `pairs` pairs."""
        if self.beside:
            return tokens[:, :pairs, : self.dim], tokens[:, :pairs, self.dim + 1 :]
        return tokens[:, 0 : 2 * pairs : 2, : self.dim], tokens[:, 1 : 2 * pairs + 1 : 2, self.dim :]


class PrefixNet(UnrolledNet):
    """A net with weights of its own for every number of pairs, up to the `prefixes` of the longest prompt."""

    def __init__(self, settings: Unrolled, prompt: Prompt) -> None:
        prefixes = pairs_before_last(prompt.length, prompt.beside)
        super().__init__(settings, prompt, thresholds=prefixes)
        self.prefixes = prefixes

    @override
    def _pairs(self, tokens: Tokens, pairs: int) -> tuple[Xs, Ys]:
        if pairs > self.prefixes:
            raise ValueError(
                f"a prompt of {tokens.shape[1]} tokens is too long: this net has weights for {self.prefixes} pairs "
                "before a query; use a shorter prompt"
            )
        return super()._pairs(tokens, pairs)


def pairs_before_last(length: int, beside: bool) -> int:
    """Number of pairs before the last query in a prompt of `length` tokens."""
    return length - 1 if beside else (length + 1) // 2 - 1


def drawn(make: Callable[[], UnrolledNet], rng: torch.Generator) -> UnrolledNet:
    """The net from `make`, with weights drawn from `rng` only. Under `torch.device("meta")` nothing is drawn."""
    net = make()
    if torch.get_default_device().type != "meta":
        with torch.no_grad():
            for part in net.modules():
                if isinstance(part, Drawn):
                    part.initialise(rng, net.start)
    return net
