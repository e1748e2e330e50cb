"""A power of the logarithm of the axis."""

import numpy as np

from loopscale.stats.contrasts import Array
from loopscale.stats.forms.base import Line


class LogPower(Line, kind="log_power"):
    """ln(1 + x), unlike ln x, leaves the law finite at x = 1."""

    formula = "scale (ln(1 + x))^-exponent"
    names = ("scale", "exponent")
    log_axis = True
    course = "{verb} as (ln(1 + {axis}))^{exponent}"

    def transform(self, x: Array) -> Array:
        return np.log(np.log1p(x))
