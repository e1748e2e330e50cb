"""The expected excess of first-order methods on linear regression, isotropic inputs, with coefficients
fixed over prompts.

They bound linear attention that leaves the x-part of its tokens alone. Updating that part (GD++) gives
polynomials of higher degree, and softmax or MLP layers may adapt to the prompt as conjugate gradients do:
those may be below. The mean risk of a constant step is ruled by rare prompts with an eigenvalue beyond
2/rate: beside it, look at medians.
"""

import math

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt
from scipy.integrate import quad
from typing_extensions import override

from loopscale.theory.bounds.base import InContext
from loopscale.theory.bounds.linear_regression import LinearExcess


def moments(n: int, d: int) -> tuple[float, float, float, float]:
    """E tr Ŝ^j for j = 1 .. 4, Ŝ = X'X/n with n rows N(0, I_d)."""
    return (
        float(d),
        d * (n + d + 1) / n,
        d * (n**2 + d**2 + 3 * n * d + 3 * n + 3 * d + 4) / n**2,
        d
        * (
            n**3
            + 6 * n**2 * d
            + 6 * n * d**2
            + d**3
            + 6 * n**2
            + 17 * n * d
            + 6 * d**2
            + 21 * n
            + 21 * d
            + 20
        )
        / n**3,
    )


class WishartMoments(InContext, kind="wishart_moments"):
    """E tr Ŝ^j."""

    claim = "="
    of = "moment"
    source = "textbook: moments of the Wishart distribution"
    power: int = Field(2, ge=1, le=4)
    """j."""

    @override
    def value(self) -> float:
        self.require(self.seen >= 1, "N >= 1")
        return moments(self.seen, self.dim)[self.power - 1]


class DescentRisk(LinearExcess):
    """The excess of a first-order method that has seen N >= 1 pairs."""

    def check(self, noiseless: bool = True) -> None:
        self.isotropic()
        self.require(self.seen >= 1, "N >= 1")
        self.require(self.noise == 0 or not noiseless, "noise 0")


class GdRisk1(DescentRisk, kind="gd_risk_1"):
    """One gradient step of size `rate` from 0; `averaging` with scale = rate."""

    claim = "="
    source = "derived: moments of a Gaussian"
    rate: PositiveFloat = 0.5
    """η, for the mean over the pairs seen."""

    @override
    def value(self) -> float:
        self.check(noiseless=False)
        eta = self.rate * self.x_scale**2
        m1, m2, *_ = moments(self.seen, self.dim)
        noise = (eta * self.noise) ** 2 * self.dim / self.seen
        return self.signal * (self.dim - 2 * eta * m1 + eta**2 * m2) + noise


class GdRisk2(DescentRisk, kind="gd_risk_2"):
    """Two gradient steps of size `rate` from 0, without noise: τ² E tr (I - ηŜ)⁴."""

    claim = "="
    source = "derived: moments of the Wishart distribution"
    rate: PositiveFloat = 0.5
    """η, for the mean over the pairs seen."""

    @override
    def value(self) -> float:
        self.check()
        eta = self.rate * self.x_scale**2
        m1, m2, m3, m4 = moments(self.seen, self.dim)
        return self.signal * (self.dim - 4 * eta * m1 + 6 * eta**2 * m2 - 4 * eta**3 * m3 + eta**4 * m4)


class GdRiskMP(DescentRisk, kind="gd_risk_mp"):
    """T gradient steps of size `rate`, d and N to infinity; below η = 2/(1 + √γ)², γ = d/N."""

    claim = "~"
    source = "Ali, Kolter, Tibshirani 2019, theorem 6 (Marchenko-Pastur law)"
    loops: PositiveInt = 5
    """T, iterations."""
    rate: PositiveFloat = 0.5
    """η, for the mean over the pairs seen."""

    @override
    def value(self) -> float:
        self.check(noiseless=False)
        gamma, eta = self.dim / self.seen, self.rate * self.x_scale**2
        self.require(eta < 2 / (1 + math.sqrt(gamma)) ** 2, "rate < 2 / (1 + sqrt(dim/N))²")
        low, high = (1 - math.sqrt(gamma)) ** 2, (1 + math.sqrt(gamma)) ** 2

        def integrand(angle: float) -> float:
            # s = middle + radius cos(angle): the law's square roots at both ends become sin², and the
            # integrand smooth.
            s = (low + high) / 2 + (high - low) / 2 * math.cos(angle)
            density = ((high - low) / 2 * math.sin(angle)) ** 2 / (2 * math.pi * gamma * s)
            left = (1 - eta * s) ** self.loops
            noise = self.noise**2 / self.seen * (1 - left) ** 2 / s
            return density * (self.signal * left**2 + noise)

        spread, _ = quad(integrand, 0, math.pi, epsabs=1e-12, epsrel=1e-10, limit=200)
        return self.dim * (spread + self.signal * max(1 - 1 / gamma, 0))


class FirstOrderBest(DescentRisk, kind="first_order_best"):
    """τ² d / Σ_{k<=T} (N/d)^k: the least of any method of T gradients, tied or untied, with schedule or
    momentum.

    Falls by d/N a loop for N > d, as 1/T at N = d, to d - N for N < d.
    """

    claim = "~"
    source = "derived: orthogonal polynomials of the Marchenko-Pastur law"
    loops: PositiveInt = 5
    """T, iterations."""

    @override
    def value(self) -> float:
        self.check()
        ratio = self.seen / self.dim
        return self.signal * self.dim / float(np.polyval(np.ones(self.loops + 1), ratio))


class FirstOrderBest2(DescentRisk, kind="first_order_best_2"):
    """The least of any method of two gradients, at finite size: τ² (d - v'A⁻¹v), v = (m₁, m₂), A = [[m₂, m₃],
    [m₃, m₄]].
    """

    claim = "="
    source = "derived: moments of the Wishart distribution"

    @override
    def value(self) -> float:
        self.check()
        m1, m2, m3, m4 = moments(self.seen, self.dim)
        v = np.array([m1, m2])
        return self.signal * float(self.dim - v @ np.linalg.solve(np.array([[m2, m3], [m3, m4]]), v))
