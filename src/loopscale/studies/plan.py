"""The cost of a study before anything runs: FLOPs are counted, speeds are measured, and savings are expected."""

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch

from loopscale.studies.cells import Cell
from loopscale.studies.plan_warnings import warnings
from loopscale.studies.spec import Study
from loopscale.training.cost import Cost, cost, measure, training_flops
from loopscale.training.trial import Trial

MEASURED_FLOPS = 2e10
"""A dearer step is measured with fewer prompts, so that planning at the papers' size takes seconds."""

Span = tuple[float, float]
"""From the cheapest to the dearest point of a cell: tuned settings may change the cost."""


@dataclass(frozen=True)
class Offer:
    """The prices of a cluster and the memory of its GPUs, as far as they are known."""

    cluster: str
    core_hour: float | None = None
    gpu_hour: float | None = None
    currency: str = ""
    gpu_memory: float | None = None
    """GiB of one GPU."""


@dataclass(frozen=True)
class Bill:
    """The price of all core-hours and GPU-hours."""

    low: float
    high: float
    currency: str


@dataclass(frozen=True)
class CellPlan:
    """The plan of one cell. Except for the numbers of trials, all values are for one trial."""

    key: str
    label: str
    tuning: int
    replicates: int
    steps: Span
    parameters: Span
    flops: Span
    memory_bytes: float
    checkpoint_bytes: float
    seconds: Span
    """Training only, on `resources` of this machine or at the given rate."""
    trained_share: float
    """The share of the tuning steps that are expected to be trained in spite of pruning."""


@dataclass(frozen=True)
class StudyPlan:
    """Sums over the cells. Time and FLOPs exclude evaluation, baselines and some 10 s to start Ray."""

    study: str
    question: str
    cells: tuple[CellPlan, ...]
    tuning: int
    replicates: int
    baselines: int
    trials: int
    """Tuning and replicates."""
    flops: Span
    """Without pruning."""
    flops_expected: Span
    """With the pruning that `trained_share` expects."""
    checkpoint_bytes: float
    """During the study. Later, optimiser states are dropped, and only the best trials and replicates keep weights."""
    memory_bytes: float
    """Tensors of all workers together. On a CPU every worker's process adds some 300 MiB."""
    rate: dict[str, float]
    """FLOP/s of one trial, by the model's kind."""
    rate_source: str
    workers: int
    hours: Span
    """Expected wall clock with all workers busy."""
    core_hours: Span
    gpu_hours: Span
    budget: dict[str, float]
    cluster: str | None
    """The cluster whose prices and workers are used; `None` for this machine."""
    cost: Bill | None
    """The cost, if the cluster's prices are known."""
    warnings: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Plain data, as in JSON."""
        return asdict(self)


def plan_study(
    study: Study, rate: float | None = None, workers: int | None = None, offer: Offer | None = None
) -> StudyPlan:
    """Plan a study, on this machine or on the cluster of the `offer`.

    `rate` is in FLOP/s of one trial and is measured here by default. `workers` trials run at a time, by default as many
    as the cores of this machine allow.
    """
    workers = workers or max(1, int((os.cpu_count() or 1) / study.resources.cpu))
    kinds = {trial.model.kind: trial for trial in study.layout.trials.values()}
    threads = min(study.resources.threads, os.cpu_count() or 1)
    rates = {kind: rate or measured_rate(trial, threads) for kind, trial in kinds.items()}
    cells = tuple(_cell_plan(study, cell, rates) for cell in study.cells())
    seconds = _total(cells, [c.seconds for c in cells], pruned=True)
    flops, expected = (_total(cells, [c.flops for c in cells], pruned=pruned) for pruned in (False, True))
    tasks = {task.model_dump_json(): task for task in study.tasks().values()}
    tuning, replicates = sum(c.tuning for c in cells), sum(c.replicates for c in cells)
    cores, gpus = (_over(seconds, 3600, held) for held in (study.resources.cpu, study.resources.gpu))
    largest = max(c.memory_bytes for c in cells)
    gpu_memory = offer.gpu_memory if offer else None
    remarks = list(warnings(study, workers, _over(seconds, 3600), largest, gpu_memory))
    if offer and not rate:
        remarks.append(
            f"times and cost are at the speed of one thread of this machine; --rate FLOP/s, that of one trial on "
            f"{offer.cluster}, tells its own"
        )
    return StudyPlan(
        study=study.name,
        question=study.question,
        cells=cells,
        tuning=tuning,
        replicates=replicates,
        baselines=sum(len(study.solving(task)) for task in tasks.values()),
        trials=tuning + replicates,
        flops=flops,
        flops_expected=expected,
        checkpoint_bytes=sum(c.checkpoint_bytes * (c.tuning + c.replicates) for c in cells),
        memory_bytes=workers * largest,
        rate=rates,
        rate_source="given" if rate else f"measured here, {threads} thread{'s' * (threads > 1)} of the CPU",
        workers=workers,
        hours=_over(seconds, 3600 * workers),
        core_hours=cores,
        gpu_hours=gpus,
        budget=study.budget.model_dump(exclude_none=True),
        cluster=offer.cluster if offer else None,
        cost=_bill(offer, cores, gpus),
        warnings=tuple(remarks),
    )


def cell_counts(study: Study) -> list[dict[str, Any]]:
    """The part of a plan that needs no machine, by cell: trials, FLOPs of one trial, expected share after pruning."""
    return [
        {
            "key": cell.key,
            "tuning": study.points(cell),
            "replicates": study.replicates,
            "flops": _span(training_flops(trial) for trial in study.layout.corners[cell.key]),
            "trained_share": _trained_share(study, cell),
        }
        for cell in study.cells()
    ]


def measured_rate(trial: Trial, threads: int = 1) -> float:
    """FLOP/s of a training step of the trial on `threads` threads of this machine's CPU."""
    size = trial.training.batch_size
    batch = max(1, min(size, int(size * MEASURED_FLOPS / trial_cost(trial).flops_step)))
    training = trial.training.model_copy(update={"batch_size": batch, "steps": 1, "warmup": 0})
    smaller = trial.model_copy(update={"training": training})
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return trial_cost(smaller).flops_step / measure(smaller, steps=3)
    finally:
        torch.set_num_threads(before)


def trial_cost(trial: Trial) -> Cost:
    """`cost`, counted once for all trials that differ only in settings without an effect on it."""
    plain = trial.training.model_copy(update={"lr": 1e-3, "schedule": "constant", "warmup": 0, "clip": None})
    return _cost(trial.model_copy(update={"training": plain, "seed": 0}).model_dump_json())


@cache
def _cost(trial: str) -> Cost:
    return cost(Trial.model_validate_json(trial))


def _cell_plan(study: Study, cell: Cell, rates: dict[str, float]) -> CellPlan:
    trials = study.layout.corners[cell.key]
    costs = [trial_cost(trial) for trial in trials]
    flops = _span(c.flops_total for c in costs)
    return CellPlan(
        key=cell.key,
        label=cell.label,
        tuning=study.points(cell),
        replicates=study.replicates,
        steps=_span(trial.training.steps for trial in trials),
        parameters=_span(c.parameters for c in costs),
        flops=flops,
        memory_bytes=max(c.memory_bytes for c in costs),
        checkpoint_bytes=max(c.checkpoint_bytes for c in costs),
        seconds=_over(flops, rates[trials[0].model.kind]),
        trained_share=_trained_share(study, cell),
    )


def _trained_share(study: Study, cell: Cell) -> float:
    fewest = min(trial.training.steps for trial in study.layout.corners[cell.key])
    return study.scheduler.trained_share(study.points(cell), fewest)


def _span(values: Iterable[float]) -> Span:
    ordered = sorted(values)
    return ordered[0], ordered[-1]


def _over(span: Span, divisor: float, factor: float = 1.0) -> Span:
    return factor * span[0] / divisor, factor * span[1] / divisor


def _bill(offer: Offer | None, cores: Span, gpus: Span) -> Bill | None:
    if offer is None or offer.core_hour is None or offer.gpu_hour is None:
        return None
    low, high = (core * offer.core_hour + gpu * offer.gpu_hour for core, gpu in zip(cores, gpus, strict=True))
    return Bill(low, high, offer.currency)


def _total(cells: tuple[CellPlan, ...], spans: list[Span], pruned: bool) -> Span:
    """The sum over all trials, with each trial at the cheap and at the dear end of its cell."""
    counts = [c.replicates + c.tuning * (c.trained_share if pruned else 1) for c in cells]
    low, high = (sum(n * span[end] for n, span in zip(counts, spans, strict=True)) for end in (0, 1))
    return low, high
