"""Unrolled iterative soft thresholding with learned weights: the shared parts of `lista` and `lista_cp`.

Tokens are pairs x1, y1, x2, y2, ..: x in the first coordinates, y in the last `dim_out`. If the prompt says so, a
token is a whole pair. A token's β uses the earlier pairs, and its output is <x, β> for the x in the token.

Both models were designed for one measurement matrix. Here every prefix of the prompt is a problem, whose matrix has
one row per earlier pair. So the models have separate weights for every number of pairs: as many nets as prefixes,
trained together.

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
    """θ of every layer before training, for every number of pairs."""
    start: PositiveFloat = 0.1
    """Standard deviation of the initial weights, divided by the number of pairs in their sum."""

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
    """S_θ of one layer, with one θ for every number of pairs. A softplus keeps θ positive."""

    def __init__(self, prefixes: int, start: float) -> None:
        super().__init__()
        self.before = nn.Parameter(torch.full((prefixes,), math.log(math.expm1(start))))

    @override
    def forward(self, value: Weights) -> Weights:
        threshold = F.softplus(self.before[: value.shape[1], None, None])
        return value.sign() * (value.abs() - threshold).relu()


class PairMatrix(nn.Module):
    """One matrix for every number n of pairs, with one row for each of the n pairs."""

    def __init__(self, prefixes: int, dim: int) -> None:
        super().__init__()
        self.prefixes = prefixes
        self.weight = nn.Parameter(torch.zeros(prefixes * (prefixes + 1) // 2, dim))

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


class Square(nn.Module):
    """One matrix from β to β for every number of pairs. It starts near the identity."""

    def __init__(self, prefixes: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(dim).repeat(prefixes, 1, 1))

    def initialise(self, rng: torch.Generator, start: float) -> None:
        size = self.weight.shape[-1]
        self.weight.add_(torch.randn(self.weight.shape, generator=rng), alpha=start / size)

    @override
    def forward(self, weights: Weights) -> Weights:
        return torch.einsum("pde,bpeo->bpdo", self.weight[: weights.shape[1]], weights)


class UnrolledNet(Net):
    """Reads the tokens and passes β through the layers."""

    def __init__(self, settings: Unrolled, prompt: Prompt) -> None:
        super().__init__()
        settings.require(prompt)
        self.depth, self.start = settings.layers, settings.start
        self.beside, self.dim_out = prompt.beside, prompt.dim_out
        self.dim = prompt.dim_in - prompt.dim_out - prompt.beside
        self.prefixes = self._before_the_last(prompt.length)
        self.thresholds = nn.ModuleList(
            Threshold(self.prefixes, settings.threshold) for _ in range(settings.layers)
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
        prefixes = self._before_the_last(length)
        if prefixes > self.prefixes:
            raise ValueError(
                f"a prompt of {length} tokens is too long: this net has weights for {self.prefixes} pairs before a "
                "query; use a shorter prompt"
            )
        xs, ys = self._pairs(tokens, prefixes)
        weights, iterates = None, []
        for layer in range(steps):
            with torch.set_grad_enabled(torch.is_grad_enabled() and layer >= cut):
                weights = self.thresholds[layer](self.step(layer, weights, xs, ys))
            at_pairs = F.pad(weights, (0, 0, 0, 0, 1, 0))
            iterates.append(at_pairs if self.beside else at_pairs.repeat_interleave(2, dim=1)[:, :length])
        return iterates

    def _before_the_last(self, length: int) -> int:
        """Number of pairs before the last query in a prompt of `length` tokens."""
        return length - 1 if self.beside else (length + 1) // 2 - 1

    def _pairs(self, tokens: Tokens, pairs: int) -> tuple[Xs, Ys]:
        """x and y of the first `pairs` pairs."""
        if self.beside:
            return tokens[:, :pairs, : self.dim], tokens[:, :pairs, self.dim + 1 :]
        return tokens[:, 0 : 2 * pairs : 2, : self.dim], tokens[:, 1 : 2 * pairs + 1 : 2, self.dim :]


def drawn(make: Callable[[], UnrolledNet], rng: torch.Generator) -> UnrolledNet:
    """The net from `make`, with weights drawn from `rng` only. Under `torch.device("meta")` nothing is drawn."""
    net = make()
    if torch.get_default_device().type != "meta":
        with torch.no_grad():
            for part in net.modules():
                if isinstance(part, PairMatrix | Square):
                    part.initialise(rng, net.start)
    return net
