"""LISTA: iterative soft thresholding with two learned matrices [@gregor2010, algorithm 3].

Layer k computes β <- S_θ(W y + R β) with its own W, R and θ, as in @chen2018, eq. 2. In the original all
layers share W, R and θ, and θ has one value per coordinate. W = X'/nL and R = I - X'X/nL give ISTA. The net reads
only the query's row of X. The weights learn X, so X must be the same in all prompts.
"""

import torch
from torch import nn
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.base import Net
from loopscale.models.unrolled import PairMatrix, PrefixNet, Square, Unrolled, Weights, Xs, Ys, drawn


class Lista(Unrolled, kind="lista", titled="LISTA"):
    @override
    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        return drawn(lambda: ListaNet(self, prompt), rng)


class ListaNet(PrefixNet):
    def __init__(self, settings: Lista, prompt: Prompt) -> None:
        super().__init__(settings, prompt)
        self.measured = nn.ModuleList(PairMatrix(self.prefixes, self.dim) for _ in range(settings.layers))
        self.recurrent = nn.ModuleList(Square(self.prefixes, self.dim) for _ in range(settings.layers - 1))

    @override
    def step(self, layer: int, weights: Weights | None, xs: Xs, ys: Ys) -> Weights:
        measured = torch.einsum("pnd,bno->bpdo", self.measured[layer](ys.shape[1]), ys)
        if weights is None:
            return measured
        return measured + self.recurrent[layer - 1](weights)
