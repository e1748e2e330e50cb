"""Cost of pretraining a transformer on linear regression, in prompts, layers and pairs.

@bai2023 measure half of the squared error; this makes no difference where a constant is hidden. Their κ is
the condition number of the Gram matrix of one prompt, `kappa` here. The number of pretraining prompts is
steps · batch_size.
"""

import math

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound
from loopscale.theory.bounds.descent import WorstCase
from loopscale.theory.bounds.linear_regression import LinearExcess

SYSTEM = "linear regression"


class Pretrained(Bound):
    """A statement about the minimiser of the training loss, with probability 1 - failure over the prompts."""

    hidden_constant = True
    steps: PositiveInt = 1000
    """Number of pretraining steps; n = steps · batch_size prompts."""
    batch_size: PositiveInt = 64
    """Number of prompts per step."""
    failure: float = Field(0.05, gt=0, lt=1)
    """ξ, the probability that the statement fails."""

    @property
    def prompts(self) -> int:
        """n of @bai2023, where N is the number of pairs; @yang2025slides exchanges n and N."""
        return self.steps * self.batch_size


class BaiTheorem21(WorstCase):
    """A part of @bai2023, theorem 21, for N >= Õ(d) pairs."""

    hidden_constant = True
    noise: NonNegativeFloat = 1.0
    """σ, the standard deviation of the label noise."""

    def require_conditions(self) -> None:
        self.require(self.noise > 0, "noise > 0")
        self.require(self.seen >= self.dim, "N >= d")


class BaiPretrain(Pretrained, BaiTheorem21, kind="bai_pretrain", titled="pretraining rate (Bai et al.)"):
    """Excess after pretraining on n prompts of N >= Õ(d) pairs: sqrt((κ²d² + ln(1/ξ))/n) + dσ²/N.

    The excess falls as n^(-1/2) to a floor, the excess of least squares. The model has `bai_pretrain_layers`
    layers of 3 heads and imitates a first-order method, so that the number of layers grows with κ. @yang2025slides
    credits this theorem to the paper on Newton's method by mistake: the theorem of @fu2023 is 5.1
    (`fu_newton`).
    """

    claim = "<="
    of = "excess at a point"
    source = "@bai2023, theorem 21 (logarithms dropped)"

    @override
    def value(self) -> float:
        self.require_conditions()
        complexity = (self.condition_number * self.dim) ** 2 + math.log(1 / self.failure)
        return math.sqrt(complexity / self.prompts) + self.dim * self.noise**2 / self.seen


class BaiCrossover(BaiTheorem21, kind="bai_crossover", titled="crossover of pretraining (Bai et al.)"):
    """Prompts at which the two terms of `bai_pretrain` are equal: κ²N²/σ⁴. More prompts gain little.

    The paper prints κ²N/σ², where the terms are not equal.
    """

    claim = "~"
    of = "prompts"
    source = "derived from @bai2023, theorem 21, ln(1/ξ) << κ²d²; corrects what is printed after it"
    without_study = "a number of prompts; `bai_pretrain` has both of its terms in one law"

    @override
    def value(self) -> float:
        self.require_conditions()
        return (self.condition_number * self.seen) ** 2 / self.noise**4


class BaiPretrainLayers(
    BaiTheorem21, kind="bai_pretrain_layers", titled="layers for pretraining (Bai et al.)"
):
    """Layers for `bai_pretrain`: κ ln(κN/σ), attention only, with 3 heads and weights of norm sqrt(κd)."""

    claim = "<="
    of = "layers"
    source = "@bai2023, theorem 21"

    @override
    def value(self) -> float:
        self.require_conditions()
        kappa = self.condition_number
        self.require(kappa * self.seen > self.noise, "κN > σ")
        return kappa * math.log(kappa * self.seen / self.noise)


class BaiCapacity(Pretrained, kind="bai_capacity", titled="capacity bound (Bai et al.)"):
    """Loss above that of the best model of the class: B² sqrt((L² (MD² + DD') + ln(1/ξ))/n).

    The bound grows with the class. At practical sizes it is far above any loss. In the paper each of the M
    heads has D² weights per matrix, not D²/M as in this package.
    """

    claim = "<="
    of = "gap"
    source = "@bai2023, theorem 20 (the display from memory, logarithms dropped)"
    without_study = "above every loss at the sizes of the studies"
    layers: PositiveInt = 4
    """L, the number of layers."""
    heads: PositiveInt = 4
    """M, the number of heads."""
    width: PositiveInt = 64
    """D, the width."""
    mlp_width: NonNegativeInt | None = None
    """D', the width of the MLP; `None` for 4 times the width."""
    clip_y: PositiveFloat = 1.0
    """B, the largest |y| and |ŷ| after clipping."""

    @override
    def value(self) -> float:
        hidden = 4 * self.width if self.mlp_width is None else self.mlp_width
        size = self.layers**2 * (self.heads * self.width**2 + self.width * hidden)
        return self.clip_y**2 * math.sqrt((size + math.log(1 / self.failure)) / self.prompts)


class BaiLs(LinearExcess, kind="bai_ls", titled="least-squares rate (Bai et al.)"):
    """Excess of a transformer that does least squares, for N >= Õ(d): dσ²/N."""

    claim = "<="
    source = "@bai2023, corollary 5"
    hidden_constant = True
    without_study = "an upper bound up to a constant; the studies compare with the exact `bayes_ridge`"

    @override
    def value(self) -> float:
        self.require(self.seen >= self.dim, "N >= d")
        return self.dim * self.noise**2 / self.seen


class BaiLasso(LinearExcess, kind="bai_lasso", titled="lasso rate (Bai et al.)"):
    """Excess of a transformer that does the lasso, for weights with s non-zero coordinates: σ² s ln(d/δ)/N."""

    claim = "<="
    source = "@bai2023, theorem 11"
    hidden_constant = True
    without_study = "up to a constant, and no study varies the pairs of a noisy sparse prompt"
    nonzero: PositiveInt = 3
    """s, the number of non-zero weights."""
    failure: float = Field(0.05, gt=0, lt=1)
    """δ, the probability that the statement fails."""

    @override
    def value(self) -> float:
        self.require(self.nonzero <= self.dim, "nonzero <= dim")
        self.require(self.seen >= 1, "N >= 1")
        return self.noise**2 * self.nonzero * math.log(self.dim / self.failure) / self.seen


class BaiNearBayes(LinearExcess, kind="bai_near_bayes", titled="near-Bayes transformer (Bai et al.)"):
    """Excess of a transformer of L layers that is nearly Bayes-optimal: `bayes_ridge` + 2ε, ε = e^(-L).

    L = O(ln 1/ε) layers come within ε of the Bayes risk of half the squared error, for N >= max(d/10, O(ln
    1/ε)). With constant 1 the second condition is N >= L.
    """

    claim = "<="
    source = "@bai2023, corollary 6"
    hidden_constant = True
    without_study = "adds the error of a construction's layers to `bayes_ridge`, which the studies draw"
    layers: PositiveInt = 4
    """L, the number of layers."""

    @override
    def value(self) -> float:
        self.require(self.noise > 0, "noise > 0")
        self.require(self.seen >= max(self.dim / 10, self.layers), "N >= max(d/10, layers)")
        return self.bayes_excess(self.seen) + 2 * math.exp(-self.layers)
