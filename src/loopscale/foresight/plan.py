"""The cost of a study before anything runs: FLOPs are counted, speeds are measured, and savings are expected.

A plan also has remarks: choices that are valid and yet deserve a second thought.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from loopscale.core.machine_share import usable_cpus
from loopscale.core.titles import plural
from loopscale.core.visible import visible
from loopscale.foresight.held_hosts import CellWork, HeldHosts, HostGroup, held_hosts
from loopscale.foresight.inert_axes import inert_remarks
from loopscale.foresight.learning_times import shipped_times
from loopscale.foresight.noise import Noise
from loopscale.foresight.power import QuestionPower, planned_runs, power_remarks, study_power
from loopscale.foresight.recipes import RECIPE_SETTINGS
from loopscale.foresight.room import LEAST_EFFECT, StudyRoom, room_remarks, study_room
from loopscale.foresight.study_speed import measured_for
from loopscale.pricing.speed import GivenRate, MeasuredSpeed, trial_cost
from loopscale.pricing.training_budget import Prices, shape
from loopscale.questions.axes.base import LawAxis, Setting, axis_of
from loopscale.questions.until import in_reserve
from loopscale.stats.prediction import LEAST_FITTED
from loopscale.studies.axes import numbers
from loopscale.studies.cells import Cell
from loopscale.studies.checks.until import concerned_cells
from loopscale.studies.held_out import held_out_tests, held_out_values
from loopscale.studies.spec import Study, cell_counts
from loopscale.training.trial import Trial

START_SECONDS = 20.0
"""From the start of a run to its first training step, and from the last trial to the end: Ray, imports, records."""

MOST_COUNTED = 50
"""Cells whose excluded points are counted."""

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
    hosts: tuple[HostGroup, ...] = ()
    """The hosts that a submission uses or starts; empty if they are unknown."""
    remarks: tuple[str, ...] = ()
    """Sentences on the hosts, such as GPUs that the study does not use."""


@dataclass(frozen=True)
class Bill:
    """The price of core-hours and GPU-hours."""

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
    """With validation, evaluation and the slow-down by other trials, on this machine or at the given rate."""
    trained_share: float
    """The share of the tuning steps that are expected to be trained in spite of pruning."""
    in_reserve: bool
    """True if the cell is trained only if a law stays open; see `until.values`. Sums leave the cell out."""


@dataclass(frozen=True)
class UntilPlan:
    """What `until: decided` may add to the trials of the plan, which are the least that the study trains."""

    looks: tuple[int, ...]
    """Replicates of a cell at each look."""
    steps: tuple[int, ...]
    """The permitted lengths of training, as factors of the study's steps."""
    cells: int
    """Cells that may get more replicates."""
    reserve: int
    """Cells that are trained only if a law along `reserve_axis` stays open."""
    reserve_axis: str
    """Empty without such cells."""
    most_trials: int
    """Tuning and replicates, if every length of training needs its last look."""
    most_core_hours: Span
    most_gpu_hours: Span
    most_hours: Span


@dataclass(frozen=True)
class RecordedTimes:
    """The training of recorded trials of this study, on the same processor, beside the times of the plan."""

    trials: int
    recorded_seconds: float
    planned_seconds: float
    """The time of the same trainings at the speed of the plan."""


@dataclass(frozen=True)
class WorkLeft:
    """The part of a plan that earlier runs have not done."""

    trials: int
    hours: Span
    """Of wall clock."""


@dataclass(frozen=True, repr=False)
class StudyPlan:
    """Sums over the cells. FLOPs are those of training. Times exclude baselines."""

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
    """During the study. Later, optimizer states are dropped, and only the best trials and replicates keep weights."""
    memory_bytes: float
    """Tensors of all workers together. On a CPU every worker's process adds some 300 MiB."""
    rate: dict[str, float]
    """FLOP/s of one trial at its planned time, by the model's kind: the mean over its trials."""
    rate_source: str
    slow_down: float
    """The time of a trial beside the other trials of this machine, relative to a trial alone. The times contain it."""
    recorded: RecordedTimes | None
    """A check of the speed by recorded trials of the planned shapes; None without such trials."""
    left: WorkLeft | None
    """The trials that earlier runs of the study have not done; None without records."""
    workers: int
    hours: Span
    """Expected wall clock with all workers busy, and with the start of the run."""
    core_hours: Span
    gpu_hours: Span
    budget: dict[str, float]
    claims: int
    laws: int
    cluster: str | None
    """The cluster whose prices and workers are used; `None` for this machine."""
    cost: Bill | None
    """The price of the trials' hours, if the cluster's prices are known."""
    held: HeldHosts | None
    """The hosts that a submission starts, with all their hours; None if it starts no host."""
    held_cost: Bill | None
    """The price of the hosts' hours."""
    room: StudyRoom
    """What the tasks leave to learn, and how far each axis can move the error."""
    power: tuple[QuestionPower, ...]
    """The chance of a verdict on each law and claim."""
    until: UntilPlan | None
    """The least and the most that `until: decided` may spend; None without the key."""
    warnings: tuple[str, ...]

    @property
    def counts(self) -> str:
        """`8 trials in 2 cells: 4 to tune, 4 replicates; 1 baseline`."""
        trials, cells = plural(self.trials, "trial"), plural(len(self.cells), "cell")
        replicates, baselines = plural(self.replicates, "replicate"), plural(self.baselines, "baseline")
        return f"{trials} in {cells}: {self.tuning:,} to tune, {replicates}; {baselines}"

    def __repr__(self) -> str:
        """The sums and the warnings, for a notebook. `cells`, `room` and `power` hold the rest."""
        low, high = (f"{3600 * hours:.3g}" for hours in self.hours)
        seconds = low if low == high else f"{low} .. {high}"
        used = f"{self.core_hours[1]:.3g} core-hours" + f", {self.gpu_hours[1]:.3g} GPU-hours" * (
            self.gpu_hours[1] > 0
        )
        first = f"{self.study}: {self.counts}; {seconds} s with {self.workers} at a time, at most {used}"
        return visible("\n".join([first, *(f"note: {warning}" for warning in self.warnings)]))

    def document(self) -> dict[str, Any]:
        """Plain data, as in JSON."""
        return asdict(self) | {"power": [question.document() for question in self.power]}


def plan_study(
    study: Study,
    rate: float | None = None,
    workers: int | None = None,
    offer: Offer | None = None,
    noise: Noise | None = None,
    least_effect: float | None = None,
    recorded: Sequence[tuple[Trial, float]] = (),
    ended: Mapping[str, tuple[int, int]] | None = None,
) -> StudyPlan:
    """Plan a study, on this machine or on the cluster of the `offer`.

    Parameters
    ----------
    rate
        The speed of one trial in FLOP/s. The default is measured here.
    workers
        The number of trials at a time. The default fills the cores of this machine.
    noise
        The noise between replicates. The default is the noise table of the package.
    least_effect
        The least effect of an axis on the error of the best known algorithm. The plan warns of smaller effects. The
        default is `LEAST_EFFECT`.
    recorded
        Trials that have finished on this processor, with the seconds of their training.
    ended
        The tuning trials and the replicates that have ended, by the key of their cell; None without records.
    """
    cpus = usable_cpus()
    workers = workers or max(1, int(cpus / study.resources.cpu))
    threads = min(study.resources.threads, max(1, int(cpus)))
    speed = GivenRate(rate) if rate else measured_for(study, threads, 1 if offer else workers)
    derived_here = study.unpriced
    study = study.at_prices(Prices(speed=speed)) if derived_here else study
    cells = cell_plans(study, speed)
    seconds = sum_of_trials(cells, [c.seconds for c in cells], pruned=True)
    flops, expected = (
        sum_of_trials(cells, [c.flops for c in cells], pruned=pruned) for pruned in (False, True)
    )
    tasks = {task.model_dump_json(): task for task in study.tasks().values()}
    first = [c for c in cells if not c.in_reserve]
    tuning, replicates = sum(c.tuning for c in first), sum(c.replicates for c in first)
    cores, gpus = (_over(seconds, 3600, held) for held in (study.resources.cpu, study.resources.gpu))
    largest = max(c.memory_bytes for c in cells)
    gpu_memory = offer.gpu_memory if offer else None
    most = study.until.schedule(study.replicates).seeds[-1] if study.until else study.replicates
    offered = offer.hosts if offer else ()
    held = held_hosts(offered, _work(cells, 0), _work(cells, 1), workers, START_SECONDS)
    least = LEAST_EFFECT if least_effect is None else least_effect
    rooms, power = study_room(study, least), study_power(study, noise or Noise())
    remarks = [
        *_resource_remarks(study, workers, _over(seconds, 3600), largest, gpu_memory),
        *(offer.remarks if offer else ()),
        *power_remarks(power, most),
        *_learning(study, noise or Noise()),
        *inert_remarks(study),
        *room_remarks(study, rooms, least),
        *_search_remarks(study, workers),
    ]
    if not offer and cpus < (os.cpu_count() or 1):
        remarks.append(f"this process may use {cpus:g} of the {os.cpu_count()} CPUs of this machine")
    if derived_here:
        remarks.append(
            "the steps follow from training.seconds at this speed; the first run measures and records its own, or "
            "takes --rate"
        )
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
        checkpoint_bytes=sum(c.checkpoint_bytes * (c.tuning + c.replicates) for c in first),
        memory_bytes=workers * largest,
        rate=_rates(study, cells),
        rate_source="given" if rate else f"measured here, {threads} thread{'s' * (threads > 1)} of the CPU",
        slow_down=speed.slow_down,
        recorded=_recorded_times(study, speed, recorded),
        left=None if ended is None else _left(first, ended, workers),
        workers=workers,
        hours=_over(seconds, 3600 * workers, start=START_SECONDS / 3600),
        core_hours=cores,
        gpu_hours=gpus,
        budget=study.budget.model_dump(exclude_none=True),
        claims=len(study.claims),
        laws=len(study.laws),
        cluster=offer.cluster if offer else None,
        cost=_bill(offer, cores, gpus),
        held=held,
        held_cost=_bill(offer, held.core_hours, held.gpu_hours) if held else None,
        room=rooms,
        power=power,
        until=_until_plan(study, cells, seconds, workers),
        warnings=tuple(remarks),
    )


def _left(cells: Sequence[CellPlan], ended: Mapping[str, tuple[int, int]], workers: int) -> WorkLeft:
    """The trials that no record has ended yet."""
    missing = list[CellPlan]()
    for cell in cells:
        tuned, replicated = ended.get(cell.key, (0, 0))
        left = max(cell.tuning - tuned, 0), max(cell.replicates - replicated, 0)
        missing.append(replace(cell, tuning=left[0], replicates=left[1]))
    trials = sum(cell.tuning + cell.replicates for cell in missing)
    seconds = sum_of_trials(tuple(missing), [cell.seconds for cell in missing], pruned=True)
    start = START_SECONDS / 3600 if trials else 0.0
    return WorkLeft(trials, _over(seconds, 3600 * workers, start=start))


def _recorded_times(
    study: Study, speed: GivenRate | MeasuredSpeed, recorded: Sequence[tuple[Trial, float]]
) -> RecordedTimes | None:
    """The recorded trials of the planned shapes. Trials of other shapes say nothing of this study."""
    shapes = {shape(trial) for corners in study.layout.corners.values() for trial in corners}
    alike = [(trial, seconds) for trial, seconds in recorded if shape(trial) in shapes]
    if not alike:
        return None
    planned = sum(speed.training_seconds(trial, study.evaluate) for trial, _ in alike)
    return RecordedTimes(len(alike), sum(seconds for _, seconds in alike), planned)


def _until_plan(study: Study, cells: tuple[CellPlan, ...], seconds: Span, workers: int) -> UntilPlan | None:
    """The most that the study may spend, if every question of its cells needs every look."""
    if study.until is None:
        return None
    looks = study.until.schedule(study.replicates).seeds
    keys = {cell.key for cell in concerned_cells(study, study.layout)}
    concerned = [cell for cell in cells if cell.key in keys]
    factors = study.until.factors
    added = {  # of each cell, as a number of trials and in trainings of the study's steps
        cell.key: (cell.tuning + looks[-1], cell.tuning + looks[-1])
        if cell.in_reserve
        else (looks[-1] * len(factors) - study.replicates, looks[-1] * sum(factors) - study.replicates)
        for cell in concerned
    }
    low, high = (
        end + sum(added[cell.key][1] * cell.seconds[n] for cell in concerned) for n, end in enumerate(seconds)
    )
    cores, gpus = (_over((low, high), 3600, held) for held in (study.resources.cpu, study.resources.gpu))
    trials = sum(cell.tuning + cell.replicates for cell in cells if not cell.in_reserve)
    trials += sum(count for count, _ in added.values())
    hours = _over((low, high), 3600 * workers, start=START_SECONDS / 3600)
    reserve = sum(cell.in_reserve for cell in cells)
    axis = next(iter(study.until.values), "")
    return UntilPlan(looks, factors, len(concerned), reserve, axis, trials, cores, gpus, hours)


def cell_plans(study: Study, speed: GivenRate | MeasuredSpeed) -> tuple[CellPlan, ...]:
    """The plans of all cells, in the order of the study."""
    counts = zip(study.cells(), cell_counts(study), strict=True)
    return tuple(_cell_plan(study, cell, count, speed) for cell, count in counts)


def _cell_plan(study: Study, cell: Cell, count: dict[str, Any], speed: GivenRate | MeasuredSpeed) -> CellPlan:
    trials = study.layout.corners[cell.key]
    costs = [trial_cost(trial) for trial in trials]
    return CellPlan(
        **count,
        label=cell.label,
        steps=_span(trial.training.steps for trial in trials),
        parameters=_span(c.parameters for c in costs),
        memory_bytes=max(c.memory_bytes for c in costs),
        checkpoint_bytes=max(c.checkpoint_bytes for c in costs),
        seconds=_span(speed.seconds(trial, study.evaluate) for trial in trials),
        in_reserve=in_reserve(study.until, cell.values),
    )


def _span(values: Iterable[float]) -> Span:
    ordered = sorted(values)
    return ordered[0], ordered[-1]


def _over(span: Span, divisor: float, factor: float = 1.0, start: float = 0.0) -> Span:
    return start + factor * span[0] / divisor, start + factor * span[1] / divisor


def _rates(study: Study, cells: tuple[CellPlan, ...]) -> dict[str, float]:
    """FLOP/s at the planned times, by the model's kind."""
    kinds = {key: trial.model.kind for key, trial in study.layout.trials.items()}
    flops, seconds = defaultdict[str, float](float), defaultdict[str, float](float)
    for cell in cells:
        flops[kinds[cell.key]] += cell.flops[1]
        seconds[kinds[cell.key]] += cell.seconds[1]
    return {kind: flops[kind] / seconds[kind] for kind in flops}


def _work(cells: tuple[CellPlan, ...], end: int) -> list[CellWork]:
    """The trials of the cells at the cheapest (0) or the dearest (1) points."""
    return [
        CellWork(cell.tuning, cell.seconds[end] * cell.trained_share, cell.replicates, cell.seconds[end])
        for cell in cells
    ]


def _bill(offer: Offer | None, cores: Span, gpus: Span) -> Bill | None:
    if offer is None or offer.core_hour is None or offer.gpu_hour is None:
        return None
    low, high = (core * offer.core_hour + gpu * offer.gpu_hour for core, gpu in zip(cores, gpus, strict=True))
    return Bill(low, high, offer.currency)


def sum_of_trials(cells: tuple[CellPlan, ...], spans: list[Span], pruned: bool) -> Span:
    """The sum over all trials, with each trial at the cheap and at the dear end of its cell."""
    counts = [
        0 if c.in_reserve else c.replicates + c.tuning * (c.trained_share if pruned else 1) for c in cells
    ]
    low, high = (sum(n * span[end] for n, span in zip(counts, spans, strict=True)) for end in (0, 1))
    return low, high


PROCESS_GIB = 0.3
"""Main memory of a worker besides its tensors: Python, torch, Ray."""
CONTEXT_GIB = 0.5
"""GPU memory of a process besides its tensors: CUDA's context."""

ENOUGH_VALUES = 4
"""A law with fewer values along its axis gets no verdict."""


def _resource_remarks(
    study: Study, workers: int, hours: Span, memory_bytes: float, gpu_memory: float | None
) -> Iterator[str]:
    """Yield one sentence for each limit that the study may exceed.

    `hours` are those of all trials one after the other, at the cheapest and at the dearest points. `memory_bytes` are
    the tensors of the largest trial. `gpu_memory` is in GiB of one GPU.
    """
    yield from _budget(study, workers, hours)
    yield from _gpu(study)
    yield from _memory(study, memory_bytes / 2**30, gpu_memory)


def _search_remarks(study: Study, workers: int) -> Iterator[str]:
    """Yield one sentence for each remark on search, replicates and laws."""
    if points := [study.points(cell) for cell in study.cells() if study.space(cell)]:
        yield from study.search.warnings(points, -(-workers // len(points)))
        tuned = [cell for cell in study.cells() if study.space(cell)]
        yield from dict.fromkeys(
            remark
            for cell in tuned
            for remark in study.search.space_warnings(study.space(cell), study.points(cell))
        )
        if not study.search.exhaustive and min(points) < study.search.trials:
            yield f"a cell has only {min(points)} different points for search.trials {study.search.trials}"
        yield from _excluded(study, tuned)
    if study.replicates == 1:
        yield "with one replicate there are no intervals"
    for law in study.laws:
        axis, values = axis_of(law.along), numbers(study.cells(), law.along)
        held_out = held_out_values(law.hold_out, sorted(values)) if law.hold_out else set[float]()
        fitted = len(values - held_out)
        if isinstance(axis, Setting) and fitted < ENOUGH_VALUES:
            values_of_law = f"{fitted} {'fitted ' * bool(held_out)}values, {ENOUGH_VALUES} needed"
            yield f"the law of {law.measure} along {law.along} cannot be judged: {values_of_law}"
        if axis.curve and law.theory and (short := _short_curves(study, axis)):
            cells = f"{short} of {len(study.layout.trials)} cells"
            few = f"with fewer than {ENOUGH_VALUES} values along {law.along}"
            yield f"the law of {law.measure} along {law.along} cannot be judged in {cells}, {few}"
    yield from _held_out(study)
    yield from _untested(study)
    yield from _pruning(study)


def _short_curves(study: Study, axis: LawAxis) -> int:
    """The number of cells whose curves have too few values for a verdict."""
    tasks, trials = study.tasks(), study.layout.trials
    curves = [axis.curve_places(each.steps_per_prompt, tasks[key].seen) for key, each in trials.items()]
    return sum(len(curve) < ENOUGH_VALUES for curve in curves)


def _excluded(study: Study, tuned: Sequence[Cell]) -> Iterator[str]:
    """One sentence on the share of the points that `where` excludes, if it excludes some."""
    shares = [share for cell in tuned[:MOST_COUNTED] if (share := study.excluded_share(cell))]
    if shares:
        low, high = (f"{100 * share:.2g}" for share in (min(shares), max(shares)))
        yield f"where excludes {low if low == high else f'{low} to {high}'} % of the points of a cell's ranges"


def _learning(study: Study, noise: Noise) -> Iterator[str]:
    """Remarks on tasks without a recorded net, and on recipes with which few nets learn.

    A study that compares recipes has no remarks on recipes.
    """
    yield from shipped_times().unknown_learning(planned_runs(study, study.cells()), noise.recorded)
    if not any(path.startswith(RECIPE_SETTINGS) for path in (*study.scientific, *study.nuisance)):
        yield from shipped_times().recipe_remarks(planned_runs(study, study.cells()), noise.recorded)


def _held_out(study: Study) -> Iterator[str]:
    """One sentence for the held-out values of an axis whose predictions are recorded and not judged."""
    laws = [law.model_dump() for law in study.laws]
    unjudged = defaultdict[tuple[str, str], set[float]](set)
    for test in held_out_tests(laws, study.cells(), study.layout.shared_settings):
        for at, reason in test.unjudged.items():
            unjudged[test.along, reason].add(at)
    for (along, reason), places in unjudged.items():
        values = " and ".join(f"{at:g}" for at in sorted(places))
        subject, verb = ("prediction", "is") if len(places) == 1 else ("predictions", "are")
        yield f"the {subject} of {along} {values} {verb} recorded, but not judged: {reason}"


def _untested(study: Study) -> Iterator[str]:
    """One sentence for the laws along an axis that no held-out value tests, with the reason or the remedy."""
    untested = defaultdict[str, list[str]](list)
    for law in study.laws:
        if law.hold_out is None and isinstance(axis_of(law.along), Setting):
            untested[law.along].append(law.measure)
    for along, measures in untested.items():
        count = len(numbers(study.cells(), along))
        laws, have = (f"{len(measures)} laws", "have") if len(measures) > 1 else ("the law", "has")
        text = f"{laws} along {along} {have} no held-out test"
        if count <= LEAST_FITTED:
            needed = f"a judged prediction needs {LEAST_FITTED} fitted values and one beyond"
            yield f"{text}: the axis has {count} values, and {needed}"
        else:
            yield f"{text}; hold_out: 1 would predict the largest of {count} values before its runs"


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
    end = max(trial.curriculum_end for trial in study.layout.trials.values())
    if scheduler.first_rung < end:
        yield (
            f"the first rung, step {scheduler.first_rung:,}, lies within the curriculum, which "
            f"ends at step {end:,}: before that errors say little, and pruning is blind"
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


def _gpu(study: Study) -> Iterator[str]:
    if 0 < study.resources.gpu < 1:
        yield (
            f"trials with {study.resources.gpu:g} of a GPU run by turns unless its machine runs MPS; start "
            f"nvidia-cuda-mps-control -d there, which has not been verified"
        )


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


@dataclass(frozen=True)
class Price:
    """The trials of a study, their FLOPs, and their hours one after the other."""

    trials: int
    """Tuning and replicates, without more replicates of `until: decided`."""
    flops: Span
    """Of training, with the pruning that the scheduler is expected to do."""
    hours: Span


def study_price(study: Study, speed: GivenRate) -> Price:
    """The price of a study with one trial at a time. Raises Mistakes if the budget of a training has no steps."""
    study = study.at_prices(Prices(speed=speed)) if study.unpriced else study
    cells = cell_plans(study, speed)
    trials = sum(cell.tuning + cell.replicates for cell in cells if not cell.in_reserve)
    low, high = sum_of_trials(cells, [cell.seconds for cell in cells], pruned=True)
    return Price(
        trials, sum_of_trials(cells, [cell.flops for cell in cells], pruned=True), (low / 3600, high / 3600)
    )
