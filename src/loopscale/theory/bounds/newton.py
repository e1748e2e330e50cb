"""Newton's iteration for the inverse of S (AlgoFormer eq. 4; Fu et al. 2023): its residual I - M S squares
at every step.

Eq. 4 allows a start of 2/|SS'|; with it the largest direction never converges. The interval is open.
"""

import math
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound
from loopscale.theory.bounds.descent import Conditioned

SOURCE = "Söderström and Stewart 1974; Pan and Schreiber 1991; AlgoFormer eq. 4"


class NewtonRate(Conditioned):
    """A statement about the smallest eigenvalue, the last to converge."""

    start: Literal["spectral", "best", "identity"] = "spectral"
    """M_0: S/λmax² and I/λmax as the solver's; `best` is S · 2/(λmax² + λmin²), which no prompt tells
    beforehand.
    """

    @property
    def first_change(self) -> float:
        """What M_0 takes off the smallest direction, of 1."""
        kappa = self.conditioning
        match self.start:
            case "spectral":
                return kappa**-2
            case "best":
                return 2 / (kappa**2 + 1)
            case "identity":
                return 1 / kappa


class NewtonResidual(NewtonRate, kind="newton_residual"):
    """|I - M_T S| = |I - M_0 S|^(2^T). Also of T loops of AlgoFormer's theorem 4.1.

    Of the slowest direction: a law of squared errors is held against its square. The mean over directions is ahead of
    it at first.
    """

    claim = "="
    of = "residual"
    source = SOURCE
    loops: PositiveInt = 10
    """T, iterations."""

    @override
    def value(self) -> float:
        taken = self.first_change
        # As 2^T log r: for many loops 2^T itself overflows, and the residual is zero long before.
        return math.exp(math.ldexp(math.log1p(-taken), min(self.loops, 1000))) if taken < 1 else 0.0


class NewtonSteps(NewtonRate, kind="newton_steps"):
    """log₂(ln(1/ε)/ln(1/r)) steps leave a share ε: about 2 log₂ κ + log₂ ln(1/ε) - 1 from the best multiple
    of S.
    """

    claim = "="
    of = "steps"
    source = SOURCE
    accuracy: float = Field(1e-6, gt=0, lt=1)
    """ε: the share of the first residual that may be left."""

    @override
    def value(self) -> float:
        taken = self.first_change
        self.require(taken < 1, "kappa > 1: at 1 the start is the solution")
        return math.log2(math.log(1 / self.accuracy) / -math.log1p(-taken))


class NewtonIsGd(Bound, kind="newton_is_gd"):
    """From M_0 = ηI, T steps are exactly 2^T gradient steps of size η from 0, whatever S and η are."""

    claim = "="
    of = "steps"
    source = "derived: I - M_T S = (I - ηS)^(2^T) for both"
    loops: PositiveInt = 10
    """T, iterations."""

    @override
    def value(self) -> float:
        return 2.0**self.loops


class NewtonCoefficients(Bound, kind="newton_coefficients"):
    """The coefficient of S^(2j-1) in M_T from M_0 = αS: (-1)^(j+1) C(2^T, j) α^j, 1 <= j <= 2^T.

    Fu et al. print others for T = 1 and 2 (-4α²S³; 4, -12, 16, -16); these are 2α, -α² and 4, -6, 4, -1.
    """

    claim = "="
    of = "coefficient"
    source = "binomial theorem; corrects Fu et al. 2023"
    loops: PositiveInt = 2
    """T, iterations."""
    term: PositiveInt = 1
    """j."""
    alpha: PositiveFloat = 1.0
    """α, of the start αS."""

    @override
    def value(self) -> float:
        self.require(self.term <= 2**self.loops, "term <= 2^loops")
        return (-1) ** (self.term + 1) * math.comb(2**self.loops, self.term) * self.alpha**self.term
