"""Whether pruning may have ended a better point: trials that were hardly behind the best of their cell.

A learning curve lies on a plateau before it falls, and on a plateau all points look alike: what is ended there was
drawn by lot. Reports name such trials, since nothing else in the records says that an answer hangs on them.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false

import math
from dataclasses import dataclass

import pandas as pd

from loopscale.analysis.tables import finished, numbers
from loopscale.stats.intervals import PooledVariance


@dataclass(frozen=True)
class Close:
    """A trial that was ended, and how far behind it was then."""

    trial: str
    label: str
    """Of its cell."""
    step: int
    """Of training, at which it was ended."""
    ratio: float
    """Its error there over that, at the same step, of the trial that came out best in its cell."""


def alike(noise: PooledVariance) -> float:
    """The factor by which two runs of one point differ, one standard deviation."""
    return math.exp(math.sqrt(2 * noise.variance))


def close_calls(trials: pd.DataFrame, history: pd.DataFrame, noise: PooledVariance | None) -> list[Close]:
    """Pruned trials that were no further behind than two runs of one point differ, cell by cell.

    `noise` is that of replicates at the end of training, pooled over cells; without any, nothing is said.
    """
    ended = trials[(trials["role"] == "tuning") & (trials["outcome"] == "pruned")]
    if noise is None or ended.empty:
        return []
    most = alike(noise)
    kept = {cell: _best(trials, cell) for cell in ended["cell"].unique()}
    asked = history["metric"].eq("error") & history["trial"].isin([*ended["trial"], *kept.values()])
    errors = (
        history[asked].drop_duplicates(["trial", "step"], keep="last").set_index(["trial", "step"])["value"]
    )
    return [
        Close(str(row["trial"]), str(row["label"]), int(row["step"]), ratio)
        for _, row in ended.sort_values(["label", "number"], kind="stable").iterrows()
        if (ratio := _behind(errors, row, kept[row["cell"]])) is not None and ratio < most
    ]


def _best(trials: pd.DataFrame, cell: str) -> str | None:
    tuned = finished(trials, "tuning", cell)
    return None if tuned.empty else str(tuned.loc[tuned["error"].idxmin(), "trial"])


def _behind(errors: pd.Series, row: pd.Series, best: str | None) -> float | None:
    """`None` where either was not measured at that step."""
    if best is None or pd.isna(row["step"]):
        return None
    at = int(row["step"])
    mine, other = (numbers([errors.get((trial, at))])[0] for trial in (row["trial"], best))
    return float(mine / other) if mine > 0 and other > 0 else None
