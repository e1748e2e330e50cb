"""The best value of a numeric setting, such as the number of loops T, at equal cost of training.

With `training.flops`, every cell has the same FLOPs, so more loops mean fewer steps. The optimum is the vertex of a
parabola through the least error and its neighbours (@hoffmann2022, section 3.2; see `stats.optimum`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from loopscale.analysis.recorded.axes import axis_name, cells_along, in_step, independent_axes, place_on_axis
from loopscale.analysis.recorded.learning import NOT_LEARNT, on_plateau
from loopscale.analysis.recorded.results import CellResult, Results, mean
from loopscale.analysis.table import Column, Interval
from loopscale.stats.optimum import LEAST_OF_PARABOLA, Optimum, find_optimum

EQUAL_COST = 1.1
"""Costs count as equal if the largest is at most this multiple of the least. Steps are whole, so costs differ a bit."""


@dataclass(frozen=True)
class OptimumRow:
    """The optimum of one axis, under the settings that the cells share."""

    label: str
    """The shared settings, in words; empty for all cells."""
    axis: str
    of: str
    """The measure."""
    flops_low: float
    flops_high: float
    """The least and the largest mean cost of a cell, in FLOPs of training."""
    optimum: Optimum
    plateau: str
    """Why the fitted runs have not learnt; empty if they have."""

    @property
    def has_equal_cost(self) -> bool:
        return self.flops_high <= EQUAL_COST * self.flops_low

    @property
    def place(self) -> str:
        """Where the optimum lies, or why the place is unknown."""
        if self.plateau:
            return f"{NOT_LEARNT}: {self.plateau}"
        if self.optimum.place == "at the edge":
            return f"at the edge: values beyond {self.optimum.least:g} may have less"
        if self.optimum.place == "undecided" and self.optimum.low is None:
            return "undecided: more replicates could bound the interval"
        if self.optimum.place == "undecided":
            return "undecided: the interval leaves the tried values"
        return self.optimum.place


OPTIMUM_COLUMNS: list[Column[OptimumRow]] = [
    Column(("cells",), "cells", lambda row: row.label or "all"),
    Column.attribute("axis"),
    Column(("measure",), "measure", lambda row: row.of.replace("_", " ")),
    Column.interval("flops_low", "flops_high", "FLOPs of training"),
    Column(("least",), "least tried", lambda row: row.optimum.least),
    Column(("optimum",), "optimum", lambda row: None if row.plateau else row.optimum.value),
    Column(("low", "high"), "95 % interval", lambda row: Interval.of(row.optimum.low, row.optimum.high)),
    Column.attribute("place"),
]


def optima(results: Results, along: str, of: str) -> Iterator[OptimumRow]:
    """The optimum along an axis for every combination of the other settings with three values or more.

    Cells without a finished run, and cells with a measure of 0 or less, are left out.
    """
    axis = axis_name(along, in_step(results, along))
    for label, cells in cells_along(results, along).items():
        places = {
            cell.key: place_on_axis(cell.runs[0], along)
            for cell in cells
            if cell.runs and (cell.values_of(of) > 0).all()
        }
        known = [cell for cell in cells if np.isfinite(places.get(cell.key, np.nan))]
        if len({places[cell.key] for cell in known}) < LEAST_OF_PARABOLA:
            continue
        found = find_optimum([places[cell.key] for cell in known], [cell.values_of(of) for cell in known])
        costs = [mean(cell.values_of("flops")) for cell in known]
        fitted = [run for cell in known if places[cell.key] in found.fitted for run in cell.runs]
        yield OptimumRow(label, axis, of, min(costs), max(costs), found, on_plateau(fitted, of))


def optima_at_equal_cost(results: Results) -> list[OptimumRow]:
    """The optima along all axes on which the cells have equal FLOPs: of regret if all are above 0, else of error."""
    rows: list[OptimumRow] = []
    for along in independent_axes(results, LEAST_OF_PARABOLA):
        of = "regret" if _has_regrets(results.answered) else "error"
        rows += [row for row in optima(results, along, of) if row.has_equal_cost]
    return rows


def _has_regrets(cells: list[CellResult]) -> bool:
    """True if every run has a regret above 0. A regret of 0 or less is noise, and has no logarithm."""
    return bool(cells) and all((cell.values_of("regret") > 0).all() for cell in cells)
