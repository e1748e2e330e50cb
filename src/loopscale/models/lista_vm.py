"""LISTA-VM: iterative soft thresholding with one learned d x d matrix per layer, for matrices X that vary [@liu2025].

Layer k computes β <- S_θ(β - M X'(Xβ - y) / (2n + 1)) from the n pairs before a query, with its own M and θ (eq. 6 of
@liu2025slides). By theorem 12 there, a ReLU decoder can compute these steps. The construction `lista` has the decoder's
weights. The net reads X from the prompt. M and θ are the same for every number of pairs, so prompts may have any
length. M = γI and one θ give ISTA with the step size γ / (2n + 1).

Difference from the source: M and θ are trained. M starts near a multiple of the identity.
"""

import torch
from pydantic import PositiveFloat
from torch import nn
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.base import Net
from loopscale.models.unrolled import Drawn, Unrolled, UnrolledNet, Weights, Xs, Ys, drawn


class ListaVm(Unrolled, kind="lista_vm", titled="LISTA-VM"):
    rate: PositiveFloat = 0.2
    """M of every layer before training is this multiple of the identity, plus small random numbers. Steps converge if
    rate · λ_max(X'X) < 2 (2n + 1)."""

    @override
    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        return drawn(lambda: ListaVmNet(self, prompt), rng)


class Multipliers(Drawn):
    """M of every layer, which multiplies from the left."""

    def __init__(self, layers: int, dim: int, rate: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(rate * torch.eye(dim).repeat(layers, 1, 1))
        self.rate = rate

    @override
    def initialise(self, rng: torch.Generator, start: float) -> None:
        size = self.weight.shape[-1]
        self.weight.add_(torch.randn(self.weight.shape, generator=rng), alpha=self.rate * start / size)

    @override
    def forward(self, layer: int, gradient: Weights) -> Weights:
        return torch.einsum("de,bpeo->bpdo", self.weight[layer], gradient)


class ListaVmNet(UnrolledNet):
    def __init__(self, settings: ListaVm, prompt: Prompt) -> None:
        super().__init__(settings, prompt)
        self.multipliers = Multipliers(settings.layers, self.dim, settings.rate)

    @override
    def step(self, layer: int, weights: Weights | None, xs: Xs, ys: Ys) -> Weights:
        pairs = torch.arange(1, xs.shape[1] + 1, device=xs.device)
        shares = (pairs <= pairs[:, None]) / (2 * pairs[:, None] + 1).to(xs)
        guesses = 0 if weights is None else torch.einsum("bnd,bpdo->bpno", xs, weights)
        errors = shares[:, :, None] * (guesses - ys[:, None])
        moved = self.multipliers(layer, torch.einsum("bnd,bpno->bpdo", xs, errors))
        return -moved if weights is None else weights - moved
