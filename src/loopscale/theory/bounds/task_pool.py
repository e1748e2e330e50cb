"""The cost of a finite pool of pretraining tasks: linear regression with k weight vectors w, drawn once.

The number of prompts is unlimited and inputs are isotropic. Linear attention generalises beyond the pool once
k exceeds d. A network that memorises the pool predicts with the nearest task of the pool. A transformer
changes from memorisation to generalisation as k grows.
"""

import math
from typing import Literal

import numpy as np
import scipy  # scipy loads its submodules at the first use
from jaxtyping import Float
from pydantic import NonNegativeFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.linear_regression import LinearExcess, marchenko_pastur_mean

SYSTEM = "linear regression"

NODES = 200
"""Number of nodes of each quadrature rule, for the distance and for |w|."""


class TaskPool(LinearExcess):
    """The excess on tasks of the pool, or on new tasks from the distribution of the pool."""

    measured_on: Literal["new", "pool"] = "new"
    """`new`: new tasks from the distribution of the pool. `pool`: tasks of the pool, with equal probability."""


class PooledAttention(TaskPool):
    """Linear attention, trained and tested with N pairs, for a given spectrum of the pool's second moment."""

    def share(self, r: float, total: float) -> float:
        """Excess in one direction, from its eigenvalue r and the sum of all eigenvalues."""
        n, tau2 = self.seen, self.signal
        rest = total + self.noise**2
        if self.measured_on == "pool":
            return r * (r + rest) / ((n + 1) * r + rest)
        gain = n * r / ((n + 1) * r + rest)
        return tau2 * (1 - gain) ** 2 + gain**2 * (tau2 * (self.dim + 1) + self.noise**2) / n

    def require_conditions(self) -> None:
        self.require_isotropic()
        self.require(self.seen >= 1, "N >= 1")


class LsaTaskPool(PooledAttention, kind="lsa_task_pool", titled="linear attention on a task pool"):
    """Excess of the best linear attention for one pool, from the eigenvalues r of (1/k) Σ w w'.

    On the pool: Σ r (r + Σr + σ²)/((N+1) r + Σr + σ²). On new tasks: Σ τ² (1-g)² + g² (τ² (d+1) + σ²)/N, with
    g = r/((1 + 1/N) r + (Σr + σ²)/N).
    """

    claim = "="
    source = "derived: moments of a Gaussian"
    without_study = "needs a finite pool of tasks, and no task has one"
    pool: tuple[NonNegativeFloat, ...] | None = None
    """Eigenvalues r; by default w_scale² in every direction, as for infinitely many tasks."""

    @override
    def value(self) -> float:
        self.require_conditions()
        pool = (self.w_scale**2,) * self.dim if self.pool is None else self.pool
        self.require(len(pool) == self.dim, "a pool of `dim` eigenvalues")
        r = [self.x_scale**2 * eigenvalue for eigenvalue in pool]
        self.require(max(r) > 0, "a pool with a task other than 0")
        return math.fsum(self.share(x, math.fsum(r)) for x in r)


class LsaTaskPoolMP(
    PooledAttention, kind="lsa_task_pool_mp", titled="linear attention on a task pool (asymptotic)"
):
    """Mean of `lsa_task_pool` over pools of k tasks, for d, k, N to infinity: a knee at k = d, then 1/k."""

    claim = "~"
    source = "derived: `lsa_task_pool` under the Marchenko-Pastur law"
    without_study = "needs a finite pool of tasks, and no task has one"
    tasks: PositiveInt = 64
    """k, the number of tasks in the pool."""

    @override
    def value(self) -> float:
        self.require_conditions()
        tau2 = self.signal
        return self.dim * marchenko_pastur_mean(
            lambda s: self.share(tau2 * s, tau2 * self.dim), self.dim / self.tasks
        )


class Dmmse(TaskPool, kind="dmmse", titled="Bayes predictor of the task pool"):
    """Excess of the posterior mean over k tasks, the Bayes predictor for the pool, as N tends to infinity.

    The number k is fixed. With many pairs the posterior mean is the nearest task of the pool, for every noise
    level. On the pool the excess is 0. On new tasks the excess is τ² E min_j |w - w_j|². Its slope in k tends
    to -2/d for d >= 2, and to -1 for d = 1, where rare w outside the pool dominate the mean. At finite N the
    limit is not a bound: a wrong task increases the excess, and a mean of several tasks can be nearer than
    each of them. At d = 8, N = 16, σ² = 1/4 simulations give 1.1 to 1.4 times the limit.
    """

    claim = "~"
    source = "@raventos2023 (the predictor); the limit derived: nearest neighbour of a Gaussian"
    without_study = "needs a finite pool of tasks, and no task has one"
    tasks: PositiveInt = 64
    """k, the number of tasks in the pool."""

    @override
    def value(self) -> float:
        self.require_isotropic()
        if self.measured_on == "pool":
            return 0.0
        return self.signal * mean_squared_distance_to_nearest(self.dim, self.tasks)


def mean_squared_distance_to_nearest(dim: int, count: int) -> float:
    """E min_j |w - w_j|² over `count` vectors w_j, with w and all w_j ~ N(0, I_dim).

    Given |w|², the squared distances are independent non-central chi-squares, so that E min = ∫ P(squared
    distance > t)^count dt.
    """
    radius, weights = legendre_rule(max(dim**0.5 - 9, 0.0), dim**0.5 + 9)  # all but a mass of 1e-18 of |w|
    weights = weights * scipy.stats.chi.pdf(radius, dim)
    # Almost no squared distance is below `first`. P is 1 there, and the integral up to `first` is `first`.
    first, last = scipy.stats.chi2.ppf(1e-14 / count, dim), 4 * radius.max() ** 2 + 50
    logs, steps = legendre_rule(math.log(first), math.log(last))
    t = np.exp(logs)
    log_survival = np.log1p(-np.minimum(scipy.stats.ncx2.cdf(t, dim, radius[:, None] ** 2), 1 - 1e-16))
    mean_given_radius = first + np.exp(count * log_survival) @ (t * steps)
    return float(weights @ mean_given_radius / weights.sum())


def legendre_rule(low: float, high: float) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """Nodes and weights of Gauss-Legendre quadrature on [low, high]."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    return (low + high) / 2 + (high - low) / 2 * nodes, (high - low) / 2 * weights
