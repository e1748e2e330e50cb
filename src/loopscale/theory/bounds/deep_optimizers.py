"""Gradient descent on a network inside a transformer [@wu2024]: layers, heads and the distance to exact descent."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound
from loopscale.theory.bounds.descent import InexactGd
from loopscale.theory.bounds.imitation import LayersForSteps

SYSTEM = "deep optimizers"
KNOWN_FROM = "(abstract, public reviews, and @yang2025slides)"


class DeepIcgdLayers(LayersForSteps, kind="deep_icgd_layers", titled="layers for descent on a network"):
    """Layers for T descent steps on a network of N layers: (2N + 4) T with ReLU attention, 4T with softmax.

    N of the 2N + 4 layers are element-wise multiplication layers, which are not transformer layers. The
    softmax statement rests on universal approximation: it states no number of heads and does not depend on N.

    The activation of the network and its derivative must be Lipschitz and four times differentiable. ReLU is
    not. The paper itself was not read. The construction `network_descent` has nets of both kinds.
    """

    source = f"@wu2024, theorems 1 (ReLU) and 6 (softmax) {KNOWN_FROM}"
    imitates = "trained_network"
    loops: PositiveInt = 10
    """T, the number of descent steps."""
    trained_layers: PositiveInt = 2
    """N, the number of layers of the network that is trained in context."""
    attention: Literal["relu", "softmax", "linear"] = "relu"
    """The paper has no statement for linear attention."""
    activation: Literal["smooth", "tanh", "softplus", "relu"] = "smooth"
    """The activation of the network that is trained in context. The statement covers smooth activations only."""

    @classmethod
    @override
    def for_trial(cls, settings: Mapping[str, Any]) -> "DeepIcgdLayers":
        of_solver = {
            name: settings.get(f"solver.{name}") for name in ("optimiser", "layers", "activation", "held_out")
        }
        if of_solver["optimiser"] not in (None, "gradient_descent") or of_solver["held_out"] is not None:
            raise ValueError("deep_icgd_layers counts steps of plain gradient descent; choose that solver")
        layers, activation = (
            of_solver[name] or settings.get(f"task.{name}") for name in ("layers", "activation")
        )
        if "model.attention" not in settings:
            raise ValueError("deep_icgd_layers counts layers with attention; choose a transformer")
        stated = cls.model_validate(
            {
                "kind": cls.kind,
                "trained_layers": layers,
                "activation": activation,
                "attention": settings["model.attention"],
            }
        )
        stated.value()  # checks the conditions
        return stated

    @override
    def value(self) -> float:
        self.require(self.attention != "linear", "relu or softmax attention")
        self.require(self.activation != "relu", "a smooth activation, such as tanh or softplus")
        per_step = 2 * self.trained_layers + 4 if self.attention == "relu" else 4
        return float(per_step * self.loops)


class DeepIcgd(Bound, kind="deep_icgd", titled="descent on a network"):
    """Distance to exact descent after T steps on a network: (ε/β) ((1 + ηβ)^T - 1), ε = h^(-1/2) for h heads.

    This is `inexact_gd` for a smooth loss, with h ~ ε^-2 heads in each layer. The distance grows
    exponentially in T and falls slowly in h. The statement covers ReLU attention only: for softmax the paper
    states no number of heads. The conditions on the network are those of `deep_icgd_layers`.

    Figure 4 of @gao2024 measures another quantity, so its law along heads has no theorem. There the error of a trained
    softmax net is measured, and the net regresses on fixed leaky-ReLU features.
    """

    claim = "<="
    of = "distance"
    source = f"@wu2024, theorem 1 and its corollary {KNOWN_FROM}, logarithms dropped"
    hidden_constant = True
    without_study = "no trial measures the distance to exact descent on a network"
    loops: PositiveInt = 10
    """T, the number of descent steps."""
    rate: PositiveFloat = 0.1
    """η, the step size."""
    smoothness: PositiveFloat = 1.0
    """β, the Lipschitz constant of the gradient."""
    heads: PositiveInt = 4
    """h, the number of heads of each layer."""
    attention: Literal["relu", "softmax", "linear"] = "relu"
    """The statement covers `relu` only."""

    @override
    def value(self) -> float:
        self.require(self.attention == "relu", "relu attention")
        accuracy = self.heads**-0.5
        return InexactGd(
            loops=self.loops, rate=self.rate, accuracy=accuracy, smoothness=self.smoothness
        ).value()
