"""The cost of a study beside its plan, in total and by cell."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopscale.analysis.recorded.results import Results, TrialResult, mean
from loopscale.analysis.table import Column

Span = tuple[float, float]


@dataclass(frozen=True)
class TrainingCost:
    """The cost of training alone, without evaluation, baselines and waiting. None means unknown."""

    label: str
    planned: int | None
    """The planned number of trials, tuning and replicates together."""
    begun: int
    """The number of trials that have begun."""
    flops_planned: Span | None
    """The FLOPs without pruning, for the cheapest and for the most expensive tuned values."""
    flops_expected: Span | None
    """The same range with the pruning that the plan expects."""
    flops: float
    """The FLOPs of the steps that were trained. A step that was lost and trained again counts once."""
    seconds: float
    """The training time, summed over trials."""


COST_COLUMNS: list[Column[TrainingCost]] = [
    Column.attribute("label", "cell"),
    Column.attribute("begun", "trials begun"),
    Column.attribute("planned"),
    Column.attribute("flops", "FLOPs spent"),
    Column.attribute("flops_expected", "expected"),
    Column.attribute("flops_planned", "without pruning"),
    Column.attribute("seconds", "time spent", "s"),
]


def training_costs(results: Results) -> tuple[list[TrainingCost], TrainingCost]:
    """The cost of every cell in the study's order, and the sum over all trials, also of removed cells."""
    plans = {cell["key"]: cell for cell in results.study.get("plan") or []}
    of_cell: dict[str, list[TrialResult]] = {}
    for trial in results.trained:
        of_cell.setdefault(trial.cell, []).append(trial)
    spent = {key: _spent(trials) for key, trials in of_cell.items()}
    cells = [
        _cost(cell.label or "the only cell", plans.get(cell.key), *spent.get(cell.key, (0, 0.0, 0.0)))
        for cell in results.cells
    ]
    total = TrainingCost(
        "all",
        sum(cell.planned or 0 for cell in cells) if plans else results.study.get("planned"),
        len(results.trained),
        _sum(cell.flops_planned for cell in cells),
        _sum(cell.flops_expected for cell in cells),
        sum((flops for _, flops, _ in spent.values()), 0.0),
        sum((seconds for *_, seconds in spent.values()), 0.0),
    )
    return cells, total


def _cost(
    label: str, plan: Mapping[str, Any] | None, begun: int, flops: float, seconds: float
) -> TrainingCost:
    if plan is None:
        return TrainingCost(label, None, begun, None, None, flops, seconds)
    tuning, replicates, share = plan["tuning"], plan["replicates"], plan["trained_share"]
    low, high = plan["flops"]
    whole, expected = tuning + replicates, tuning * share + replicates
    return TrainingCost(
        label,
        whole,
        begun,
        (whole * low, whole * high),
        (expected * low, expected * high),
        flops,
        seconds,
    )


def _spent(trials: Sequence[TrialResult]) -> tuple[int, float, float]:
    """The number of trials, the FLOPs of the steps done, and the seconds.

    A trial that has not ended has no recorded FLOPs. It counts with the mean of its cell.
    """
    mean_flops = mean(trial["flops"] for trial in trials)
    flops = 0.0
    for trial in trials:
        whole, steps = trial.measures.get("flops", mean_flops), trial.settings.get("training.steps")
        share = trial.measures.get("step", 0.0) / steps if steps else 1.0
        flops += whole * share if np.isfinite(whole * share) else 0.0
    seconds = sum((trial["seconds"] for trial in trials if np.isfinite(trial["seconds"])), 0.0)
    return len(trials), flops, seconds


def _sum(spans: Iterable[Span | None]) -> Span | None:
    known = [span for span in spans if span is not None]
    return (sum(low for low, _ in known), sum(high for _, high in known)) if known else None
