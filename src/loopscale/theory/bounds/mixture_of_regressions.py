"""Mixtures of linear regressions: errors of coefficients and of labels against the number of pairs.

y = <β_z, x> + v·noise with a hidden component z; two symmetric components are ±β. η = |β|/v is the SNR. @jin2024
bound the error of a transformer that runs EM internally. With constants of 1 their threshold
classifies every practical prompt as "low" SNR, so use `mlr_fisher` to locate the threshold. If every pair has
its own z, the best prediction of y under the symmetric mixture is 0. Then measure the error of β up to its
sign.
"""

import math
from typing import Literal

import numpy as np
import scipy  # scipy loads its submodules at the first use
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound, InContext
from loopscale.theory.bounds.bayes_risk import prior_variance_left

SYSTEM = "mixtures of regressions"

NODES = 24
"""Number of nodes of the spline in the number of pairs."""


class MlrLabelled(InContext, kind="mlr_labelled", titled="least squares with known labels"):
    """E |β̂ - β|² of least squares with known component labels: v² d/(n-d-1). A lower reference."""

    claim = "="
    of = "squared parameter error"
    source = "textbook: mean of the inverse Wishart"
    without_study = "needs prompts that tell the component of a label, and no task has them"
    noise: NonNegativeFloat = 1.0
    """v, the standard deviation of the label noise."""

    @override
    def value(self) -> float:
        self.require(self.seen >= self.dim + 2, "N >= d + 2")
        return self.noise**2 * self.dim / (self.seen - self.dim - 1)


def fisher_information(eta: float) -> tuple[float, float]:
    """Fisher information of one pair about β, multiplied by v²: along β and across β.

    These are E g² I(ηg) and E I(ηg) with g ~ N(0, 1). I(a) is the information about a in y ~ ½N(a, 1) +
    ½N(-a, 1).
    """
    # The trapezoidal rule converges geometrically. I(ηg) varies on the scale 1/η and the density on the scale 1; with
    # g = sinh(u)/max(η, 1) both vary slowly in u.
    wide = max(eta, 1.0)
    u, u_step = np.linspace(0, math.asinh(9 * wide), 400, retstep=True)
    g = np.sinh(u) / wide
    weights = np.exp(-(g**2) / 2) * np.cosh(u) * u_step * math.sqrt(2 / math.pi) / wide
    y, y_step = np.linspace(-9, 9, 361, retstep=True)
    a = eta * g[:, None]
    # The component at +a suffices, a + y with y ~ N(0, 1), because the other component is its mirror image.
    score = (a + y) * np.tanh(a * (a + y)) - a
    about_a = (score**2 * np.exp(-(y**2) / 2)).sum(1) * y_step / math.sqrt(2 * math.pi)
    return float(weights @ (g**2 * about_a)), float(weights @ about_a)


class MlrFisher(InContext, kind="mlr_fisher", titled="Fisher information bound"):
    """Mean squared error of maximum likelihood, fixed η, n to infinity: (v²/n) (1/E g²I(ηg) + (d-1)/E I(ηg)).

    The error falls as 1/n at every η. In η it falls about as 1/η² for small η and is flat above 1. The
    formula does not apply below η of about (d/n)^¼, where E |β̂| ∝ (d/n)^¼.
    """

    claim = "~"
    of = "squared parameter error"
    source = "derived: the Fisher information"
    without_study = (
        "a limit for long prompts at a fixed SNR; EM stands for maximum likelihood on the same prompts"
    )
    noise: PositiveFloat = 1.0
    """v, the standard deviation of the label noise."""
    snr: PositiveFloat = 1.0
    """η."""

    @override
    def value(self) -> float:
        self.require(self.seen >= 1, "N >= 1")
        along, across = fisher_information(self.snr)
        return self.noise**2 / self.seen * (1 / along + (self.dim - 1) / across)


class JinSymmetric(InContext):
    """A statement of @jin2024 about two components ±β with v = 1, on both sides of a threshold of η.

    Corrected: the printed rate above the threshold lacks the factor 1/η, so the printed bound jumps at the
    threshold. With the factor the rates agree there (`kwon_k2`). From η = 1 on, both readings are equal.
    """

    claim = "<="
    hidden_constant = True
    points: PositiveInt = 1001
    snr: PositiveFloat = 1.0
    """η."""
    failure: float = Field(0.05, gt=0, lt=1)
    """δ, the probability that the statement fails."""
    threshold: PositiveFloat = 1.0
    """C of the condition n >= C d ln²(1/δ) and of the threshold η = C (d ln² n/n)^¼; the source leaves C
    open.
    """
    reading: Literal["corrected", "printed"] = "corrected"
    """`printed` as in the paper, `corrected` where the paper contradicts itself."""

    @property
    def pairs(self) -> int:
        """n, after a check of its condition."""
        needed = max(self.threshold * self.dim * math.log(self.failure) ** 2, 2)
        self.require(self.seen >= needed, f"N >= {needed:.0f} = threshold · d ln²(1/failure)")
        return self.seen

    def error(self, rate: float, limit: float) -> float:
        """rate^¼ for η up to C limit^¼, otherwise rate^½ (divided by η for η below 1)."""
        if self.snr <= self.threshold * limit**0.25:
            return rate**0.25
        return rate**0.5 / (min(self.snr, 1) if self.reading == "corrected" else 1)


class JinK2(JinSymmetric, kind="jin_k2", titled="parameter rate (Jin et al.)"):
    """|β̂ - β| for ±β: r^¼ at low SNR, r^½/min(η, 1) at high SNR, r = d ln²(n/δ)/n."""

    of = "parameter error"
    source = "@jin2024, theorem 3.2 (from @yang2025slides; the rates in its abstract); corrected by @kwon2021"
    without_study = "bounds a norm, and `mixture_regression/length` records its mean square"

    @override
    def value(self) -> float:
        n = self.pairs
        log, log_sure = math.log(n), math.log(n / self.failure)
        return self.error(self.dim * log_sure**2 / n, self.dim * log**2 / n)


class JinExcess(JinSymmetric, kind="jin_excess", titled="excess-risk rate (Jin et al.)"):
    """Excess risk for ±β: √r at low SNR, r/min(η, 1)² at high SNR, r = d ln² n/n; `jin_k2`² up to logarithms."""

    of = "excess at a point"
    source = "@jin2024, theorem 3.3 (from @yang2025slides); corrected by @kwon2021"
    without_study = (
        "concerns labels of ±β, whose best prediction is 0 under equal weights; no study asks for them"
    )

    @override
    def value(self) -> float:
        n = self.pairs
        log, log_sure = math.log(n), math.log(n / self.failure)
        return self.error(self.dim * log**2 / n, self.dim * log_sure**2 / n) ** 2


class JinGeneral(InContext, kind="jin_general", titled="distance to the oracle (Jin et al.)"):
    """Distance to the prediction of an oracle that knows all β: √ln(d/δ) (√(dKρ² ln²(nK²/δ)/n) + √(dK/n))."""

    claim = "<="
    of = "prediction error"
    source = "@jin2024, theorem 3.1 (from @yang2025slides)"
    hidden_constant = True
    without_study = "above every error at the sizes of the studies"
    points: PositiveInt = 1001
    components: PositiveInt = 3
    """K, the number of components."""
    imbalance: float = Field(1.0, ge=1)
    """ρ, the largest over the smallest probability of a component."""
    snr: PositiveFloat = 4.0
    """η; used only in the condition."""
    failure: float = Field(0.05, gt=0, le=1 / 9)
    """δ; the statement fails with probability 9δ."""
    threshold: PositiveFloat = 1.0
    """C of the condition η >= CKρ ln(Kρ), which the source leaves open."""

    @override
    def value(self) -> float:
        n, mass = self.seen, self.components * self.imbalance
        least = self.threshold * mass * math.log(mass)
        self.require(n >= 1, "N >= 1")
        self.require(self.snr >= least, f"snr >= {least:.3g} = threshold · Kρ ln(Kρ)")
        logs = self.imbalance * math.log(n * self.components**2 / self.failure)
        shape = math.sqrt(self.dim * self.components / n)
        return math.sqrt(math.log(self.dim / self.failure)) * shape * (logs + 1)


class JinPrompts(Bound, kind="jin_prompts", titled="pretraining rate (Jin et al.)"):
    """Loss of L layers after pretraining on B prompts, above the best loss: L/√B."""

    claim = "<="
    of = "generalisation gap"
    source = "@jin2024 (abstract alone)"
    hidden_constant = True
    layers: PositiveInt = 12
    """L, the number of layers."""
    prompts: PositiveInt = 10_000
    """B, the number of pretraining prompts."""

    @override
    def value(self) -> float:
        return self.layers / math.sqrt(self.prompts)


class KwonK2(InContext, kind="kwon_k2", titled="parameter rate (Kwon et al.)"):
    """Rate of |β̂ - β| for two components ±β: min((d/n)^¼, (d/n)^½/min(η, 1)).

    EM attains the rate, and no method has a faster one. There are three regimes: n^-¼ for η below (d/n)^¼,
    then n^-½/η, and n^-½ from η = 1 on.
    """

    claim = "<="
    of = "parameter error"
    source = "@kwon2021 (abstract alone)"
    hidden_constant = True
    without_study = "bounds a norm, and `mixture_regression/length` records its mean square"
    snr: PositiveFloat = 1.0
    """η."""

    @override
    def value(self) -> float:
        self.require(self.seen >= self.dim, "N >= d")
        rate = self.dim / self.seen
        return min(rate**0.25, rate**0.5 / min(self.snr, 1))


class EmIterations(InContext, kind="em_iterations", titled="iterations of EM"):
    """Iterations of EM until the error reaches `kwon_k2`: ln(n/d)/min(η, 1)², or √(n/d) for η below (d/n)^¼."""

    claim = "<="
    of = "steps"
    source = "@kwon2021 (abstract alone)"
    hidden_constant = True
    without_study = "counts iterations up to a constant, and no trial measures when EM arrives"
    snr: PositiveFloat = 1.0
    """η."""

    @override
    def value(self) -> float:
        self.require(self.seen > self.dim, "N > d")
        ratio = self.seen / self.dim
        if self.snr <= ratio**-0.25:
            return math.sqrt(ratio)
        return math.log(ratio) / min(self.snr, 1) ** 2


class MixtureTold(InContext, kind="mixture_told", titled="Bayes predictor with known components"):
    """Excess of the Bayes predictor that knows the component of each past pair: Σ π_k² τ² d E F(n_k, d).

    No predictor without this knowledge has a smaller excess. The excess is relative to the predictor that
    knows all β_k: E |Σ π_k (β̂_k - β_k)|². Here n_k ~ Binomial(n, π_k), and F(n, d) is the share of the prior
    variance that is left after n pairs, as in `bayes_ridge`. For ±β all n pairs are pairs of one regression,
    and the label depends on (π_1 - π_2) β. Components on a sphere are easier to estimate than Gaussian ones
    from the first pair on. For them the bound is 0.

    The settings are those of the task `mixture_regression`: y = <β_z, x> + noise, x ~ N(0, I), and every pair
    has its own z with probabilities π.
    """

    claim = ">="
    of = "excess at a point"
    source = "derived: told labels make the mixture K Bayesian regressions, of which `bayes_ridge` has the exact risk"
    floor_of = "mixture_regression"
    without_study = "a floor that answers print beside every trial of its task, not a course to follow"
    components: PositiveInt = 2
    """K, the number of components."""
    weights: tuple[PositiveFloat, ...] | None = None
    """Numbers proportional to π; `None` for equal probabilities."""
    symmetric: bool = False
    """Whether the components are ±β."""
    snr: PositiveFloat = 5.0
    """η = τ √d / σ."""
    w_scale: PositiveFloat = 1.0
    """τ, the standard deviation of a coordinate of β."""
    prior: Literal["gaussian", "sphere"] = "gaussian"
    """Prior of a component: Gaussian coordinates, or uniform on a sphere."""
    target: Literal["label", "components"] = "label"
    """Target of the task; the statement covers `label` only."""

    @override
    def value(self) -> float:
        self.require(self.target == "label", "the target `label`")
        weights = self.weights or (1.0,) * self.components
        self.require(len(weights) == self.components, "a weight for each component")
        self.require(not self.symmetric or self.components == 2, "two symmetric components")
        if self.prior == "sphere":
            return 0.0
        shares = np.array(weights) / sum(weights)
        if self.symmetric:
            left = (shares[0] - shares[1]) ** 2 * self._left_after(self.seen)
        else:
            distinct, counts = np.unique(shares, return_counts=True)
            left = sum(
                count * share**2 * self._expected_left(share)
                for share, count in zip(distinct, counts, strict=True)
            )
        return float(self.dim * self.w_scale**2 * left)

    def _left_after(self, pairs: int) -> float:
        return prior_variance_left(pairs, self.dim, self.dim / self.snr**2)

    def _expected_left(self, share: float) -> float:
        """E F over the number of pairs of a component with probability `share`.

        Tails of probability 1e-13 are ignored. In a wide range F is smooth in n, so that a cubic spline
        replaces most evaluations.
        """
        low, high = (int(scipy.stats.binom.ppf(chance, self.seen, share)) for chance in (1e-13, 1 - 1e-13))
        pairs = np.arange(max(low, 0), high + 1)
        probabilities = scipy.stats.binom.pmf(pairs, self.seen, share)
        if len(pairs) <= 2 * NODES or pairs[0] <= 2 * self.dim:
            left = np.array([self._left_after(n) for n in pairs.tolist()])
        else:
            nodes = np.unique(np.linspace(pairs[0], pairs[-1], NODES).round().astype(int))
            left = scipy.interpolate.CubicSpline(nodes, [self._left_after(n) for n in nodes.tolist()])(pairs)
        return float(probabilities @ left / probabilities.sum())
