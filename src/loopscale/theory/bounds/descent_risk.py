"""Expected excess of first-order methods on linear regression with isotropic inputs.

The coefficients of a method are the same for all prompts. The lower bounds apply to linear attention that
does not change the x-part of its tokens. Other models can be below them. Updating the x-part (GD++) gives
polynomials of higher degree. Softmax or MLP layers can adapt to the prompt, as conjugate gradients do. Rare
prompts with an eigenvalue above 2/rate dominate the mean risk of a constant step. Compare medians as well.
"""

import math

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import InContext
from loopscale.theory.bounds.linear_regression import LinearExcess, marchenko_pastur_mean

SYSTEM = "linear regression"


def wishart_moments(n: int, d: int) -> tuple[float, float, float, float]:
    """E tr Ŝ^j for j = 1 .. 4, with Ŝ = X'X/n and n rows x ~ N(0, I_d)."""
    second = n + d + 1
    third = n**2 + d**2 + 3 * n * d + 3 * (n + d) + 4
    fourth = n**3 + d**3 + 6 * n * d * (n + d) + 6 * (n**2 + d**2) + 17 * n * d + 21 * (n + d) + 20
    return float(d), d * second / n, d * third / n**2, d * fourth / n**3


class WishartMoments(InContext, kind="wishart_moments", titled="moments of the sample covariance"):
    """Moment E tr Ŝ^j of the sample covariance Ŝ of N isotropic Gaussian inputs."""

    claim = "="
    of = "moment"
    source = "textbook: moments of the Wishart distribution"
    power: int = Field(2, ge=1, le=4)
    """j."""

    @override
    def value(self) -> float:
        self.require(self.seen >= 1, "N >= 1")
        return wishart_moments(self.seen, self.dim)[self.power - 1]


class DescentRisk(LinearExcess):
    """The excess of a first-order method after N >= 1 pairs."""

    def require_conditions(self, noiseless: bool = True) -> None:
        self.require_isotropic()
        self.require(self.seen >= 1, "N >= 1")
        self.require(self.noise == 0 or not noiseless, "noise 0")


class GdRisk1(DescentRisk, kind="gd_risk_1", titled="one gradient step"):
    """Excess after one gradient step of size `rate` from 0; the same as `averaging` with scale = rate."""

    claim = "="
    source = "derived: moments of a Gaussian"
    without_study = "holds for one fixed step size; the studies compare with the best coefficients"
    rate: PositiveFloat = 0.5
    """η, the step size for the mean loss over the pairs."""

    @override
    def value(self) -> float:
        return self.averaging_excess(self.rate)


class GdRisk2(DescentRisk, kind="gd_risk_2", titled="two gradient steps"):
    """Excess after two gradient steps of size `rate` from 0, without noise: τ² E tr (I - ηŜ)⁴."""

    claim = "="
    source = "derived: moments of the Wishart distribution"
    without_study = "holds for one fixed step size; the studies compare with the best coefficients"
    rate: PositiveFloat = 0.5
    """η, the step size for the mean loss over the pairs."""

    @override
    def value(self) -> float:
        self.require_conditions()
        eta = self.rate * self.x_scale**2
        m1, m2, m3, m4 = wishart_moments(self.seen, self.dim)
        return self.signal * (self.dim - 4 * eta * m1 + 6 * eta**2 * m2 - 4 * eta**3 * m3 + eta**4 * m4)


class GdRiskMP(DescentRisk, kind="gd_risk_mp", titled="gradient descent (asymptotic)"):
    """Excess after T gradient steps of size η < 2/(1 + √γ)² from 0, γ = d/N, for d and N to infinity."""

    claim = "~"
    source = "@ali2019, theorem 6 (Marchenko-Pastur law)"
    without_study = (
        "a limit for one fixed step size; the studies compare with the best coefficients at their own size"
    )
    loops: PositiveInt = 5
    """T, the number of iterations."""
    rate: PositiveFloat = 0.5
    """η, the step size for the mean loss over the pairs."""

    @override
    def value(self) -> float:
        self.require_conditions(noiseless=False)
        gamma, eta = self.dim / self.seen, self.rate * self.x_scale**2
        self.require(eta < 2 / (1 + math.sqrt(gamma)) ** 2, "rate < 2 / (1 + sqrt(dim/N))²")

        def excess(s: float) -> float:
            left = (1 - eta * s) ** self.loops
            noise = self.noise**2 / self.seen * (1 - left) ** 2 / s if s > 0 else 0.0
            return self.signal * left**2 + noise

        return self.dim * marchenko_pastur_mean(excess, gamma)


class FirstOrderBest(DescentRisk, kind="first_order_best", titled="best first-order method"):
    """Smallest excess of any method with T gradients and fixed coefficients: τ² d / Σ_{k<=T} (N/d)^k.

    The coefficients may differ between steps, and momentum is allowed. The excess falls by the factor d/N per
    loop for N > d, as 1/T for N = d, and to d - N for N < d. The limit is d, N to infinity, without noise.
    """

    claim = "~"
    source = "derived: orthogonal polynomials of the Marchenko-Pastur law"
    loops: PositiveInt = 5
    """T, the number of iterations."""

    @override
    def value(self) -> float:
        self.require_conditions()
        ratio = self.seen / self.dim
        return self.signal * self.dim / float(np.polyval(np.ones(self.loops + 1), ratio))


class FirstOrderBest2(
    DescentRisk, kind="first_order_best_2", titled="best first-order method with two gradients"
):
    """Smallest excess of a method with two gradients and fixed coefficients, no noise: τ² (d - v'A⁻¹v).

    The value is exact at finite size. v = (m₁, m₂) and A = [[m₂, m₃], [m₃, m₄]], with the moments m_j of
    `wishart_moments`.
    """

    claim = "="
    source = "derived: moments of the Wishart distribution"
    without_study = "the case of two steps; the studies draw `first_order_best` and `first_order_sampled`"

    @override
    def value(self) -> float:
        self.require_conditions()
        m1, m2, m3, m4 = wishart_moments(self.seen, self.dim)
        v = np.array([m1, m2])
        return self.signal * float(self.dim - v @ np.linalg.solve(np.array([[m2, m3], [m3, m4]]), v))
