"""What scaling studies say together: best pairs at a number of FLOPs, and figures over two axes, from readings.

Each takes a reading (`loopscale.analysis.results`), and of a study without records gives what is missing.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Iterator
from typing import get_args

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis import figures
from loopscale.analysis.axes import PROMPTS, in_step, place
from loopscale.analysis.laws.surface import LIMITS, Interval, Surface, fit
from loopscale.analysis.laws.verdict import Word
from loopscale.analysis.notebook_tables import Sentences, drawn, lacking
from loopscale.analysis.results import Reading
from loopscale.analysis.tables import answers, by_task, numbers

BUDGETS = 5
"""Rows of the table of best pairs, over the FLOPs that were spent."""


def surface(found: Reading, x: str, z: str, of: str = "error") -> Surface:
    """The surface of `of` over two crossed axes of a study; `prompts` is an axis where steps are.

    Raises ValueError for a study whose cells differ in more than these, and for what is too little for a surface.
    """
    own = {x, z, *in_step(found.study, x), *in_step(found.study, z)}
    own |= {"training.steps", "training.batch_size"} if PROMPTS in (x, z) else set()
    others = sorted({path for cell in found.study["cells"] for path in cell["values"]} - own)
    if others:
        raise ValueError(
            f"{found.study['name']} varies {', '.join(others)} beside {x} and {z}: no single surface"
        )
    rows = [
        row for cell in found.study["cells"] for _, row in answers(found.trials, cell["key"])[0].iterrows()
    ]
    at = [np.array([place(row, along) for row in rows]) for along in (x, z)]
    return fit(at[0], at[1], numbers(row[of] for row in rows), numbers(row["flops"] for row in rows))


def compute_optimal(found: Reading, x: str, z: str) -> go.Figure:
    """Error against FLOPs with the surface's envelope, or what there is too little for."""
    try:
        return (
            lacking(found.missing)
            if found.missing
            else drawn(figures.compute_optimal(surface(found, x, z), x, z))
        )
    except ValueError as problem:
        return lacking(f"No surface yet: {problem}.")


def best_pairs(found: Reading, x: str, z: str) -> pd.DataFrame:
    """For some numbers of FLOPs the pair of least error, that error, and whether such a pair was within what ran.

    Empty where no pair is known to be best; `allocation` says why.
    """
    columns = ["FLOPs", x, z, "error", "within the cells"]
    try:
        over = surface(found, x, z) if not found.missing else None
        if over is None:
            return pd.DataFrame(columns=columns)
        cells, costs = over.cells, over.flops(over.cells.x, over.cells.z)
        rows = []
        for flops in np.geomspace(costs.min(), costs.max(), BUDGETS):
            one, other = over.best(float(flops))
            inside = cells.x.min() <= one <= cells.x.max() and cells.z.min() <= other <= cells.z.max()
            rows.append([float(flops), one, other, float(over.value(one, other)), "yes" if inside else "no"])
    except ValueError:
        return pd.DataFrame(columns=columns)
    return pd.DataFrame(rows, columns=columns)


def allocation(found: Reading, x: str, z: str) -> Sentences:
    """The surface in words: its exponents, how a growing number of FLOPs is best shared out, the law of the rest."""
    if found.missing:
        return Sentences([found.missing])
    try:
        over = surface(found, x, z)
    except ValueError as problem:
        return Sentences([f"No surface of {found.study['name']} yet: {problem}."])
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


def verdicts(*readings: Reading) -> pd.DataFrame:
    """The laws of several studies in one table, by study: rates with intervals, predictions, verdicts."""
    tables = [
        found.laws().reset_index().assign(study=found.study["name"])
        for found in readings
        if not found.missing
    ]
    if not tables:
        return pd.DataFrame(columns=["study"])
    return pd.concat([table.astype(object) for table in tables], ignore_index=True).set_index(
        ["study", "cell"]
    )


def counted(*readings: Reading) -> Sentences:
    """How many laws of these studies agree with theory, fall faster, slower, or are undecided; and what is lacking."""
    said = [found.missing for found in readings if found.missing]
    table = verdicts(*readings)
    if "verdict" not in table:
        return Sentences(said)
    known = table[table["predicted"].notna()]
    words = known["verdict"].value_counts().to_dict()
    counts = ", ".join(f"{words[word]} {word}" for word in get_args(Word) if word in words)
    fitted = int(table["rate"].notna().sum())
    first = f"{fitted} laws are fitted; theory predicts the rate of {len(known)}" + (
        f": {counts}." if counts else "."
    )
    return Sentences([first, *said])


def heat_map(found: Reading, x: str, y: str) -> go.Figure:
    """Mean error over two crossed settings, with intervals in hover."""
    return (
        lacking(found.missing) if found.missing else drawn(figures.heat_map(found.study, found.trials, x, y))
    )


def against_references(found: Reading, task: str | None = None) -> go.Figure:
    """Error against loops on the exact references of the task; by default of the first one."""
    if found.missing:
        return lacking(found.missing)
    groups = by_task(found.study, found.trials)
    cells = groups.get(task or next(iter(groups), ""), [])
    return drawn(figures.against_references(found.study, found.trials, found.curves, cells))


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
