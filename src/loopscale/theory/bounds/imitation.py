"""Layers that suffice for a number of an algorithm's steps on linear regression, by explicit weights."""

import math

from pydantic import PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound
from loopscale.theory.bounds.descent import Conditioned


class BaiRidgeLayers(Conditioned, kind="bai_ridge_layers"):
    """ceil(2κ ln(B_x B_w/(2ε))) + 1 layers of 3 heads come within ε of ridge: descent, a step a layer.

    `kappa` is that of X'X/N + λ; without it that of X'X, which is larger.
    """

    claim = "<="
    of = "layers"
    source = "Bai et al. 2023, theorem 4 (the display from memory)"
    accuracy: PositiveFloat = 1e-3
    """ε, of the prediction."""
    product: PositiveFloat = 1.0
    """B_x B_w, where |x| <= B_x and the solution has a norm of B_w/2 at most."""

    @override
    def value(self) -> float:
        self.require(2 * self.accuracy < self.product, "accuracy < product / 2: else predicting 0 is enough")
        return math.ceil(2 * self.conditioning * math.log(self.product / (2 * self.accuracy))) + 1.0


class Imitated(Bound):
    """Layers that suffice for a number of an algorithm's steps."""

    claim = "<="
    of = "layers"
    loops: PositiveInt = 10
    """Steps of the algorithm."""


class BaiIcgd(Imitated, kind="bai_icgd"):
    """L + 1 layers do L steps of descent on a convex loss, each within ε; `inexact_gd` says what that adds up to."""

    source = "Bai et al. 2023, theorem 13"

    @override
    def value(self) -> float:
        return self.loops + 1.0


class FuNewton(Imitated, kind="fu_newton"):
    """k + 8 layers do k of Newton's steps exactly: 3 to prepare, 5 to read out; ReLU, full attention, O(d) hidden.

    What trained nets do is faster: about 3 steps for *each* of layers 3 to 9, not 3 by layer 8 as slides have it.
    """

    source = "Fu et al. 2023, theorem 5.1"

    @override
    def value(self) -> float:
        return self.loops + 8.0


class OswaldGd(Imitated, kind="oswald_gd"):
    """K layers of linear attention do K gradient steps."""

    source = "von Oswald et al. 2023, proposition 1 (from memory)"

    @override
    def value(self) -> float:
        return float(self.loops)
