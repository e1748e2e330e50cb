"""What a study would cost, before anything is spent: counted where it can be, else measured or expected."""

import os
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch

from loopscale.studies.cells import Cell
from loopscale.studies.pruning import share
from loopscale.studies.spec import Study
from loopscale.studies.warn import warnings
from loopscale.training.cost import Cost, cost, measure, training_flops
from loopscale.training.trial import Trial

MEASURED_FLOPS = 2e10
"""A step that costs more is measured on fewer prompts, so that planning at the papers' size takes seconds."""

Span = tuple[float, float]
"""From the cheapest to the dearest point of a cell: what is tuned may change the cost."""


@dataclass(frozen=True)
class Offer:
    """What a cluster asks for an hour, and what its GPUs hold, as far as either is known."""

    cluster: str
    core_hour: float | None = None
    gpu_hour: float | None = None
    currency: str = ""
    gpu_memory: float | None = None
    """GiB of one GPU."""


@dataclass(frozen=True)
class Bill:
    """What all core-hours and GPU-hours come to."""

    low: float
    high: float
    currency: str


@dataclass(frozen=True)
class CellPlan:
    """One cell. Everything but the trials is of one trial, at the ends of its ranges."""

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
    """Of training alone, on `resources` of this machine, or at the rate that was given."""
    trained_share: float
    """What of the tuning is expected to be trained, given the pruning."""


@dataclass(frozen=True)
class Plan:
    """Sums over cells. Time and FLOPs leave out evaluation, baselines and Ray's start-up of some 10 s."""

    study: str
    question: str
    cells: tuple[CellPlan, ...]
    tuning: int
    replicates: int
    baselines: int
    trials: int
    """Tuning and replicates."""
    flops: Span
    """If nothing is pruned."""
    flops_expected: Span
    """With the pruning that `trained_share` expects."""
    checkpoint_bytes: float
    """In the end less stays: no optimisers, and only the weights of the best and of the replicates."""
    memory_bytes: float
    """Of tensors, all workers together; every worker's process adds some 300 MiB on a CPU."""
    rate: dict[str, float]
    """FLOP/s of one trial, by the model's kind."""
    rate_source: str
    workers: int
    hours: Span
    """Of wall clock, expected, with all workers busy."""
    core_hours: Span
    gpu_hours: Span
    budget: dict[str, float]
    cluster: str | None
    """Whose prices and workers these are; this machine's if it is None."""
    cost: Bill | None
    """Where the cluster says its prices."""
    warnings: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Plain data, as JSON has it."""
        return asdict(self)


def plan(
    study: Study, rate: float | None = None, workers: int | None = None, offer: Offer | None = None
) -> Plan:
    """The plan of a study; `rate` is in FLOP/s of one trial, measured here if not given.

    `workers` trials run at a time, by default as many as this machine's cores allow.
    """
    workers = workers or max(1, int((os.cpu_count() or 1) / study.resources.cpu))
    kinds = {trial.model.kind: trial for trial in study.layout.trials.values()}
    threads = min(study.resources.threads, os.cpu_count() or 1)
    rates = {kind: rate or measured_rate(trial, threads) for kind, trial in kinds.items()}
    cells = tuple(_cell(study, cell, rates) for cell in study.cells())
    seconds = _total(cells, [c.seconds for c in cells], pruned=True)
    flops, expected = (_total(cells, [c.flops for c in cells], pruned=pruned) for pruned in (False, True))
    tasks = {task.model_dump_json(): task for task in study.tasks().values()}
    tuning, replicates = (sum(getattr(c, role) for c in cells) for role in ("tuning", "replicates"))
    cores, gpus = (_over(seconds, 3600, held) for held in (study.resources.cpu, study.resources.gpu))
    said = warnings(
        study, workers, _over(seconds, 3600), max(c.memory_bytes for c in cells), offer, bool(rate)
    )
    return Plan(
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
        memory_bytes=workers * max(c.memory_bytes for c in cells),
        rate=rates,
        rate_source="given" if rate else f"measured here, {threads} thread{'s' * (threads > 1)} of the CPU",
        workers=workers,
        hours=_over(seconds, 3600 * workers),
        core_hours=cores,
        gpu_hours=gpus,
        budget=study.budget.model_dump(exclude_none=True),
        cluster=offer.cluster if offer else None,
        cost=_bill(offer, cores, gpus),
        warnings=tuple(said),
    )


def counted(study: Study) -> list[dict[str, Any]]:
    """Of every cell what needs no machine to be known: trials, FLOPs of one, the share that pruning leaves."""
    return [
        {
            "key": cell.key,
            "tuning": study.points(cell),
            "replicates": study.replicates,
            "flops": _span(training_flops(trial) for trial in study.layout.corners[cell.key]),
            "trained_share": _share(study, cell),
        }
        for cell in study.cells()
    ]


def measured_rate(trial: Trial, threads: int = 1) -> float:
    """FLOP/s of a training step of such a trial, on so many threads of this machine's CPU."""
    whole = costs(trial)
    batch = max(
        1, min(trial.training.batch_size, int(trial.training.batch_size * MEASURED_FLOPS / whole.flops_step))
    )
    smaller = trial.training.model_copy(update={"batch_size": batch, "steps": 1, "warmup": 0})
    smaller = trial.model_copy(update={"training": smaller})
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return costs(smaller).flops_step / measure(smaller, steps=3)
    finally:
        torch.set_num_threads(before)


def costs(trial: Trial) -> Cost:
    """`cost`, counted once for all trials that differ in nothing that it depends on."""
    plain = trial.training.model_copy(update={"lr": 1e-3, "schedule": "constant", "warmup": 0, "clip": None})
    return _cost(trial.model_copy(update={"training": plain, "seed": 0}).model_dump_json())


@cache
def _cost(trial: str) -> Cost:
    return cost(Trial.model_validate_json(trial))


def _cell(study: Study, cell: Cell, rates: dict[str, float]) -> CellPlan:
    trials = study.layout.corners[cell.key]
    found = [costs(trial) for trial in trials]
    flops = _span(c.flops_total for c in found)
    return CellPlan(
        key=cell.key,
        label=cell.label,
        tuning=study.points(cell),
        replicates=study.replicates,
        steps=_span(trial.training.steps for trial in trials),
        parameters=_span(c.parameters for c in found),
        flops=flops,
        memory_bytes=max(c.memory_bytes for c in found),
        checkpoint_bytes=max(c.checkpoint_bytes for c in found),
        seconds=_over(flops, rates[trials[0].model.kind]),
        trained_share=_share(study, cell),
    )


def _share(study: Study, cell: Cell) -> float:
    """What of a cell's tuning is expected to be trained, given the pruning."""
    fewest = min(trial.training.steps for trial in study.layout.corners[cell.key])
    pruner = study.scheduler
    return share(pruner.kind, pruner.first_rung, pruner.reduction, study.points(cell), fewest)


def _span(values: Any) -> Span:
    found = list(values)
    return min(found), max(found)


def _over(span: Span, by: float, times: float = 1.0) -> Span:
    return times * span[0] / by, times * span[1] / by


def _bill(offer: Offer | None, cores: Span, gpus: Span) -> Bill | None:
    if offer is None or offer.core_hour is None or offer.gpu_hour is None:
        return None
    low, high = (core * offer.core_hour + gpu * offer.gpu_hour for core, gpu in zip(cores, gpus, strict=True))
    return Bill(low, high, offer.currency)


def _total(cells: tuple[CellPlan, ...], spans: list[Span], pruned: bool) -> Span:
    """The sum over all trials, each at the cheap, and each at the dear end of its cell."""
    counts = [c.replicates + c.tuning * (c.trained_share if pruned else 1) for c in cells]
    low, high = (sum(n * span[end] for n, span in zip(counts, spans, strict=True)) for end in (0, 1))
    return low, high
