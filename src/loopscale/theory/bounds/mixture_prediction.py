"""Mixtures of linear regressions: the excess error of predicting labels, of those who are told more than a prompt says.

y = <β_z, x> + noise, x ~ N(0, I), z drawn for every pair with probabilities π. The excess is that over the one who
knows all β_k: E |Σ π_k (β̂_k - β_k)|². Settings are those of the task `mixture_regression`.
"""

from typing import Literal

import numpy as np
from pydantic import PositiveFloat, PositiveInt
from scipy.interpolate import CubicSpline
from scipy.stats import binom
from typing_extensions import override

from loopscale.theory.bounds.base import InContext
from loopscale.theory.bounds.bayes import bayes_factor

NODES = 24
"""Of the spline."""


class MixtureTold(InContext, kind="mixture_told"):
    """Σ π_k² τ² d E F(n_k, d), n_k ~ Binomial(n, π_k): the Bayes predictor that is told which component made each pair.

    F(n, d) is the share of a prior variance left after n pairs, as in `bayes_ridge`. Of ±β it sees n pairs of one
    regression, and needs (π_1 - π_2) β. Nobody who is not told is below. Components on a sphere are known better than
    Gaussian ones from the first pair on: for them this says 0, the excess of one who knows them.
    """

    claim = ">="
    of = "excess at a point"
    source = "derived: told labels make the mixture K Bayesian regressions, of which `bayes_ridge` has the exact risk"
    floor_of = "mixture_regression"
    components: PositiveInt = 2
    """K."""
    weights: tuple[PositiveFloat, ...] | None = None
    """π, in proportion; `None` for equal ones."""
    symmetric: bool = False
    """Whether the components are ±β."""
    snr: PositiveFloat = 5.0
    """η = τ √d / σ."""
    w_scale: PositiveFloat = 1.0
    """τ."""
    prior: Literal["gaussian", "sphere"] = "gaussian"
    """Of a component: its coordinates, or uniform on a sphere."""
    target: Literal["label", "components"] = "label"
    """What is predicted, as in the task; the statement is of `label` alone."""

    @override
    def value(self) -> float:
        self.require(self.target == "label", "labels asked for")
        weights = self.weights or (1.0,) * self.components
        self.require(len(weights) == self.components, "a weight for each component")
        self.require(not self.symmetric or self.components == 2, "two symmetric components")
        if self.prior == "sphere":
            return 0.0
        shares = np.array(weights) / sum(weights)
        if self.symmetric:
            left = (shares[0] - shares[1]) ** 2 * self._left(self.seen)
        else:
            each, times = np.unique(shares, return_counts=True)
            left = sum(
                count * share**2 * self._expected(share) for share, count in zip(each, times, strict=True)
            )
        return float(self.dim * self.w_scale**2 * left)

    def _left(self, pairs: int) -> float:
        return bayes_factor(pairs, self.dim, self.dim / self.snr**2)

    def _expected(self, share: float) -> float:
        """E F over how many of the pairs a component has made; what is less likely than 1e-13 cannot matter.

        Of many numbers some are computed, and a cubic spline gives the others: F is smooth in n there.
        """
        low, high = (int(binom.ppf(chance, self.seen, share)) for chance in (1e-13, 1 - 1e-13))
        counts = np.arange(max(low, 0), high + 1)
        chances = binom.pmf(counts, self.seen, share)
        if len(counts) <= 2 * NODES or counts[0] <= 2 * self.dim:
            left = np.array([self._left(n) for n in counts.tolist()])
        else:
            nodes = np.unique(np.linspace(counts[0], counts[-1], NODES).round().astype(int))
            left = CubicSpline(nodes, [self._left(n) for n in nodes.tolist()])(counts)
        return float(chances @ left / chances.sum())
