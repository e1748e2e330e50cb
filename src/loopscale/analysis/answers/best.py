"""The best configuration of every cell, and where it stands against the classical algorithms."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from loopscale.analysis.tables import (
    StudyTable,
    answers,
    baselines_of,
    curve_at,
    finished,
    json_key,
    loop_of,
    numbers,
    plain,
    settings_of,
    several_objectives,
    solver_name,
)
from loopscale.stats.intervals import PooledVariance, mean_intervals, pool

EXACT = 1e-9
"""An error, of an algorithm in float64, below which there is nothing but rounding."""


@dataclass(frozen=True)
class Best:
    """A cell's answer. Errors are `None` where nothing has finished, the interval with fewer than two
    replicates.
    """

    cell: str
    label: str
    settings: Mapping[str, Any]
    error: float | None
    error_low: float | None
    error_high: float | None
    error_last: float | None
    replicates: int
    trial: str | None
    """The first seed's replicate, not the luckiest one."""
    state: str
    """How far the cell is: `3 of 8 tuned`, `2 of 3 replicated`."""
    flops: float | None = None
    front: bool = False
    """Whether no other point of its cell has both a smaller error and fewer FLOPs."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Standing:
    """A cell's error over that of a classical algorithm on the same prompts, after the same number of steps.

    The ratio is that of the geometric mean over replicates, which is what its interval is of, as in `claims.beats`.
    The interval is the noise of training alone: both are measured on one prompt set, and a baseline has no
    seed.
    """

    cell: str
    label: str
    baseline: str
    loop: int
    error: float
    baseline_error: float
    ratio: float
    low: float | None
    high: float | None
    replicates: int
    """That the interval is over; 0 where there is none."""

    @property
    def exact(self) -> bool:
        """Whether the algorithm's error is nothing but rounding, so that a ratio to it says nothing."""
        return self.baseline_error < EXACT

    @property
    def open(self) -> bool:
        """Whether the interval holds 1."""
        return self.low is not None and self.high is not None and self.low <= 1 <= self.high

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def best(trials: pd.DataFrame, study: StudyTable) -> list[Best]:
    """One answer a cell, in the study's order; cells that left the study's file are left out."""
    found = {cell["key"]: answers(trials, cell["key"]) for cell in study["cells"]}
    groups = [numbers(rows["error"]) if replicated else np.empty(0) for rows, replicated in found.values()]
    intervals = mean_intervals(groups)
    fronts = {point.trial for point in front(trials, study)} if several_objectives(study) else set()
    return [
        _answer(trials, study, cell, *found[cell["key"]], interval, fronts)
        for cell, interval in zip(study["cells"], intervals, strict=True)
    ]


def front(trials: pd.DataFrame, study: StudyTable) -> list[Best]:
    """Every cell's points that no other point beats in both error and FLOPs, cheapest first."""
    points = []
    for cell in study["cells"]:
        rows = finished(trials, "tuning", cell["key"])
        lowest = np.inf
        for _, row in rows.assign(flops=numbers(rows["flops"])).sort_values(["flops", "error"]).iterrows():
            if row["error"] < lowest and np.isfinite(row["flops"]):
                lowest = row["error"]
                points.append(_row(cell, row, float(row["error"]), (None, None), 0, "on the front", True))
    return points


def replicate_noise(study: StudyTable, trials: pd.DataFrame) -> PooledVariance | None:
    """The variance of the logarithm of a replicate's error, pooled over cells; `None` where no cell has two."""
    found = [answers(trials, cell["key"]) for cell in study["cells"]]
    return pool([np.log(numbers(rows["error"])) for rows, replicated in found if replicated])


def against(trials: pd.DataFrame, curves: pd.DataFrame, study: StudyTable) -> list[Standing]:
    """Every cell beside every classical algorithm that ran on its task, as it came out.

    The algorithm is taken after as many steps as the cell has loops or layers; one recorded for fewer,
    after its last.
    """
    spread = replicate_noise(study, trials)
    return [
        standing
        for cell in study["cells"]
        for mine, replicated in [answers(trials, cell["key"])]
        if len(mine)
        for standing in _standings(
            trials, curves, cell, mine, spread if replicated and len(mine) > 1 else None
        )
    ]


def _standings(
    trials: pd.DataFrame,
    curves: pd.DataFrame,
    cell: Mapping[str, Any],
    mine: pd.DataFrame,
    spread: PooledVariance | None,
) -> list[Standing]:
    row = mine.iloc[0]
    errors = numbers(mine["error"])
    loop, error = loop_of(row, curve_at(curves, row["trial"])), float(errors.mean())
    half = float(np.exp(spread.half_width(len(mine)))) if spread else None
    found = []
    for _, baseline in baselines_of(trials, row).iterrows():
        curve = curve_at(curves, baseline["trial"])
        at = min(loop, int(curve["loop"].max())) if len(curve) else loop
        theirs = float(curve[curve["loop"] == at]["error"].mean()) if len(curve) else float(baseline["error"])
        if np.isfinite(theirs) and theirs > 0:
            ratio = float(np.exp(np.log(errors).mean())) / theirs
            low, high = (ratio / half, ratio * half) if half else (None, None)
            name = solver_name(baseline)
            runs = len(mine) if half else 0
            found.append(
                Standing(cell["key"], cell["label"], name, at, error, theirs, ratio, low, high, runs)
            )
    return found


def _answer(
    trials: pd.DataFrame,
    study: StudyTable,
    cell: Mapping[str, Any],
    rows: pd.DataFrame,
    replicated: bool,
    interval: tuple[float, float] | None,
    fronts: set[str | None],
) -> Best:
    state = _state(trials, study, cell["key"], rows, replicated)
    if rows.empty:
        return Best(cell["key"], cell["label"], dict(cell["values"]), None, None, None, None, 0, None, state)
    row = rows.iloc[0]
    last = float(numbers(rows["error_last"]).mean())
    error = float(numbers(rows["error"]).mean())
    here = (
        json_key(_point(row)) in {json_key(_point(other)) for other in _rows(trials, fronts)}
        if fronts
        else False
    )
    count = len(rows) if replicated else 0
    return _row(cell, row, error, interval or (None, None), count, state, here, last)


def _row(
    cell: Mapping[str, Any],
    row: pd.Series,
    error: float,
    interval: tuple[float | None, float | None],
    replicates: int,
    state: str,
    on_front: bool,
    last: float | None = None,
) -> Best:
    flops, own_last = numbers([row["flops"], row["error_last"]])
    last = float(own_last) if last is None else last
    return Best(
        cell=cell["key"],
        label=cell["label"],
        settings=settings_of(row),
        error=error,
        error_low=interval[0],
        error_high=interval[1],
        error_last=last if np.isfinite(last) else None,
        replicates=replicates,
        trial=str(row["trial"]),
        state=state,
        flops=float(flops) if np.isfinite(flops) else None,
        front=on_front,
    )


def _state(trials: pd.DataFrame, study: StudyTable, cell: str, rows: pd.DataFrame, replicated: bool) -> str:
    mine = trials[trials["cell"] == cell]
    if replicated or (mine["role"] == "replicate").any():
        lost = mine[
            (mine["role"] == "replicate")
            & mine["outcome"].isin(["diverged", "out_of_memory", "failed", "lost"])
        ]
        return f"{len(rows) if replicated else 0} of {study['replicates']} replicated" + (
            f", {len(lost)} without an answer" if len(lost) else ""
        )
    tuned = mine[(mine["role"] == "tuning") & ~mine["outcome"].isin(["", "running", "interrupted"])]
    planned = (study.get("search") or {}).get("trials")
    return f"{len(tuned)} of {planned} tuned" if planned else "not trained yet"


def _point(row: pd.Series) -> dict[str, Any]:
    return {path: plain(value) for path, value in settings_of(row).items()}


def _rows(trials: pd.DataFrame, keys: set[str | None]) -> list[pd.Series]:
    return [row for _, row in trials[trials["trial"].isin(list(keys))].iterrows()]
