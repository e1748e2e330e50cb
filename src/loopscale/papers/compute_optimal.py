"""Compute-optimal pairs: how a number of FLOPs is best shared between two axes [@hoffmann2022, section 3.3].

A study without records gives figures and sentences that name the missing trials.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis.figures import laws
from loopscale.analysis.laws.surface import EXPONENT_LIMITS, Ends, Surface, fit_surface
from loopscale.analysis.notebook import Sentences, missing_figure, ready_figure
from loopscale.analysis.recorded.axes import in_step, place_on_axis
from loopscale.analysis.recorded.results import Results
from loopscale.analysis.table import StyledTable
from loopscale.questions.axes.base import axis_of

BEST_PAIRS = 5
"""Rows of the table of best pairs, over the range of FLOPs that the cells spent."""


def study_surface(results: Results, x: str, z: str, of: str = "error") -> Surface:
    """The surface of a measure over two crossed axes of a study. `prompts` is an axis if the steps vary.

    Raises ValueError if the cells differ in more than these axes, or if the study is too small for a surface.
    """
    axes = {x, z, *in_step(results, x), *in_step(results, z)}
    axes |= {*axis_of(x).factors, *axis_of(z).factors}
    others = sorted({path for cell in results.cells for path in cell.values} - axes)
    if others:
        raise ValueError(f"{results.name} varies {', '.join(others)} beside {x} and {z}: no single surface")
    runs = [run for cell in results.cells for run in cell.runs]
    x_places, z_places = (np.array([place_on_axis(run, axis) for run in runs]) for axis in (x, z))
    errors, flops = (np.array([run[measure] for run in runs]) for measure in (of, "flops"))
    return fit_surface(x_places, z_places, errors, flops)


def compute_optimal(results: Results, x: str, z: str) -> go.Figure:
    """Error against FLOPs with the surface's envelope, or the reason why there is no surface."""
    if results.missing:
        return missing_figure(results.missing)
    try:
        return ready_figure(laws.compute_optimal_figure(study_surface(results, x, z), x, z))
    except ValueError as problem:
        return missing_figure(f"No surface yet: {problem}.")


def best_pairs(results: Results, x: str, z: str) -> pd.DataFrame:
    """For some numbers of FLOPs: the pair of least error, the error, and whether the pair lies within the cells.

    The table is empty if no pair is known to be best; `allocation` gives the reason.
    """
    columns = ["FLOPs", x, z, "error", "within the cells"]
    rows: list[list[float | str]] = []
    try:
        surface = study_surface(results, x, z) if not results.missing else None
        if surface is not None:
            costs = surface.flops(surface.cells.x, surface.cells.z)
            for flops in np.geomspace(costs.min(), costs.max(), BEST_PAIRS):
                pair = surface.best(float(flops))
                within = "yes" if surface.within_cells(*pair) else "no"
                rows.append([float(flops), *pair, float(surface.value(*pair)), within])
    except ValueError:
        rows = []
    return StyledTable(pd.DataFrame(rows, columns=columns))


def allocation(results: Results, x: str, z: str) -> Sentences:
    """The surface in words: its exponents, the best share of growing FLOPs, and the law of the least error."""
    if results.missing:
        return Sentences([results.missing])
    try:
        surface = study_surface(results, x, z)
    except ValueError as problem:
        return Sentences([f"No surface of {results.name} yet: {problem}."])
    share_explained = 100 * max(surface.goodness, 0.0)
    scatter = " The cells scatter about the surface by more than the noise of their replicates."
    sentences = [
        f"error = {surface.floor:.3g}{''.join(_terms(surface, (x, z)))}. The surface explains {share_explained:.0f} % "
        f"of the variance of the log errors of {len(surface.cells.x)} cells.{scatter if surface.scatter else ''}",
        f"FLOPs grow as {x}^{surface.cost[1]:.2f} {z}^{surface.cost[2]:.2f}, to within {100 * surface.cost_off:.0f} %.",
    ]
    try:
        envelope = surface.envelope()
    except ValueError as problem:
        return Sentences([*sentences, f"No pair is known to be best: {problem}."])
    share, least = _interval_words(surface.share_interval), _interval_words(surface.envelope_interval)
    return Sentences(
        [
            *sentences,
            f"If FLOPs grow, the share {surface.share:.2f}{share} of their growth, as a factor, is best spent on {x}. "
            f"The best {x} grows as FLOPs^{surface.growth[0]:.2f}, the best {z} as FLOPs^{surface.growth[1]:.2f}.",
            f"The least error then falls to {envelope.floor:.3g} as FLOPs^-{envelope.exponent:.2f}{least}."
            f"{_larger_share(surface, x, z)}",
        ]
    )


def _terms(surface: Surface, names: tuple[str, str]) -> Iterator[str]:
    """The terms of the surface above its floor. The exponent of an axis without a fall has no meaning."""
    intervals = surface.intervals or (None, None)
    for name, scale, exponent, interval, unknown in zip(
        names, surface.scales, surface.exponents, intervals, surface.unknown, strict=True
    ):
        if scale <= 0 or exponent <= EXPONENT_LIMITS[0] * 1.01:
            yield f", and does not fall along {name}"
        elif unknown:
            yield f" + a term of {name}, whose exponent {unknown}{_interval_words(interval)}"
        else:
            yield f" + {scale:.3g} ({name})^-{exponent:.2f}, exponent {exponent:.2f}{_interval_words(interval)}"


def _interval_words(interval: Ends | None) -> str:
    if interval is None:
        return " (no interval: one run in each cell)"
    low, high = ("unbounded" if np.isinf(end) else f"{end:.2f}" for end in interval)
    return f" (95 % interval {low} to {high})"


def _larger_share(surface: Surface, x: str, z: str) -> str:
    """The axis of the larger share, if the interval lies on one side of a half."""
    if surface.share_interval is None:
        return ""
    low, high = surface.share_interval
    if low > 0.5 or high < 0.5:
        return f" The larger share is best spent on {x if low > 0.5 else z}: the whole interval of the share says so."
    return f" It is undecided whether {x} or {z} gets the larger share, because the interval of the share holds 0.5."
