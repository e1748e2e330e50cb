"""Remarks of `loopscale plan`: choices that are valid and yet deserve a second thought."""

from collections.abc import Iterator

from loopscale.studies.parts import CURVE_AXES, DERIVED_AXES
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial

PROCESS_GIB = 0.3
"""Main memory of a worker besides its tensors: Python, torch, Ray."""
CONTEXT_GIB = 0.5
"""GPU memory of a process besides its tensors: CUDA's context."""

ENOUGH_VALUES = 4
"""A law with fewer values along its axis gets no verdict."""


def warnings(
    study: Study,
    workers: int,
    hours: tuple[float, float],
    memory_bytes: float = 0.0,
    gpu_memory: float | None = None,
) -> Iterator[str]:
    """Yield one sentence for each remark.

    `hours` are those of all trials one after the other, at the cheapest and at the dearest points. `memory_bytes` are
    the tensors of the largest trial. `gpu_memory` is in GiB of one GPU.
    """
    yield from _pruning(study)
    if points := [study.points(cell) for cell in study.cells() if study.space(cell)]:
        yield from study.search.warnings(points, -(-workers // len(points)))
        if not study.search.exhaustive and min(points) < study.search.trials:
            yield f"a cell has only {min(points)} different points for search.trials {study.search.trials}"
    if study.replicates == 1:
        yield "with one replicate there are no intervals"
    for law in study.laws:
        values = {cell.values.get(law.along) for cell in study.cells()} - {None}
        if law.along not in (*CURVE_AXES, *DERIVED_AXES) and len(values) < ENOUGH_VALUES:
            yield f"the law along {law.along} has {len(values)} values: under {ENOUGH_VALUES}, no verdict"
    yield from _budget(study, workers, hours)
    yield from _memory(study, memory_bytes / 2**30, gpu_memory)


def _pruning(study: Study) -> Iterator[str]:
    scheduler = study.scheduler
    if not scheduler.prunes:
        return
    if not any(study.space(cell) for cell in study.cells()):
        yield f"nothing is tuned, so {scheduler.kind} has nothing to prune"
        return
    yield (
        f"{scheduler.kind} stops trials by their early errors: where curves cross it costs "
        "regret (6 to 10 % in simulations); replicates are never stopped"
    )
    ends = [end for trial in study.layout.trials.values() if (end := curriculum_end(trial)) is not None]
    if ends and scheduler.first_rung < max(ends):
        yield (
            f"the first rung, step {scheduler.first_rung:,}, lies within the curriculum, which "
            f"ends at step {max(ends):,}: before that errors say little, and pruning is blind"
        )


def _budget(study: Study, workers: int, hours: tuple[float, float]) -> Iterator[str]:
    used = {
        "gpu_hours": hours[1] * study.resources.gpu,
        "core_hours": hours[1] * study.resources.cpu,
        "hours": hours[1] / workers,
    }
    for name, limit in study.budget.model_dump(exclude_none=True).items():
        if used[name] > limit:
            yield f"it may take {used[name]:.3g} {name.replace('_', '-')}, more than the budget of {limit:g}"


def _memory(study: Study, tensors: float, gpu_memory: float | None) -> Iterator[str]:
    """`tensors` and `gpu_memory` are in GiB."""
    resources = study.resources
    if resources.gpu:
        if gpu_memory and tensors > (share := min(1.0, resources.gpu) * gpu_memory - CONTEXT_GIB):
            yield (
                f"a trial's tensors take {tensors:.3g} GiB and its share of a GPU holds {max(0.0, share):.3g}: it "
                "would end out of memory; raise resources.gpu or make batch_size smaller"
            )
    elif resources.memory and tensors + PROCESS_GIB > resources.memory:
        yield (
            f"a trial takes {tensors + PROCESS_GIB:.3g} GiB, {PROCESS_GIB:g} of them its process, and "
            f"resources.memory is {resources.memory:g}: it would end out of memory"
        )


def curriculum_end(trial: Trial) -> int | None:
    """The step from which a trial trains on the whole task; `None` without a curriculum."""
    curriculum, task = trial.training.curriculum, trial.task.model_dump()
    if curriculum is None:
        return None
    dims = -(-max(0, task.get("dim", 0) - curriculum.dim) // curriculum.dim_by)
    points = -(-max(0, task.get("points", 0) - curriculum.points) // curriculum.points_by)
    return max(dims, points) * curriculum.every
