"""Transformers that imitate an algorithm for linear regression: sufficient numbers of layers."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound
from loopscale.theory.bounds.descent import WorstCase

SYSTEM = "linear regression"


class BaiRidgeLayers(WorstCase, kind="bai_ridge_layers", titled="layers for ridge (Bai et al.)"):
    """Layers of 3 heads that predict within ε of ridge, with one descent step per layer.

    ceil(2κ ln(B_x B_w/(2ε))) + 1, where κ is the condition number of X'X/N + λ. Without `kappa` the value
    uses the larger condition number of X'X.
    """

    claim = "<="
    of = "layers"
    source = "@bai2023, theorem 4 (the display from memory)"
    accuracy: PositiveFloat = 1e-3
    """ε, the error of the prediction."""
    product: PositiveFloat = 1.0
    """B_x B_w, where |x| <= B_x and the norm of the solution is at most B_w/2."""

    @override
    def value(self) -> float:
        self.require(
            2 * self.accuracy < self.product, "accuracy < product / 2: else the prediction 0 suffices"
        )
        return math.ceil(2 * self.condition_number * math.log(self.product / (2 * self.accuracy))) + 1.0


class LayersForSteps(Bound):
    """Layers that suffice for a number of steps of an algorithm."""

    without_study = "a reference for matched steps, which are no law"

    claim = "<="
    of = "layers"
    imitates: ClassVar[str | None] = None
    """The solver whose steps the statement counts; `None` if no solver takes exactly these steps."""
    loops: PositiveInt = 10
    """Number of steps of the algorithm."""

    @classmethod
    def imitating(cls, solver: str) -> "list[type[LayersForSteps]]":
        """The statements about the steps of a solver, given by its kind."""
        members = Bound.choices().values()
        return [
            member for member in members if issubclass(member, LayersForSteps) and member.imitates == solver
        ]

    @classmethod
    def for_trial(cls, settings: Mapping[str, Any]) -> "LayersForSteps":
        """The statement for a trained net and a solver.

        Parameters
        ----------
        settings
            Settings by dotted path: those of the net's task and model, and those of the solver below `solver.`.

        Raises
        ------
        ValueError
            If a condition of the statement does not hold.
        """
        raise ValueError(f"{cls.kind} names no solver and no net; choose another bound")

    def steps_within(self, layers: int) -> int:
        """The most steps for which so many layers suffice; 0 if one step needs more layers."""
        steps = 0
        while self.at(loops=steps + 1).value() <= layers:
            steps += 1
        return steps


class BaiIcgd(LayersForSteps, kind="bai_icgd", titled="layers for descent (Bai et al.)"):
    """Layers for L steps of descent on a convex loss, each within ε (see `inexact_gd`): L + 1."""

    source = "@bai2023, theorem 13"

    @override
    def value(self) -> float:
        return self.loops + 1.0


class FuNewton(LayersForSteps, kind="fu_newton", titled="layers for Newton steps (Fu et al.)"):
    """Layers for exactly k Newton steps: k + 8, with 3 layers of preparation and 5 of read-out.

    The construction uses ReLU, full attention and O(d) hidden units. Trained networks are faster: *each* of
    the layers 3 to 9 does about 3 steps. @yang2025slides instead states 3 steps by layer 8.
    """

    source = "@fu2023, theorem 5.1"

    @override
    def value(self) -> float:
        return self.loops + 8.0


class OswaldGd(LayersForSteps, kind="oswald_gd", titled="layers for gradient descent (von Oswald et al.)"):
    """Layers of linear attention for K gradient steps: K."""

    source = "@oswald2023, proposition 1 (from memory)"

    @override
    def value(self) -> float:
        return float(self.loops)
