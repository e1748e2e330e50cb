"""Clustering Gaussian mixtures: what no method errs less than, and what spectral and EM methods are proved to.

SNR = |μ₁ - μ₂|/σ, between the nearest centres, not from a centre to the mean. Errors that are the least over all
relabellings may lie below these values on short prompts (at SNR 0 they are below 1/2): hold a known labelling
against them, or prompts of 100 points or more. The E-step of EM is an identity, not a number: it is a
construction.
"""

import math

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt
from scipy.integrate import quad
from scipy.special import entr, expit, log_ndtr, ndtr
from typing_extensions import override

from loopscale.theory.bounds.base import Bound


class Mixture(Bound):
    """A statement about an isotropic Gaussian mixture with balanced components."""

    snr: NonNegativeFloat = 2.0
    """Distance between the nearest two centres, over the noise of a coordinate."""

    @property
    def theta(self) -> float:
        """θ, from a centre to the middle between two."""
        return self.snr / 2


class Gmm2Bayes(Mixture, kind="gmm2_bayes"):
    """Φ(-SNR/2): two known centres; no clustering errs less, given its labels."""

    claim = "="
    of = "misclassification"
    source = "textbook: linear discriminant"

    @override
    def value(self) -> float:
        return float(ndtr(-self.theta))


class GmmBayes(Mixture, kind="gmm_bayes"):
    """1 - ∫ φ(t) Φ(t + SNR/√2)^{K-1} dt: K known centres, each as far from every other (gmmK_bayes)."""

    claim = "="
    of = "misclassification"
    source = "textbook: the probability of correct detection of orthogonal signals"
    components: PositiveInt = 3
    """K."""

    @override
    def value(self) -> float:
        def missed(t: float) -> float:
            log_right = (self.components - 1) * float(log_ndtr(t + self.snr / math.sqrt(2)))
            return math.exp(-t * t / 2) / math.sqrt(2 * math.pi) * -math.expm1(log_right)

        return quad(missed, -12, 12, epsabs=1e-13, epsrel=1e-10, limit=200)[0]


class Gmm2Plugin(Mixture, kind="gmm2_plugin"):
    """Φ(-θ²/√(θ² + d/n)): two centres ±μ, μ the mean of n labelled points, θ = SNR/2; d, n to infinity.

    From `gmm2_bayes` for n far above d/θ² to 1/2 far below. Also the sharp rate without labels.
    """

    claim = "~"
    of = "misclassification"
    source = "derived; Ndaoud 2018 without labels (abstract, and from memory)"
    dim: PositiveInt = 20
    """d, coordinates of a point."""
    points: PositiveInt = 50
    """n."""

    @override
    def value(self) -> float:
        self.require(self.snr > 0, "snr > 0")
        return float(ndtr(-(self.theta**2) / math.sqrt(self.theta**2 + self.dim / self.points)))


class ExactRecovery(Bound, kind="exact_recovery"):
    """(1 + √(1 + 2d/(n ln n))) ln n: the θ² = SNR²/4 above which no point of n is misplaced, as n grows.

    There `gmm2_plugin` is Φ(-√(2 ln n)), about one error in n points.
    """

    claim = "~"
    of = "threshold"
    source = "Ndaoud 2018 (abstract alone)"
    dim: PositiveInt = 20
    """d, coordinates of a point."""
    points: PositiveInt = 50
    """n."""

    @override
    def value(self) -> float:
        self.require(self.points >= 2, "points >= 2")
        log = math.log(self.points)
        return (1 + math.sqrt(1 + 2 * self.dim / (self.points * log))) * log


class GmmCeFloor(Mixture, kind="gmm_ce_floor"):
    """E h(posterior), h the binary entropy in nats: two known centres; no soft labels cost less.

    Up to relabelling: a net that cannot know which cluster is called first is scored by the better naming.
    """

    claim = "="
    of = "cross entropy"
    source = "textbook: the entropy of the label given the point"

    @override
    def value(self) -> float:
        def surprise(t: float) -> float:
            posterior = expit(2 * self.theta * (t + self.theta) * np.array([1, -1]))
            return math.exp(-t * t / 2) / math.sqrt(2 * math.pi) * float(entr(posterior).sum())

        return quad(surprise, -12 - self.theta, 12, points=[-self.theta], epsabs=1e-13, limit=400)[0]


class OfError(Mixture):
    """An index of agreement with the truth, for two balanced clusters and an error as likely in either."""

    of = "agreement"
    error: float | None = Field(None, ge=0, le=1)
    """e, the share misplaced; by default the least there can be, `gmm2_bayes`."""

    @property
    def misplaced(self) -> float:
        return float(ndtr(-self.theta)) if self.error is None else self.error


class AriOfError(OfError, kind="ari_of_error"):
    """(1 - 2e)²: the adjusted Rand index, many points."""

    claim = "~"
    source = "derived: shares of pairs"

    @override
    def value(self) -> float:
        return (1 - 2 * self.misplaced) ** 2


class NmiOfError(OfError, kind="nmi_of_error"):
    """1 - h₂(e), in bits: normalised mutual information, many points."""

    claim = "~"
    source = "derived: the capacity of a binary symmetric channel"

    @override
    def value(self) -> float:
        e = self.misplaced
        return 1 - float(entr(np.array([e, 1 - e])).sum()) / math.log(2)


class GmmMinimax(Mixture, kind="gmm_minimax"):
    """exp(-SNR²/8), to first order in the exponent: the minimax rate, which Lloyd's algorithm attains.

    A poor law at the SNR of experiments: at 4 it is .1353 where `gmm2_bayes` is .02275, which falls by .148 per
    SNR² there and not by .125. He et al. 2025b prove that transformers attain it, from a good start; their
    constants could not be read.
    """

    claim = "~"
    of = "misclassification"
    source = "Lu and Zhou 2016 (from memory); He et al. 2025b (abstract alone)"
    hidden_constant = True

    @override
    def value(self) -> float:
        return math.exp(-(self.snr**2) / 8)
