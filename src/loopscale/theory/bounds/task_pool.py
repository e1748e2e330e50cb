"""What a finite pool of pretraining tasks costs: linear regression whose weights w come from k vectors, drawn once.

Prompts are unlimited, inputs isotropic. A layer of linear attention forgets the pool once k is past d, and a net that
learned the pool by heart is left with the nearest of its tasks; a transformer goes from the one to the other.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from jaxtyping import Float
from pydantic import NonNegativeFloat, PositiveInt
from scipy.integrate import quad
from scipy.stats import chi, chi2, ncx2
from typing_extensions import override

from loopscale.theory.bounds.linear_regression import LinearExcess

NODES = 200
"""Of the rule for a distance, and for |w|."""


class TaskPool(LinearExcess):
    """The excess on tasks of the pool, or on new ones from the distribution that the pool was drawn from."""

    measured_on: Literal["new", "pool"] = "new"
    """`new`: tasks that the pool was drawn from like its own; `pool`: its own, each as likely."""


class PooledAttention(TaskPool):
    """Linear attention, trained and tested on N pairs, given the spectrum of the pool's second moment."""

    def share(self, r: float, total: float) -> float:
        """What a direction adds to the excess, r its eigenvalue, `total` the sum of all."""
        n, tau2 = self.seen, self.signal
        rest = total + self.noise**2
        if self.measured_on == "pool":
            return r * (r + rest) / ((n + 1) * r + rest)
        gain = n * r / ((n + 1) * r + rest)
        return tau2 * (1 - gain) ** 2 + gain**2 * (tau2 * (self.dim + 1) + self.noise**2) / n

    def check(self) -> None:
        self.isotropic()
        self.require(self.seen >= 1, "N >= 1")


class LsaTaskPool(PooledAttention, kind="lsa_task_pool"):
    """The best linear attention for one pool, by the spectrum of (1/k) Σ w w'.

    With r its eigenvalues: Σ r (r + Σr + σ²)/((N+1) r + Σr + σ²) on the pool; on new tasks
    Σ τ² (1-g)² + g² (τ² (d+1) + σ²)/N, g = r/((1 + 1/N) r + (Σr + σ²)/N).
    """

    claim = "="
    source = "derived: moments of a Gaussian"
    pool: tuple[NonNegativeFloat, ...] | None = None
    """The eigenvalues; by default those of infinitely many tasks, w_scale²."""

    @override
    def value(self) -> float:
        self.check()
        pool = (self.w_scale**2,) * self.dim if self.pool is None else self.pool
        self.require(len(pool) == self.dim, "a pool of `dim` eigenvalues")
        r = [self.x_scale**2 * eigenvalue for eigenvalue in pool]
        self.require(max(r) > 0, "a pool with a task other than 0")
        return math.fsum(self.share(x, math.fsum(r)) for x in r)


class LsaTaskPoolMP(PooledAttention, kind="lsa_task_pool_mp"):
    """`lsa_task_pool` on average over pools of k tasks, for d, k, N to infinity: a knee at k = d, then 1/k."""

    claim = "~"
    source = "derived: `lsa_task_pool` under the Marchenko-Pastur law"
    tasks: PositiveInt = 64
    """k."""

    @override
    def value(self) -> float:
        self.check()
        tau2 = self.signal
        return self.dim * marchenko_pastur(
            lambda s: self.share(tau2 * s, tau2 * self.dim), self.dim / self.tasks
        )


class Dmmse(TaskPool, kind="dmmse"):
    """The posterior mean over k tasks, Bayes for the pool, at many pairs: it has found the nearest of them.

    The limit is for N to infinity at fixed k, whatever the noise. On the pool nothing is left; on new tasks
    τ² E min_j |w - w_j|², whose slope in k tends to -2/d for d >= 2 (to -1 for d = 1, where the rare w beyond the pool
    rule the mean). Fewer pairs leave more where the wrong task is taken, and less where a mean of tasks is nearer than
    each of them, so it bounds nothing; at d = 8, N = 16, σ² = 1/4 simulations are 1.1 to 1.4 times the limit.
    """

    claim = "~"
    source = "Raventós et al. 2023 (the predictor); the limit derived: nearest neighbour of a Gaussian"
    tasks: PositiveInt = 64
    """k."""

    @override
    def value(self) -> float:
        self.isotropic()
        return 0.0 if self.measured_on == "pool" else self.signal * nearest(self.dim, self.tasks)


def marchenko_pastur(function: Callable[[float], float], gamma: float) -> float:
    """The mean of a function over the law of ratio γ = d/k, with its mass at 0 for γ > 1."""
    middle, radius = 1 + gamma, 2 * math.sqrt(gamma)

    def integrand(angle: float) -> float:
        # In the angle the law's square roots at both ends become sin², and the integrand smooth.
        s = middle + radius * math.cos(angle)
        return (radius * math.sin(angle)) ** 2 / (2 * math.pi * gamma * s) * function(s)

    bulk, _ = quad(integrand, 0, math.pi, epsabs=1e-12, epsrel=1e-10, limit=200)
    return bulk + (function(0.0) * (1 - 1 / gamma) if gamma > 1 else 0.0)


def nearest(dim: int, count: int) -> float:
    """E min over `count` of |w - w_j|², all N(0, I).

    Given |w|² the distances are independent non-central chi-squares, and E min = ∫ P(distance > t)^count dt.
    """
    radius, weights = legendre(max(dim**0.5 - 9, 0.0), dim**0.5 + 9)  # All but 1e-18 of |w|.
    weights = weights * chi.pdf(radius, dim)
    # Below `first` lies no distance: there P = 1, and the integral is `first` itself.
    first, last = chi2.ppf(1e-14 / count, dim), 4 * radius.max() ** 2 + 50
    logs, steps = legendre(math.log(first), math.log(last))
    t = np.exp(logs)
    beyond = np.log1p(-np.minimum(ncx2.cdf(t, dim, radius[:, None] ** 2), 1 - 1e-16))
    given = first + np.exp(count * beyond) @ (t * steps)
    return float(weights @ given / weights.sum())


def legendre(low: float, high: float) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """Gauss's nodes and weights for an integral from `low` to `high`."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    return (low + high) / 2 + (high - low) / 2 * nodes, (high - low) / 2 * weights
