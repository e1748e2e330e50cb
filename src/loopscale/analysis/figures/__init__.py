"""Figures of a study: one function a figure, tables in, plotly out.

Cells keep their colour and marker from figure to figure; classical algorithms are on the same axes.
"""

from loopscale.analysis.figures.cells import heat_map, replicates
from loopscale.analysis.figures.curves import against_loops, against_points, against_references
from loopscale.analysis.figures.laws import law
from loopscale.analysis.figures.settings import against_axis, axes
from loopscale.analysis.figures.surfaces import compute_optimal
from loopscale.analysis.figures.training import front, learning

__all__ = [
    "against_axis", "against_loops", "against_points", "against_references", "axes", "compute_optimal",
    "front", "heat_map", "law", "learning", "replicates",
]  # fmt: skip
