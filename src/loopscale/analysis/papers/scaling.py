"""Scaling studies: best pairs at a number of FLOPs, laws of several studies together, figures over two axes.

A study without records gives figures and sentences that say what is missing.
"""

from collections.abc import Iterator
from typing import get_args

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis.axes import FACTORS_OF_PROMPTS, PROMPTS, in_step, place_on_axis
from loopscale.analysis.figures import cells, curves, surfaces
from loopscale.analysis.laws.surface import LIMITS, Interval, Surface, fit
from loopscale.analysis.laws.verdict import Word
from loopscale.analysis.notebook import Sentences, StudyResults, missing_figure, ready_figure
from loopscale.analysis.results import Results

BUDGETS = 5
"""Rows of the table of best pairs, over the FLOPs that were spent."""


def surface(results: Results, x: str, z: str, of: str = "error") -> Surface:
    """The surface of a measure over two crossed axes of a study. `prompts` is an axis if the steps vary.

    Raises ValueError if the cells differ in more than these axes, or if the study is too small for a surface.
    """
    axes = {x, z, *in_step(results, x), *in_step(results, z)}
    axes |= set(FACTORS_OF_PROMPTS) if PROMPTS in (x, z) else set()
    others = sorted({path for cell in results.cells for path in cell.values} - axes)
    if others:
        raise ValueError(f"{results.name} varies {', '.join(others)} beside {x} and {z}: no single surface")
    runs = [run for cell in results.cells for run in cell.runs]
    x_places, z_places = (np.array([place_on_axis(run, along) for run in runs]) for along in (x, z))
    return fit(
        x_places, z_places, np.array([run[of] for run in runs]), np.array([run["flops"] for run in runs])
    )


def compute_optimal(results: Results, x: str, z: str) -> go.Figure:
    """Error against FLOPs with the surface's envelope, or the reason why there is no surface."""
    if results.missing:
        return missing_figure(results.missing)
    try:
        return ready_figure(surfaces.compute_optimal(surface(results, x, z), x, z))
    except ValueError as problem:
        return missing_figure(f"No surface yet: {problem}.")


def best_pairs(results: Results, x: str, z: str) -> pd.DataFrame:
    """For some numbers of FLOPs: the pair of least error, the error, and whether the pair lies within the cells.

    The table is empty if no pair is known to be best; `allocation` gives the reason.
    """
    columns = ["FLOPs", x, z, "error", "within the cells"]
    rows: list[list[float | str]] = []
    try:
        fitted = surface(results, x, z) if not results.missing else None
        if fitted is not None:
            costs = fitted.flops(fitted.cells.x, fitted.cells.z)
            for flops in np.geomspace(costs.min(), costs.max(), BUDGETS):
                pair = fitted.best(float(flops))
                within = "yes" if fitted.within_cells(*pair) else "no"
                rows.append([float(flops), *pair, float(fitted.value(*pair)), within])
    except ValueError:
        rows = []
    return pd.DataFrame(rows, columns=columns)


def allocation(results: StudyResults, x: str, z: str) -> Sentences:
    """The surface in words: its exponents, how a growing number of FLOPs is best shared out, the law of the rest."""
    if results.missing:
        return Sentences([results.missing])
    try:
        over = surface(results, x, z)
    except ValueError as problem:
        return Sentences([f"No surface of {results.name} yet: {problem}."])
    said = [
        f"error = {over.floor:.3g}{''.join(_terms(over, (x, z)))}; it accounts for "
        f"{100 * max(over.goodness, 0.0):.0f} % of the variance of the log errors of {len(over.cells.x)} cells"
        + (", which scatter about it by more than their replicates' noise." if over.scatter else "."),
        f"FLOPs grow as {x}^{over.cost[1]:.2f} {z}^{over.cost[2]:.2f}, to within {100 * over.cost_off:.0f} %.",
    ]
    try:
        law = over.law()
    except ValueError as problem:
        return Sentences([*said, f"No pair is known to be best: {problem}."])
    return Sentences([
        *said,
        f"Of a growing number of FLOPs the share {over.share:.2f}{_span(over.share_interval)} goes best to {x}, as a "
        f"factor: the best {x} grows as FLOPs^{over.growth[0]:.2f}, the best {z} as FLOPs^{over.growth[1]:.2f}.",
        f"The least error then falls to {law.floor:.3g} as FLOPs^-{law.exponent:.2f}{_span(over.envelope_interval)}."
        + _decided(over, x, z),
    ])  # fmt: skip


def verdicts(*studies: StudyResults) -> pd.DataFrame:
    """The laws of several studies in one table, by study: rates with intervals, predictions, verdicts."""
    tables = [
        results.laws().reset_index().assign(study=results.name) for results in studies if not results.missing
    ]
    if not tables:
        return pd.DataFrame(columns=["study"])
    together = pd.concat([table.astype(object) for table in tables], ignore_index=True)
    return together.set_index(["study", "cell"])


def count_verdicts(*studies: StudyResults) -> Sentences:
    """The numbers of laws that agree with theory, fall faster, fall slower, or are undecided; and missing studies."""
    missing = [results.missing for results in studies if results.missing]
    table = verdicts(*studies)
    if "verdict" not in table:
        return Sentences(missing)
    known = table[table["predicted"].notna()]
    words = known["verdict"].value_counts().to_dict()
    counts = ", ".join(f"{words[word]} {word}" for word in get_args(Word) if word in words)
    fitted = int(table["rate"].notna().sum())
    first = f"{fitted} laws are fitted; theory predicts the rate of {len(known)}"
    return Sentences([f"{first}: {counts}." if counts else f"{first}.", *missing])


def heat_map(results: Results, x: str, y: str) -> go.Figure:
    """Mean error over two crossed settings, with intervals in hover."""
    return missing_figure(results.missing) if results.missing else ready_figure(cells.heat_map(results, x, y))


def against_references(results: Results, task: str | None = None) -> go.Figure:
    """Error against loops on the exact references of a task; by default of the first task."""
    if results.missing:
        return missing_figure(results.missing)
    of_task = results.tasks.get(task or next(iter(results.tasks), ""), [])
    return ready_figure(curves.against_references(results, of_task))


def _terms(over: Surface, names: tuple[str, str]) -> Iterator[str]:
    """What the surface adds to its floor; where the error does not fall along an axis, its exponent means nothing."""
    intervals = over.intervals or (None, None)
    for name, scale, exponent, interval, unknown in zip(
        names, over.scales, over.exponents, intervals, over.unknown, strict=True
    ):
        if scale > 0 and LIMITS[0] * 1.01 < exponent and unknown:
            yield f" + a term of {name}, whose exponent {unknown}{_span(interval)}"
        elif scale > 0 and LIMITS[0] * 1.01 < exponent:
            yield f" + {scale:.3g} ({name})^-{exponent:.2f}, exponent {exponent:.2f}{_span(interval)}"
        else:
            yield f", and does not fall along {name}"


def _span(interval: Interval | None) -> str:
    if interval is None:
        return " (no interval: one run in each cell)"
    low, high = ("unbounded" if np.isinf(end) else f"{end:.2f}" for end in interval)
    return f" (95 % interval {low} to {high})"


def _decided(over: Surface, x: str, z: str) -> str:
    """Which axis the larger share goes to, where the interval is on one side of a half."""
    if over.share_interval is None:
        return ""
    low, high = over.share_interval
    if low > 0.5 or high < 0.5:
        return f" More of it is better spent on {x if low > 0.5 else z}: the whole interval of the share says so."
    return f" Whether more of it is better spent on {x} or on {z} is undecided: the interval of the share holds 0.5."
