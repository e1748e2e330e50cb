"""Newton's iteration for the inverse of S [@gao2024, eq. 4; @fu2023]: each step squares I - M S.

Eq. 4 also allows the start 2/|SS'|, but then the direction of the largest eigenvalue never converges. The
interval of valid starts is open.
"""

import math
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound
from loopscale.theory.bounds.descent import WorstCase

SYSTEM = "linear regression"

SOURCE = "@soderstrom1974; @pan1991; @gao2024, eq. 4"


class NewtonRate(WorstCase):
    """A statement about the direction of the smallest eigenvalue, which converges last."""

    start: Literal["spectral", "best", "identity"] = "spectral"
    """M_0: `spectral` is S/λmax² and `identity` is I/λmax, as in the solver `newton`.

    `best` is S · 2/(λmax² + λmin²), which requires the eigenvalues of the prompt.
    """

    @property
    def initial_progress(self) -> float:
        """Smallest eigenvalue of M_0 S, equal to 1 minus the initial residual."""
        kappa = self.condition_number
        match self.start:
            case "spectral":
                return kappa**-2
            case "best":
                return 2 / (kappa**2 + 1)
            case "identity":
                return 1 / kappa


class NewtonResidual(NewtonRate, kind="newton_residual", titled="Newton's iteration"):
    """Residual after T steps of Newton's iteration: |I - M_T S| = |I - M_0 S|^(2^T).

    The residual is that of the slowest direction; the mean over directions is smaller in the first steps. A
    law of squared errors is compared with the square of this residual. T loops of theorem 4.1 of @gao2024
    have the same residual.
    """

    claim = "="
    of = "residual"
    source = SOURCE
    loops: PositiveInt = 10
    """T, the number of iterations."""

    @override
    def value(self) -> float:
        progress = self.initial_progress
        # exp(2^T log r), because 2^T alone overflows for many loops, where the residual is already zero.
        return math.exp(math.ldexp(math.log1p(-progress), min(self.loops, 1000))) if progress < 1 else 0.0


class NewtonSteps(NewtonRate, kind="newton_steps", titled="steps of Newton's iteration"):
    """Newton steps until a residual ε is left: log₂(ln(1/ε)/ln(1/r)), r the initial residual.

    From the best multiple of S this is about 2 log₂ κ + log₂ ln(1/ε) - 1.
    """

    claim = "="
    of = "steps"
    source = SOURCE
    without_study = "counts steps to an accuracy; trials run a fixed number of loops"
    accuracy: float = Field(1e-6, gt=0, lt=1)
    """ε, the final residual."""

    @override
    def value(self) -> float:
        progress = self.initial_progress
        self.require(progress < 1, "kappa > 1: at 1 the start is the solution")
        return math.log2(math.log(1 / self.accuracy) / -math.log1p(-progress))


class NewtonIsGd(Bound, kind="newton_is_gd", titled="gradient steps of Newton's iteration"):
    """Gradient steps of size η from 0 that equal T Newton steps from M_0 = ηI: 2^T, for every S and η."""

    claim = "="
    of = "steps"
    source = "derived: I - M_T S = (I - ηS)^(2^T) for both"
    without_study = "an identity of two algorithms, which no trained net takes part in"
    loops: PositiveInt = 10
    """T, the number of iterations."""

    @override
    def value(self) -> float:
        return 2.0**self.loops


class NewtonCoefficients(Bound, kind="newton_coefficients", titled="coefficients of Newton's iteration"):
    """Coefficient of S^(2j-1) in M_T, from M_0 = αS: (-1)^(j+1) C(2^T, j) α^j, 1 <= j <= 2^T.

    @fu2023 print other coefficients for T = 1 and 2 (-4α²S³; 4, -12, 16, -16). The correct ones are 2α, -α²
    and 4, -6, 4, -1.
    """

    claim = "="
    of = "coefficient"
    source = "binomial theorem; corrects @fu2023"
    loops: PositiveInt = 2
    """T, the number of iterations."""
    term: PositiveInt = 1
    """j."""
    alpha: PositiveFloat = 1.0
    """α, the factor in the start αS."""

    @override
    def value(self) -> float:
        self.require(self.term <= 2**self.loops, "term <= 2^loops")
        return (-1) ** (self.term + 1) * math.comb(2**self.loops, self.term) * self.alpha**self.term
