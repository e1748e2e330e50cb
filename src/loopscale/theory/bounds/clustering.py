"""Clustering of Gaussian mixtures: the smallest possible errors, and proven rates of spectral methods and EM.

SNR = |μ₁ - μ₂|/σ, with the distance between the nearest centres, not from a centre to the mean. An error that
is minimised over all relabellings can be below these values on short prompts (at SNR 0 it is below 1/2).
Compare the error with known labels, or use prompts of at least 100 points.
"""

import math

import numpy as np
import scipy  # scipy loads its submodules at the first use
from pydantic import Field, NonNegativeFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound

SYSTEM = "clustering"


class IsotropicMixture(Bound):
    """A statement about an isotropic Gaussian mixture with balanced components."""

    snr: NonNegativeFloat = 2.0
    """Distance between the nearest two centres, divided by the noise of a coordinate."""

    @property
    def theta(self) -> float:
        """θ, the distance from a centre to the midpoint of two centres, divided by the noise."""
        return self.snr / 2


class Gmm2Bayes(IsotropicMixture, kind="gmm2_bayes", titled="Bayes error of two components"):
    """Smallest error of any clustering of two components, attained with known centres: Φ(-SNR/2)."""

    claim = "="
    of = "misclassification"
    source = "textbook: linear discriminant"
    without_study = "the case of two components of `gmm_bayes`, which the studies draw"

    @override
    def value(self) -> float:
        return float(scipy.special.ndtr(-self.theta))


class GmmBayes(IsotropicMixture, kind="gmm_bayes", titled="Bayes error of the mixture"):
    """Smallest error for K known centres with equal distances: 1 - ∫ φ(t) Φ(t + SNR/√2)^{K-1} dt."""

    claim = "="
    of = "misclassification"
    source = "textbook: the probability of correct detection of orthogonal signals"
    components: PositiveInt = 3
    """K, the number of components."""

    @override
    def value(self) -> float:
        def missed(t: float) -> float:
            log_right = (self.components - 1) * float(scipy.special.log_ndtr(t + self.snr / math.sqrt(2)))
            return math.exp(-t * t / 2) / math.sqrt(2 * math.pi) * -math.expm1(log_right)

        return scipy.integrate.quad(missed, -12, 12, epsabs=1e-13, epsrel=1e-10, limit=200)[0]


class Gmm2Plugin(IsotropicMixture, kind="gmm2_plugin", titled="plug-in rule with estimated centres"):
    """Error with two centres ±μ, where μ is the mean of n labelled points, θ = SNR/2: Φ(-θ²/√(θ² + d/n)).

    The limit is d, n to infinity. The error changes from `gmm2_bayes` for n far above d/θ² to 1/2 for n far
    below. Without labels this is also the sharp rate.
    """

    claim = "~"
    of = "misclassification"
    source = "derived; @ndaoud2018 without labels (abstract, and from memory)"
    dim: PositiveInt = 20
    """d, the dimension of a point."""
    points: PositiveInt = 50
    """n, the number of points."""

    @override
    def value(self) -> float:
        self.require(self.snr > 0, "snr > 0")
        return float(scipy.special.ndtr(-(self.theta**2) / math.sqrt(self.theta**2 + self.dim / self.points)))


class ExactRecovery(Bound, kind="exact_recovery"):
    """θ² = SNR²/4 above which no point of n is misplaced, as n grows: (1 + √(1 + 2d/(n ln n))) ln n.

    At this θ² `gmm2_plugin` is Φ(-√(2 ln n)), about one error in n points.
    """

    claim = "~"
    of = "threshold"
    source = "@ndaoud2018 (abstract alone)"
    dim: PositiveInt = 20
    """d, the dimension of a point."""
    points: PositiveInt = 50
    """n, the number of points."""

    @override
    def value(self) -> float:
        self.require(self.points >= 2, "points >= 2")
        log = math.log(self.points)
        return (1 + math.sqrt(1 + 2 * self.dim / (self.points * log))) * log


class GmmCeFloor(IsotropicMixture, kind="gmm_ce_floor", titled="least cross entropy of the mixture"):
    """Smallest cross entropy of soft labels, two known centres: E h(posterior), h the binary entropy in nats.

    The comparison is up to relabelling: the order of the clusters is unknown, so a network is scored with the
    better of the two orders.
    """

    claim = "="
    of = "cross entropy"
    source = "textbook: the entropy of the label given the point"
    without_study = "needs known centres, which no prompt tells"

    @override
    def value(self) -> float:
        def surprise(t: float) -> float:
            posterior = scipy.special.expit(2 * self.theta * (t + self.theta) * np.array([1, -1]))
            return math.exp(-t * t / 2) / math.sqrt(2 * math.pi) * float(scipy.special.entr(posterior).sum())

        return scipy.integrate.quad(
            surprise, -12 - self.theta, 12, points=[-self.theta], epsabs=1e-13, limit=400
        )[0]


class AgreementOfError(IsotropicMixture):
    """An index of agreement with the true labels, for two balanced clusters with equal error rates."""

    of = "agreement"
    error: float | None = Field(None, ge=0, le=1)
    """e, the share of misplaced points; by default the smallest possible share, `gmm2_bayes`."""

    @property
    def misplaced(self) -> float:
        return float(scipy.special.ndtr(-self.theta)) if self.error is None else self.error


class AriOfError(AgreementOfError, kind="ari_of_error", titled="adjusted Rand index of the error"):
    """Adjusted Rand index of many points with error e: (1 - 2e)²."""

    claim = "~"
    source = "derived: shares of pairs of points in the same cluster"
    without_study = "converts one measure of a clustering into another, which is no course along an axis"

    @override
    def value(self) -> float:
        return (1 - 2 * self.misplaced) ** 2


class NmiOfError(AgreementOfError, kind="nmi_of_error", titled="normalised mutual information of the error"):
    """Normalised mutual information of many points with error e: 1 - h₂(e), h₂ the binary entropy in bits."""

    claim = "~"
    source = "derived: the capacity of a binary symmetric channel"
    without_study = "converts one measure of a clustering into another, which is no course along an axis"

    @override
    def value(self) -> float:
        e = self.misplaced
        return 1 - float(scipy.special.entr(np.array([e, 1 - e])).sum()) / math.log(2)


class GmmMinimax(IsotropicMixture, kind="gmm_minimax", titled="minimax rate of clustering"):
    """Minimax rate of the error to first order in the exponent, attained by Lloyd's algorithm: exp(-SNR²/8).

    The rate is a poor law at the SNR of experiments: at SNR 4 it is .1353, but `gmm2_bayes` is .02275. The
    logarithm of `gmm2_bayes` falls there by .148 per SNR², not by .125. @he2025em prove that
    transformers attain the rate from a good start. Their constants were not readable.
    """

    claim = "~"
    of = "misclassification"
    source = "@lu2016 (from memory); @he2025em (abstract alone)"
    hidden_constant = True

    @override
    def value(self) -> float:
        return math.exp(-(self.snr**2) / 8)
