"""First-order methods in the worst case: progress of gradient descent, and of any method with gradients only.

No bound here has a hidden constant. The convergence for one prompt depends on κ(S), the condition number of S
= X'X. Expectations over prompts are in `descent_risk.py`.
"""

import math
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound, InContext
from loopscale.theory.bounds.sample_spectrum import MOST_CONDITION, sample_spectrum

SYSTEM = "linear regression"


class WorstCase(InContext):
    """A statement for the worst right-hand side, given κ(S)."""

    kappa: float | None = Field(None, ge=1)
    """κ(S), the largest over the smallest non-zero eigenvalue of one prompt's S = X'X.

    This is not the task's `condition`, which belongs to the covariance of x. The default is the ratio of the
    ends of the spectrum for large d and N: of the Marchenko-Pastur law for isotropic x, else of the law of
    @silverstein1995.
    """
    condition: float = Field(1.0, ge=1)
    """κ of the covariance of x."""
    spectrum_levels: int = Field(2, ge=2)
    """The number of different eigenvalues of the covariance of x, as in the task."""

    @property
    def condition_number(self) -> float:
        """κ(S)."""
        if self.kappa is not None:
            return self.kappa
        self.require(self.seen not in (0, self.dim), "N other than 0 and d, or a given kappa")
        if self.condition > 1:
            self.require(self.condition <= MOST_CONDITION, "condition <= 1,000,000, or a given kappa")
            return sample_spectrum(self.dim, self.seen, self.condition, self.spectrum_levels).condition_number
        root = math.sqrt(self.seen / self.dim)
        return ((root + 1) / (root - 1)) ** 2


class GdContraction(WorstCase, kind="gd_contraction", titled="contraction of gradient descent"):
    """Residual after T gradient steps of the best constant size, worst case: ((κ-1)/(κ+1))^T."""

    claim = "="
    of = "residual"
    source = "@nesterov2004, theorem 2.1.15"
    without_study = "concerns the worst start; `first_order_sampled` gives the mean over prompts"
    loops: PositiveInt = 10
    """T, the number of iterations."""

    @override
    def value(self) -> float:
        return ((self.condition_number - 1) / (self.condition_number + 1)) ** self.loops


class GdSteps(WorstCase, kind="gd_steps", titled="steps of gradient descent"):
    """Steps of the best constant size until the residual is ε: ln(1/ε) / ln((κ+1)/(κ-1)), about (κ/2) ln(1/ε)."""

    claim = "="
    of = "steps"
    source = "@nesterov2004, theorem 2.1.15"
    without_study = "counts steps to an accuracy in the worst case; trials run a fixed number of loops"
    accuracy: float = Field(1e-6, gt=0, lt=1)
    """ε, the final error relative to the initial error."""

    @override
    def value(self) -> float:
        kappa = self.condition_number
        self.require(kappa > 1, "kappa > 1: at 1 a single step is exact")
        return math.log(1 / self.accuracy) / math.log((kappa + 1) / (kappa - 1))


class Chebyshev(WorstCase, kind="chebyshev", titled="Chebyshev iteration"):
    """Smallest residual of any method with T gradients, worst case: 2/(ρ^T + ρ^-T), ρ = (√κ+1)/(√κ-1).

    The spectrum of S fills the interval between its ends. Conjugate gradients leave at most this residual in
    the energy norm.
    """

    claim = ">="
    of = "residual"
    source = "textbook: Chebyshev polynomials; @saad2003, theorem 6.29"
    loops: PositiveInt = 10
    """T, the number of iterations."""

    @override
    def value(self) -> float:
        root = math.sqrt(self.condition_number)
        if root == 1:
            return 0.0
        power = self.loops * math.log((root + 1) / (root - 1))
        return 2 * math.exp(-power) / (1 + math.exp(-2 * power))  # this form of 1/cosh does not overflow


class ConvexDescent(Bound):
    """A statement for a convex function with L-Lipschitz gradient and a start at distance R from a minimiser."""

    claim = "<="
    of = "gap"
    loops: PositiveInt = 10
    """T, the number of iterations."""
    smoothness: PositiveFloat = 1.0
    """L, the Lipschitz constant of the gradient."""
    distance: PositiveFloat = 1.0
    """R, the distance from the start to a minimiser."""

    @property
    def scale(self) -> float:
        """LR²."""
        return self.smoothness * self.distance**2


class GdSmooth(ConvexDescent, kind="gd_smooth", titled="gradient descent on a smooth function"):
    """f - f* after T gradient steps of size 1/L: LR²/(4T+2), which is tight, or one of two textbook forms."""

    source = "@drori2014, theorem 3.1; @nesterov2004, corollary 2.1.2"
    without_study = "concerns the objective on the prompt's own pairs; trials record errors of the answer"
    form: Literal["tight", "textbook", "nesterov"] = "tight"
    """`tight` for LR²/(4T + 2), `textbook` for LR²/2T, `nesterov` for 2LR²/(T + 4)."""

    @override
    def value(self) -> float:
        steps = self.loops
        factors = {"tight": 1 / (4 * steps + 2), "textbook": 1 / (2 * steps), "nesterov": 2 / (steps + 4)}
        return self.scale * factors[self.form]


class Ista(ConvexDescent, kind="ista", titled="ISTA"):
    """f - f* after T steps of proximal gradient descent (ISTA) on a composite convex function: LR²/2T."""

    source = "@beck2009, theorem 3.1"
    without_study = "concerns the objective on the prompt's own pairs; trials record errors of the answer"

    @override
    def value(self) -> float:
        return self.scale / (2 * self.loops)


class Fista(ConvexDescent, kind="fista", titled="FISTA"):
    """f - f* after T steps of FISTA, the accelerated form of `ista`: 2LR²/(T+1)²."""

    source = "@beck2009, theorem 4.4"
    without_study = "concerns the objective on the prompt's own pairs; trials record errors of the answer"

    @override
    def value(self) -> float:
        return 2 * self.scale / (self.loops + 1) ** 2


class InexactGd(Bound, kind="inexact_gd", titled="inexact gradient descent"):
    """Distance to exact gradient descent after T steps, if each step has an error of at most ηε.

    (ε/β) ((1 + ηβ)^T - 1) for a smooth loss, Tηε for a convex loss, (ε/μ) (1 - (1 - ημ)^T) for a strongly
    convex loss.
    """

    claim = "<="
    of = "distance"
    source = "derived; the convex case is @bai2023, lemma 14"
    without_study = "no trial measures the distance to exact descent"
    loops: PositiveInt = 10
    """T, the number of iterations."""
    rate: PositiveFloat = 0.1
    """η, the step size."""
    accuracy: PositiveFloat = 0.01
    """ε, the error of a step divided by η."""
    smoothness: PositiveFloat = 1.0
    """β, the Lipschitz constant of the gradient."""
    strength: PositiveFloat = 0.5
    """μ of strong convexity; used only for `strongly_convex`."""
    curvature: Literal["smooth", "convex", "strongly_convex"] = "smooth"
    """Assumption about the loss: β-smooth, also convex, or also strongly convex with μ."""

    @override
    def value(self) -> float:
        eta, eps, beta, mu = self.rate, self.accuracy, self.smoothness, self.strength
        if self.curvature == "smooth":
            return eps / beta * math.expm1(self.loops * math.log1p(eta * beta))
        if self.curvature == "convex":
            self.require(eta <= 2 / beta, "rate <= 2 / smoothness")
            return self.loops * eta * eps
        self.require(mu <= beta and eta <= 2 / (mu + beta), "strength <= smoothness, rate <= 2 / (their sum)")
        return eps / mu * (1 - (1 - eta * mu) ** self.loops)
