"""An exponential: every step along the axis multiplies the error by the same factor."""

from loopscale.stats.forms.base import Line


class Exponential(Line, kind="exponential"):
    """The floor is optional. A trained net always reaches one, sooner or later."""

    formula = "scale e^(-rate x) [+ floor]"
    names = ("scale", "rate", "floor")
    optional = True
    least_margin = 0.0
    course = "{verb} by a factor of {factor} per {unit}"
