"""What a study has cost beside what its plan said, in total and by cell."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from loopscale.analysis.tables import StudyTable, numbers

Span = tuple[float, float]


@dataclass(frozen=True)
class Cost:
    """Of training alone: evaluation, baselines and waiting are in neither. `None` where nobody knows."""

    label: str
    planned: int | None
    """Trials, tuning and replicates."""
    begun: int
    flops_planned: Span | None
    """If nothing is pruned, at the cheap and at the dear end of what is tuned."""
    flops_expected: Span | None
    """With the pruning that the plan expected."""
    flops: float
    """Of the steps that were trained; what was lost and trained again counts once."""
    seconds: float
    """That trials say they have trained, all together, whatever ran beside them."""
    seconds_expected: Span | None
    """`flops_expected` at the speed of the cell's own trials, since no plan knows the machine."""


def costs(study: StudyTable, trials: pd.DataFrame) -> tuple[list[Cost], Cost]:
    """Every cell's cost in the study's order, and the sum over all trials, those of cells that left included."""
    planned = {cell["key"]: cell for cell in study.get("plan") or []}
    trained = trials[trials["role"] != "baseline"]
    rows = trained.assign(_flops=_flops(trained), _seconds=_finite(trained["seconds"]))
    cells = [
        _cost(cell["label"] or "the only cell", planned.get(cell["key"]), rows[rows["cell"] == cell["key"]])
        for cell in study["cells"]
    ]
    spans = {
        name: _sum([getattr(cell, name) for cell in cells]) for name in ("flops_planned", "flops_expected")
    }
    total = Cost(
        "all",
        sum(cell.planned or 0 for cell in cells) if planned else study.get("planned"),
        len(rows),
        spans["flops_planned"],
        spans["flops_expected"],
        float(rows["_flops"].sum()),
        float(rows["_seconds"].sum()),
        _sum([cell.seconds_expected for cell in cells]),
    )
    return cells, total


def _cost(label: str, plan: Mapping[str, Any] | None, rows: pd.DataFrame) -> Cost:
    flops, seconds = float(rows["_flops"].sum()), float(rows["_seconds"].sum())
    if plan is None:
        return Cost(label, None, len(rows), None, None, flops, seconds, None)
    tuning, replicates, share = plan["tuning"], plan["replicates"], plan["trained_share"]
    low, high = plan["flops"]
    whole, expected = tuning + replicates, tuning * share + replicates
    each = seconds / flops if flops > 0 and seconds > 0 else None
    return Cost(
        label,
        whole,
        len(rows),
        (whole * low, whole * high),
        (expected * low, expected * high),
        flops,
        seconds,
        each and (expected * low * each, expected * high * each),
    )


def _flops(rows: pd.DataFrame) -> np.ndarray:
    """Of the steps done; a trial that has not ended says no FLOPs, and gets the mean of its cell."""
    whole = pd.Series(numbers(rows["flops"]), index=rows.index)
    whole = whole.fillna(whole.groupby(rows["cell"]).transform("mean"))
    steps = numbers(rows["training.steps"]) if "training.steps" in rows else np.full(len(rows), np.nan)
    done = numbers(rows["step"])
    share = np.where(np.isfinite(steps) & (steps > 0), done / np.where(steps > 0, steps, 1), 1.0)
    return np.nan_to_num(numbers(whole) * np.nan_to_num(share), posinf=0.0)


def _finite(values: pd.Series) -> np.ndarray:
    return np.nan_to_num(numbers(values), posinf=0.0, neginf=0.0)


def _sum(spans: list[Span | None]) -> Span | None:
    known = [span for span in spans if span is not None]
    return (sum(low for low, _ in known), sum(high for _, high in known)) if known else None
