"""What pretraining a transformer on linear regression takes, by the papers: prompts, layers and pairs.

Bai et al. measure half of the squared error; where their constants are hidden that makes no difference. Their κ is that
of the Gram matrix of one prompt, `kappa` here. Prompts of pretraining are counted as those drawn, steps · batch_size.
"""

import math

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound
from loopscale.theory.bounds.bayes import bayes_factor
from loopscale.theory.bounds.descent import Conditioned
from loopscale.theory.bounds.linear_regression import LinearExcess


class Pretrained(Bound):
    """A statement about the minimiser of the training loss, with probability 1 - failure over the prompts."""

    hidden_constant = True
    steps: PositiveInt = 1000
    batch_size: PositiveInt = 64
    failure: float = Field(0.05, gt=0, lt=1)
    """ξ."""

    @property
    def prompts(self) -> int:
        """n of Bai et al., who call the pairs N; a talk's slides on the theorem have the two the other way round."""
        return self.steps * self.batch_size


class BaiPretrain(Pretrained, Conditioned, kind="bai_pretrain"):
    """sqrt((κ²d² + ln(1/ξ))/n) + dσ²/N for n prompts and N >= Õ(d) pairs, by `bai_pretrain_layers` of 3 heads.

    Falls as n^(-1/2) to a floor, that of least squares. A first-order method, with as many layers as κ; the slides
    that credit it to the paper on Newton's method mistake it for Fu et al.'s theorem 5.1 (`fu_newton`).
    """

    claim = "<="
    of = "excess at a point"
    source = "Bai et al. 2023, theorem 21 (logarithms dropped)"
    noise: PositiveFloat = 1.0
    """σ."""

    @override
    def value(self) -> float:
        self.require(self.seen >= self.dim, "N >= d")
        spread = (self.conditioning * self.dim) ** 2 + math.log(1 / self.failure)
        return math.sqrt(spread / self.prompts) + self.dim * self.noise**2 / self.seen


class BaiCrossover(Conditioned, kind="bai_crossover"):
    """κ²N²/σ⁴, from where on more prompts gain little by `bai_pretrain`: there its two terms balance.

    The paper prints κ²N/σ², for which they do not.
    """

    claim = "~"
    of = "prompts"
    source = "derived from Bai et al. 2023, theorem 21, ln(1/ξ) << κ²d²; corrects what is printed after it"
    hidden_constant = True
    noise: PositiveFloat = 1.0
    """σ."""

    @override
    def value(self) -> float:
        self.require(self.seen >= self.dim, "N >= d")
        return (self.conditioning * self.seen) ** 2 / self.noise**4


class BaiPretrainLayers(Conditioned, kind="bai_pretrain_layers"):
    """κ ln(κN/σ), for `bai_pretrain`: of 3 heads, attention alone, weights of norm sqrt(κd)."""

    claim = "<="
    of = "layers"
    source = "Bai et al. 2023, theorem 21"
    hidden_constant = True
    noise: PositiveFloat = 1.0
    """σ."""

    @override
    def value(self) -> float:
        kappa = self.conditioning
        self.require(kappa * self.seen > self.noise, "κN > σ")
        return kappa * math.log(kappa * self.seen / self.noise)


class BaiCapacity(Pretrained, kind="bai_capacity"):
    """B² sqrt((L² (MD² + DD') + ln(1/ξ))/n): the loss above the best in the class, which grows with the class.

    Far above any loss at sizes that are trained. M heads have D² weights a matrix there, not D²/M as here.
    """

    claim = "<="
    of = "gap"
    source = "Bai et al. 2023, theorem 20 (the display from memory, logarithms dropped)"
    layers: PositiveInt = 4
    """L."""
    heads: PositiveInt = 4
    """M."""
    width: PositiveInt = 64
    """D."""
    mlp_width: NonNegativeInt | None = None
    """D'; `None` for 4 times the width."""
    clip_y: PositiveFloat = 1.0
    """B, at which y and its prediction are clipped."""

    @override
    def value(self) -> float:
        hidden = 4 * self.width if self.mlp_width is None else self.mlp_width
        size = self.layers**2 * (self.heads * self.width**2 + self.width * hidden)
        return self.clip_y**2 * math.sqrt((size + math.log(1 / self.failure)) / self.prompts)


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


class BaiLs(LinearExcess, kind="bai_ls"):
    """dσ²/N, as least squares, at N >= Õ(d)."""

    claim = "<="
    source = "Bai et al. 2023, corollary 5"
    hidden_constant = True

    @override
    def value(self) -> float:
        self.require(self.seen >= self.dim, "N >= d")
        return self.dim * self.noise**2 / self.seen


class BaiLasso(LinearExcess, kind="bai_lasso"):
    """σ² s ln(d/δ)/N, as the lasso, for weights with s that are not 0."""

    claim = "<="
    source = "Bai et al. 2023, theorem 11"
    hidden_constant = True
    nonzero: PositiveInt = 3
    """s."""
    failure: float = Field(0.05, gt=0, lt=1)
    """δ."""

    @override
    def value(self) -> float:
        self.require(self.nonzero <= self.dim, "nonzero <= dim")
        self.require(self.seen >= 1, "N >= 1")
        return self.noise**2 * self.nonzero * math.log(self.dim / self.failure) / self.seen


class BaiNearBayes(LinearExcess, kind="bai_near_bayes"):
    """`bayes_ridge` + 2ε with ε = e^(-L): L = O(ln 1/ε) layers come within ε of the Bayes risk of half the square.

    At N >= max(d/10, O(ln 1/ε)); the second is N >= L here, its constant 1.
    """

    claim = "<="
    source = "Bai et al. 2023, corollary 6"
    hidden_constant = True
    layers: PositiveInt = 4
    """L."""

    @override
    def value(self) -> float:
        self.isotropic()
        self.require(self.noise > 0, "noise > 0")
        self.require(self.seen >= max(self.dim / 10, self.layers), "N >= max(d/10, layers)")
        bayes = self.signal * self.dim * bayes_factor(self.seen, self.dim, self.noise_ratio)
        return bayes + 2 * math.exp(-self.layers)


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
