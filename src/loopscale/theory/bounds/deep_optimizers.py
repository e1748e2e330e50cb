"""Transformers that train a network of several layers in context (Wu et al. 2024): layers, and distance to descent.

The statements ask of the trained network's activation that it and its derivative be Lipschitz and four times
differentiable: ReLU is not. The paper itself was not read.
"""

from typing import Literal

from pydantic import PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound
from loopscale.theory.bounds.descent import InexactGd

READ = "(abstract, public reviews, and a talk's slides)"


class DeepIcgdLayers(Bound, kind="deep_icgd_layers"):
    """(2N + 4) T layers of ReLU attention, or 4T of softmax attention, do T descent steps on a network of N layers.

    N of the 2N + 4 multiply coordinates with each other, which no layer of a transformer does. The softmax statement
    rests on universal approximation: it says nothing of the heads, nor of the N of the network.
    """

    claim = "<="
    of = "layers"
    source = f"Wu et al. 2024, theorems 1 (ReLU) and 6 (softmax) {READ}"
    loops: PositiveInt = 10
    """T, steps of descent."""
    trained_layers: PositiveInt = 2
    """N, of the network that is trained in context."""
    attention: Literal["relu", "softmax", "linear"] = "relu"
    """There is no statement of linear attention."""

    @override
    def value(self) -> float:
        self.require(self.attention != "linear", "relu or softmax attention")
        per_step = 2 * self.trained_layers + 4 if self.attention == "relu" else 4
        return float(per_step * self.loops)


class DeepIcgd(Bound, kind="deep_icgd"):
    """The distance to exact descent after T steps, each off by ηε: `inexact_gd` for a smooth loss, with h ~ ε^-2 heads.

    (ε/β) ((1 + ηβ)^T - 1), ε = h^(-1/2): exponential in T, and falls slowly with the heads of every layer. ReLU
    attention only: of softmax no number of heads is stated.
    """

    claim = "<="
    of = "distance"
    source = f"Wu et al. 2024, theorem 1 and its corollary {READ}, logarithms dropped"
    hidden_constant = True
    loops: PositiveInt = 10
    """T, steps of descent."""
    rate: PositiveFloat = 0.1
    """η."""
    smoothness: PositiveFloat = 1.0
    """β."""
    heads: PositiveInt = 4
    """h, of every layer."""
    attention: Literal["relu", "softmax", "linear"] = "relu"
    """The statement is of relu alone."""

    @override
    def value(self) -> float:
        self.require(self.attention == "relu", "relu attention")
        accuracy = self.heads**-0.5
        return InexactGd(
            loops=self.loops, rate=self.rate, accuracy=accuracy, smoothness=self.smoothness
        ).value()
