"""Expected excess of first-order methods on linear regression at finite size, from sampled matrices X'X/N.

`conditioned_descent` gives the limits for d and N to infinity. In few dimensions these limits are far too low after
many steps. At d = 4, N = 11 the factor is 1.2 after one step and 27 after eight steps. Here the spectrum is that of
sampled matrices, the same in every call. The error of the sample is below 1 % after one or two steps, and about 10 %
after sixteen steps, because few matrices with small eigenvalues decide.
"""

from functools import cache

import numpy as np
from typing_extensions import override

from loopscale.tasks.spectrum import level_spectrum
from loopscale.theory.bounds.conditioned_descent import ConditionedDescent, FirstOrderSpectrum, TiedDescent
from loopscale.theory.bounds.sample_spectrum import SampleSpectrum

SYSTEM = "linear regression"
EIGENVALUES = 80_000
"""Number of sampled eigenvalues, of all matrices together."""
NUMBERS = 40_000_000
"""Most entries of all X together, for memory. Above N = 500, fewer matrices are drawn."""


@cache
def sampled_spectrum(dim: int, seen: int, condition: float, count: int) -> SampleSpectrum:
    """The eigenvalues of sampled matrices X'X/N, weighted by the covariance of x, whose trace is d."""
    rng, levels = np.random.default_rng(0), np.array(level_spectrum(dim, condition, count))
    draws = max(1, min(EIGENVALUES // dim, NUMBERS // (seen * dim)))
    x = rng.standard_normal((draws, seen, dim))
    x *= np.sqrt(levels)
    nodes, vectors = np.linalg.eigh(np.swapaxes(x, 1, 2) @ x / seen)
    weights = (vectors**2 * levels[:, None]).sum(1) / dim / draws
    ends = ((float(nodes.min()), float(nodes.max())),)
    return SampleSpectrum(ends, nodes.ravel(), weights.ravel())


class SampledDescent(ConditionedDescent):
    """The excess of a first-order method after N >= 1 pairs without noise, at finite d and N."""

    claim = "="

    @property
    @override
    def spectrum(self) -> SampleSpectrum:
        self.require(self.seen >= 1, "N >= 1")
        self.require(self.noise == 0, "noise 0")
        return sampled_spectrum(self.dim, self.seen, self.condition, self.spectrum_levels)


class FirstOrderSampled(
    SampledDescent, FirstOrderSpectrum, kind="first_order_sampled", titled="best first-order method (sampled)"
):
    """Smallest excess of any method with fixed coefficients and one gradient for each layer of each loop.

    The value holds at finite size, other than `first_order_spectrum`. Step sizes and momentum may differ from step to
    step. A method with the same step in every loop has at least the excess `tied_descent_sampled`.
    """

    source = "derived: Christoffel function of sampled spectra"


class TiedDescentSampled(
    SampledDescent,
    TiedDescent,
    kind="tied_descent_sampled",
    titled="gradient descent of one step size (sampled)",
):
    """Excess after T gradient steps of one size, the best size for the mean excess of the last ΔT steps.

    The value holds at finite size, other than `tied_descent`.
    """

    source = "derived: sampled spectra"
    without_study = ""
