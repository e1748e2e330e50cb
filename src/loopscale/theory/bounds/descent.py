"""First-order methods: what a step of gradient descent, or any method that sees gradients alone, can gain.

Steps `rate` are for the mean over the pairs seen, as the solver's. Every entry is free of constants.
Convergence in the worst case depends on κ(S), the condition number of S = X'X of one prompt; the risks are
expectations over prompts.
"""

import math
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound, InContext


class Conditioned(InContext):
    """A statement for the worst case over right-hand sides, given κ(S)."""

    kappa: float | None = Field(None, ge=1)
    """κ(S), largest over smallest non-zero eigenvalue, for one prompt's S: not the task's `condition`, of
    the covariance.

    By default the ratio of the ends of the Marchenko-Pastur law, isotropic x: a limit for large d and N.
    """
    condition: float = Field(1.0, ge=1)
    """κ of the covariance of x; unless it is 1, `kappa` must be given."""

    @property
    def conditioning(self) -> float:
        """κ(S)."""
        if self.kappa is not None:
            return self.kappa
        self.require(self.condition == 1, "isotropic inputs (condition 1), or a given kappa")
        self.require(self.seen not in (0, self.dim), "N other than 0 and d, or a given kappa")
        root = math.sqrt(self.seen / self.dim)
        return ((root + 1) / (root - 1)) ** 2


class GdContraction(Conditioned, kind="gd_contraction"):
    """((κ-1)/(κ+1))^T: what T steps of the best fixed size leave of the distance, at worst."""

    claim = "="
    of = "residual"
    source = "Nesterov 2004, theorem 2.1.15"
    loops: PositiveInt = 10
    """T, iterations."""

    @override
    def value(self) -> float:
        return ((self.conditioning - 1) / (self.conditioning + 1)) ** self.loops


class GdSteps(Conditioned, kind="gd_steps"):
    """ln(1/ε) / ln((κ+1)/(κ-1)) steps of the best fixed size leave a share ε; about (κ/2) ln(1/ε)."""

    claim = "="
    of = "steps"
    source = "Nesterov 2004, theorem 2.1.15"
    accuracy: float = Field(1e-6, gt=0, lt=1)
    """ε: the share of the first error that may be left."""

    @override
    def value(self) -> float:
        kappa = self.conditioning
        self.require(kappa > 1, "kappa > 1: at 1 a single step is exact")
        return math.log(1 / self.accuracy) / math.log((kappa + 1) / (kappa - 1))


class Chebyshev(Conditioned, kind="chebyshev"):
    """2/(ρ^T + ρ^-T), ρ = (√κ+1)/(√κ-1): no method of T gradients leaves less, on a spectrum that fills its
    interval.

    Conjugate gradients leave at most this, in the norm of the energy.
    """

    claim = ">="
    of = "residual"
    source = "textbook: Chebyshev polynomials; Saad 2003, theorem 6.29"
    loops: PositiveInt = 10
    """T, iterations."""

    @override
    def value(self) -> float:
        root = math.sqrt(self.conditioning)
        if root == 1:
            return 0.0
        power = self.loops * math.log((root + 1) / (root - 1))
        return 2 * math.exp(-power) / (1 + math.exp(-2 * power))  # cosh itself overflows


class Smooth(Bound):
    """A statement for a convex function with L-Lipschitz gradient, started at a distance R from a minimum."""

    loops: PositiveInt = 10
    """T, iterations."""
    smoothness: PositiveFloat = 1.0
    """L."""
    distance: PositiveFloat = 1.0
    """R."""

    @property
    def scale(self) -> float:
        return self.smoothness * self.distance**2


class GdSmooth(Smooth, kind="gd_smooth"):
    """Gradient descent with steps 1/L: tight as LR²/(4T+2), and in two forms that textbooks have."""

    claim = "<="
    of = "gap"
    source = "Drori and Teboulle 2014, theorem 3.1; Nesterov 2004, corollary 2.1.2"
    form: Literal["tight", "textbook", "nesterov"] = "tight"
    """`tight` for LR²/(4T + 2), `textbook` for LR²/2T, `nesterov` for 2LR²/(T + 4)."""

    @override
    def value(self) -> float:
        k = self.loops
        return (
            self.scale
            * {"tight": 1 / (4 * k + 2), "textbook": 1 / (2 * k), "nesterov": 2 / (k + 4)}[self.form]
        )


class Ista(Smooth, kind="ista"):
    """Proximal gradient descent on a composite convex function: LR²/2T."""

    claim = "<="
    of = "gap"
    source = "Beck and Teboulle 2009, theorem 3.1"

    @override
    def value(self) -> float:
        return self.scale / (2 * self.loops)


class Fista(Smooth, kind="fista"):
    """The same, accelerated: 2LR²/(T+1)²."""

    claim = "<="
    of = "gap"
    source = "Beck and Teboulle 2009, theorem 4.4"

    @override
    def value(self) -> float:
        return 2 * self.scale / (self.loops + 1) ** 2


class InexactGd(Bound, kind="inexact_gd"):
    """The distance to exact descent after T steps, each off by at most rate·ε."""

    claim = "<="
    of = "distance"
    source = "derived; the convex case is Bai et al. 2023, lemma 14"
    loops: PositiveInt = 10
    """T, iterations."""
    rate: PositiveFloat = 0.1
    """η."""
    accuracy: PositiveFloat = 0.01
    """ε."""
    smoothness: PositiveFloat = 1.0
    """β."""
    strength: PositiveFloat = 0.5
    """μ of strong convexity; it matters there alone."""
    curvature: Literal["smooth", "convex", "strongly_convex"] = "smooth"
    """What is known of the loss: `smooth` alone, `convex` as well, or of strength μ."""

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
