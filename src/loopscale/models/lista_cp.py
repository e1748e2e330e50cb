"""LISTA-CP: iterative soft thresholding with one learned matrix per layer, coupled to X [@chen2018, eq. 6].

Layer k computes β <- S_θ(β - D'(Xβ - y)) with its own D and θ (eq. 4 of @liu2025slides). The net reads
X from the prompt, but D must fit X. No D fits many X, unlike the transformer's M X' (theorem 12 there).
"""

import torch
from torch import nn
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.base import Net
from loopscale.models.unrolled import PairMatrix, PrefixNet, Unrolled, Weights, Xs, Ys, drawn


class ListaCp(Unrolled, kind="lista_cp", titled="LISTA-CP"):
    @override
    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        return drawn(lambda: ListaCpNet(self, prompt), rng)


class ListaCpNet(PrefixNet):
    def __init__(self, settings: ListaCp, prompt: Prompt) -> None:
        super().__init__(settings, prompt)
        self.coupled = nn.ModuleList(PairMatrix(self.prefixes, self.dim) for _ in range(settings.layers))

    @override
    def step(self, layer: int, weights: Weights | None, xs: Xs, ys: Ys) -> Weights:
        matrix = self.coupled[layer](ys.shape[1])
        if weights is None:
            return torch.einsum("pnd,bno->bpdo", matrix, ys)
        residual = ys[:, None] - torch.einsum("bnd,bpdo->bpno", xs, weights)
        return weights + torch.einsum("pnd,bpno->bpdo", matrix, residual)
