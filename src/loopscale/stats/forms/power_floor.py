"""A power of the axis over a floor."""

from loopscale.stats.forms.base import Line


class PowerFloor(Line, kind="power_floor"):
    """The floor is an error that no value of the axis removes, such as noise."""

    formula = "scale x^-exponent + floor"
    names = ("scale", "exponent", "floor")
    log_axis = True
    course = "{verb} as {axis}^{exponent} to a floor"
