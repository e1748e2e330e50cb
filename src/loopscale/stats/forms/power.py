"""A power of the axis."""

from loopscale.stats.forms.base import Line


class Power(Line, kind="power"):
    """A straight line if both axes are logarithmic."""

    formula = "scale x^-exponent"
    names = ("scale", "exponent")
    log_axis = True
