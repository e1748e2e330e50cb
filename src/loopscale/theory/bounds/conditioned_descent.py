"""Expected excess of first-order methods on linear regression with inputs of any condition number.

The coefficients of a method are the same for all prompts. The eigenbasis of the covariance is another one in every
prompt, as in the task `linear_regression`, so a fixed preconditioner does not help. The lower bound applies to linear
attention that does not change the x-part of its tokens, as in `descent_risk`. At d = 200 the limits are 1 to 5 % too
low.
"""

import numpy as np
import scipy  # scipy loads its submodules at the first use
from pydantic import PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.linear_regression import LinearExcess
from loopscale.theory.bounds.sample_spectrum import MOST_CONDITION, SampleSpectrum, sample_spectrum

SYSTEM = "linear regression"


class ConditionedDescent(LinearExcess):
    """The excess of a first-order method after N >= 1 pairs without noise, for d and N to infinity."""

    claim = "~"
    loops: PositiveInt = 5
    """T, the number of loops."""

    @property
    def spectrum(self) -> SampleSpectrum:
        self.require(self.seen >= 1, "N >= 1")
        self.require(self.noise == 0, "noise 0")
        self.require(self.condition <= MOST_CONDITION, f"condition <= {MOST_CONDITION:,.0f}")
        return sample_spectrum(self.dim, self.seen, self.condition, self.spectrum_levels)


class FirstOrderSpectrum(
    ConditionedDescent, kind="first_order_spectrum", titled="best first-order method (spectrum)"
):
    """Smallest excess of any method with fixed coefficients and one gradient for each layer of each loop.

    The least mean square, over the sample spectrum weighted by the covariance, of a polynomial with the value 1 at 0.
    At condition number 1 the value is `first_order_best`. One layer of linear attention does one gradient step (see
    `oswald_gd`), so a net of L layers that runs T times is a method with L T gradients.
    """

    source = "derived: Christoffel function of the sample spectrum of @silverstein1995"
    layers: PositiveInt = 1
    """L, the number of layers in each loop."""

    @override
    def value(self) -> float:
        return self.signal * self.dim * self.spectrum.least_square(self.loops * self.layers)


class TiedDescent(ConditionedDescent, kind="tied_descent", titled="gradient descent of one step size"):
    """Excess after T gradient steps of one size, the best size for the mean excess of the last ΔT steps.

    A looped net has the same weights in every loop, and its training supervises the last ΔT loops. The window hardly
    matters here: at condition number 1 the best size is 1/(1 + d/N) for every T and ΔT.
    """

    source = "derived: sample spectrum of @silverstein1995"
    without_study = "the limit of `tied_descent_sampled`, which holds at finite size"
    window: PositiveInt = 1
    """ΔT, the number of supervised loops."""

    @override
    def value(self) -> float:
        self.require(self.window <= self.loops, "window <= loops")
        spectrum = self.spectrum
        supervised = range(self.loops - self.window + 1, self.loops + 1)

        def mean_excess(rate: float, steps: range) -> float:
            left = (1 - rate * spectrum.nodes) ** 2
            return float(np.mean([spectrum.weights @ left**step for step in steps]))

        # Each power of the residual is convex in the rate, and so is their mean. The best rate of one step is at most
        # 1 over the mean eigenvalue, and more steps need smaller rates.
        ends = (0.0, 2 / float(spectrum.weights @ spectrum.nodes))
        best = scipy.optimize.minimize_scalar(
            mean_excess, bounds=ends, args=(supervised,), method="bounded", options={"xatol": 1e-12}
        )
        return self.signal * self.dim * mean_excess(float(best.x), range(self.loops, self.loops + 1))
