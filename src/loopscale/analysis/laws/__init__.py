"""Scaling laws: the axis, the fit, the theory beside the fit, and the verdict."""
