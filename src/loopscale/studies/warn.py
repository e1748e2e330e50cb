"""What is allowed in a study and yet deserves a second thought, said by `plan`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from loopscale.studies.parts import ALONG, DERIVED
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial

if TYPE_CHECKING:
    from loopscale.studies.plan import Offer

PROCESS_GIB = 0.3
"""Main memory of a worker besides its tensors: Python, torch, Ray."""
CONTEXT_GIB = 0.5
"""GPU memory of a process besides its tensors: what CUDA keeps."""

ENOUGH_VALUES = 4
"""With fewer values along its axis a law gets no verdict."""


def warnings(
    study: Study,
    workers: int,
    hours: tuple[float, float],
    memory_bytes: float = 0.0,
    offer: "Offer | None" = None,
    rated: bool = True,
) -> Iterator[str]:
    """One sentence each. `hours` are those of one trial after the other, `memory_bytes` the tensors of the largest.

    `rated`: whether the speed was given, not measured on this machine.
    """
    tuned = [cell for cell in study.cells() if study.space(cell)]
    if study.scheduler.kind != "none":
        if tuned:
            yield (
                f"{study.scheduler.kind} stops trials by their early errors: where curves cross it costs "
                "regret (6 to 10 % in simulations); replicates are never stopped"
            )
        else:
            yield f"nothing is tuned, so {study.scheduler.kind} has nothing to prune"
        ends = [end for trial in study.layout.trials.values() if (end := curriculum_end(trial)) is not None]
        if tuned and ends and study.scheduler.first_rung < max(ends):
            yield (
                f"the first rung, step {study.scheduler.first_rung:,}, lies within the curriculum, which "
                f"ends at step {max(ends):,}: before that errors say little, and pruning is blind"
            )
    yield from _search(study, workers)
    if study.replicates == 1:
        yield "with one replicate there are no intervals"
    for law in study.laws:
        values = {cell.values.get(law.along) for cell in study.cells()} - {None}
        if law.along not in (*ALONG, *DERIVED) and len(values) < ENOUGH_VALUES:
            yield f"the law along {law.along} has {len(values)} values: under {ENOUGH_VALUES}, no verdict"
    yield from _budget(study, workers, hours)
    yield from _memory(study, memory_bytes / 2**30, offer)
    if offer and not rated:
        yield (
            f"times and cost are at the speed of one thread of this machine; --rate FLOP/s, that of one trial on "
            f"{offer.cluster}, tells its own"
        )


def _search(study: Study, workers: int) -> Iterator[str]:
    points = [study.points(cell) for cell in study.cells() if study.space(cell)]
    if not points:
        return
    if study.search.kind in ("tpe", "gp", "nsga2"):
        at_once = -(-workers // len(points))
        if 2 * at_once > max(points):
            yield (
                f"{at_once} of a cell's {max(points)} points are tried at once: "
                f"{study.search.kind} then learns little from one for the next"
            )
        if study.search.kind == "tpe" and max(points) <= 5:
            yield f"tpe's first 5 points are random, and a cell has {max(points)}: this is a random search"
    if study.search.kind != "grid" and min(points) < study.search.trials:
        yield f"a cell has only {min(points)} different points for search.trials {study.search.trials}"


def _budget(study: Study, workers: int, hours: tuple[float, float]) -> Iterator[str]:
    used = {
        "gpu_hours": hours[1] * study.resources.gpu,
        "core_hours": hours[1] * study.resources.cpu,
        "hours": hours[1] / workers,
    }
    for name, limit in study.budget.model_dump(exclude_none=True).items():
        if used[name] > limit:
            yield f"it may take {used[name]:.3g} {name.replace('_', '-')}, more than the budget of {limit:g}"


def _memory(study: Study, tensors: float, offer: "Offer | None") -> Iterator[str]:
    """In GiB."""
    wanted = study.resources
    if wanted.gpu:
        whole = offer.gpu_memory if offer else None
        if whole and tensors > (share := min(1.0, wanted.gpu) * whole - CONTEXT_GIB):
            yield (
                f"a trial's tensors take {tensors:.3g} GiB and its share of a GPU holds {max(0.0, share):.3g}: it "
                "would end out of memory; raise resources.gpu or make batch_size smaller"
            )
    elif wanted.memory and tensors + PROCESS_GIB > wanted.memory:
        yield (
            f"a trial takes {tensors + PROCESS_GIB:.3g} GiB, {PROCESS_GIB:g} of them its process, and "
            f"resources.memory is {wanted.memory:g}: it would end out of memory"
        )


def curriculum_end(trial: Trial) -> int | None:
    """The step from which a trial sees its whole task; `None` without a curriculum."""
    curriculum, task = trial.training.curriculum, trial.task.model_dump()
    if curriculum is None:
        return None
    dims = -(-max(0, task.get("dim", 0) - curriculum.dim) // curriculum.dim_by)
    points = -(-max(0, task.get("points", 0) - curriculum.points) // curriculum.points_by)
    return max(dims, points) * curriculum.every
