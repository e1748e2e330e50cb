"""What a transformer pretrained on linear regression costs, by the papers: in prompts, in layers and in pairs.

Bai et al. measure half of the squared error; where their constants are hidden that makes no difference. Their κ is that
of the Gram matrix of one prompt, `kappa` here. Prompts of pretraining are counted as those drawn, steps · batch_size.
"""

import math

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound
from loopscale.theory.bounds.bayes import bayes_factor
from loopscale.theory.bounds.descent import Conditioned
from loopscale.theory.bounds.linear_regression import LinearExcess


class Pretrained(Bound):
    """A statement about the minimiser of the training loss, with probability 1 - failure over the prompts."""

    hidden_constant = True
    steps: PositiveInt = 1000
    """Of pretraining; with `batch_size` they make n, its prompts."""
    batch_size: PositiveInt = 64
    """Prompts a step."""
    failure: float = Field(0.05, gt=0, lt=1)
    """ξ."""

    @property
    def prompts(self) -> int:
        """n of Bai et al., who call the pairs N; a talk's slides on the theorem have the two the other way round."""
        return self.steps * self.batch_size


class WellPosed(Conditioned):
    """A part of theorem 21, at N >= Õ(d) pairs."""

    hidden_constant = True
    noise: NonNegativeFloat = 1.0
    """σ."""

    def check(self) -> None:
        self.require(self.noise > 0, "noise > 0")
        self.require(self.seen >= self.dim, "N >= d")


class BaiPretrain(Pretrained, WellPosed, kind="bai_pretrain"):
    """sqrt((κ²d² + ln(1/ξ))/n) + dσ²/N for n prompts and N >= Õ(d) pairs, by `bai_pretrain_layers` of 3 heads.

    Falls as n^(-1/2) to a floor, that of least squares. A first-order method, with as many layers as κ; the slides
    that credit it to the paper on Newton's method mistake it for Fu et al.'s theorem 5.1 (`fu_newton`).
    """

    claim = "<="
    of = "excess at a point"
    source = "Bai et al. 2023, theorem 21 (logarithms dropped)"

    @override
    def value(self) -> float:
        self.check()
        spread = (self.conditioning * self.dim) ** 2 + math.log(1 / self.failure)
        return math.sqrt(spread / self.prompts) + self.dim * self.noise**2 / self.seen


class BaiCrossover(WellPosed, kind="bai_crossover"):
    """κ²N²/σ⁴, from where on more prompts gain little by `bai_pretrain`: there its two terms balance.

    The paper prints κ²N/σ², for which they do not.
    """

    claim = "~"
    of = "prompts"
    source = "derived from Bai et al. 2023, theorem 21, ln(1/ξ) << κ²d²; corrects what is printed after it"

    @override
    def value(self) -> float:
        self.check()
        return (self.conditioning * self.seen) ** 2 / self.noise**4


class BaiPretrainLayers(WellPosed, kind="bai_pretrain_layers"):
    """κ ln(κN/σ), for `bai_pretrain`: of 3 heads, attention alone, weights of norm sqrt(κd)."""

    claim = "<="
    of = "layers"
    source = "Bai et al. 2023, theorem 21"

    @override
    def value(self) -> float:
        self.check()
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
