"""Axes of laws and figures. Settings that vary together are one axis, and some axes are derived from settings.

A component such as `training: [{loops: 8, window: 6}, {loops: 4, window: 4}]` varies two settings in step. Neither
setting varies alone, so both are one axis, and its title names both.
"""

from collections.abc import Sequence

import numpy as np

from loopscale.analysis.recorded.results import CellResult, Results, TrialResult, mean
from loopscale.questions.axes.base import axis_of
from loopscale.studies import axes
from loopscale.studies.axes import numeric_settings


def in_step(results: Results, path: str) -> tuple[str, ...]:
    """The other numeric settings whose value follows from the value of `path` in every cell."""
    return axes.in_step(results.cells, path)


def independent_axes(results: Results, least: int = 2) -> list[str]:
    """The settings that name the axes with at least `least` values. Of settings in step, one names the axis."""
    settings = numeric_settings(results.cells)
    enough = [path for path in settings if len(axes.numbers(results.cells, path)) >= least]
    return [path for path in enough if not any(_names_axis(results, other, path) for other in settings)]


def axis_title(along: str, beside: Sequence[str] = ()) -> str:
    """The title of an axis in figures, with its unit."""
    return axis_of(along).title or axis_name(along, beside)


def axis_name(along: str, beside: Sequence[str]) -> str:
    """The setting of an axis, with the settings that vary in step."""
    return " with ".join([along, *(path.rpartition(".")[2] for path in beside)])


def cells_along(results: Results, along: str) -> dict[str, list[CellResult]]:
    """Cells that differ along one axis only, under the settings that they share.

    Along a measured axis, such as `flops`, a cell is left out if another cell has less error for fewer FLOPs. The FLOPs
    of this cell can reach less error.
    """
    groups = axes.cells_along(results.cells, axes.varied_along(results.cells, along))
    if not axis_of(along).measured:
        return groups
    return {label: _unbeaten(cells, along) for label, cells in groups.items()}


def place_on_axis(trial: TrialResult, along: str) -> float:
    """The value of a trial on an axis; NaN if the trial has no number there."""
    axis = axis_of(along)
    return trial[along] if axis.measured else axis.place(trial.settings.get)


def _unbeaten(cells: Sequence[CellResult], cost: str) -> list[CellResult]:
    priced = [
        (mean(cell.values_of(cost)), mean(cell.values_of("error")), cell) for cell in cells if cell.runs
    ]
    kept, lowest = [], np.inf
    for spent, error, cell in sorted(priced, key=lambda entry: entry[:2]):
        if np.isfinite(spent) and error < lowest:
            lowest = error
            kept.append(cell)
    return kept


def _names_axis(results: Results, path: str, other: str) -> bool:
    """True if the value of `other` follows from `path`, and `path` names the axis that the two settings share.

    If each setting follows from the other, the first in the study names the axis.
    """
    if other not in in_step(results, path):
        return False
    both_ways = path in in_step(results, other)
    order = numeric_settings(results.cells)
    return not both_ways or order.index(path) < order.index(other)
