"""What a simulated study comes to: how long, how busy, what pruning saves, and what it costs in the answer."""

import statistics
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from loopscale.records.model.note import OVER
from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.job import Job
from loopscale.runner.simulation.ledger import ending
from loopscale.runner.simulation.replay import Curves
from loopscale.runner.simulation.simulate import Setting, Simulation
from loopscale.studies.spec import Study

BINS = 60
"""Of the timeline."""


@dataclass(frozen=True)
class Resumed:
    """The same study with a driver that died, held against the one that lived."""

    deaths: int
    trials: int
    same: int
    """Trials with the same point, outcome, last step and rungs in both."""
    promised: bool
    """Whether all of them must be the same: random search without pruning, or one trial at a time, and no worker
    that dies."""


@dataclass(frozen=True)
class Forecast:
    """Hours are simulated; evaluation and baselines take none."""

    study: str
    cells: int
    trials: int
    outcomes: dict[str, int]
    slots: int
    hours: float
    """From start to end."""
    trial_hours: float
    """Of slots taken, starting and repeating included."""
    trial_hours_unpruned: float
    """The same trials, each trained to its end or to where it diverges, nothing repeated, and those left out that were
    lost."""
    core_hours: float
    gpu_hours: float
    utilisation: float
    timeline: tuple[float, ...]
    """The share of slots taken, in equal parts of the time."""
    tail_hours: float
    """At the end, when there was not enough left to start: since as many slots as ever were taken."""
    workers_lost: int
    regret: float
    """Of pruning, in the mean over cells: how much worse the chosen point is at its end than the best of all that were
    tried would have been, relative to that one."""
    regret_worst: float
    curves: dict[str, int]
    """How many trials had a recorded curve, that of the nearest recorded trial, or one that is made up."""
    rate: float | None
    """FLOP/s of a trial that hours are counted from; None where they are as recorded."""
    resumed: Resumed | None

    @property
    def saved(self) -> float:
        """The share of the work that pruning saves."""
        return 1 - self.trial_hours / self.trial_hours_unpruned if self.trial_hours_unpruned else 0.0

    def document(self) -> dict[str, Any]:
        """Plain data, as JSON has it."""
        return asdict(self) | {"saved": self.saved}


def forecast(study: Study, curves: Curves, setting: Setting) -> Forecast:
    """Conduct the study in simulated time, and once more with drivers that die, if the setting has any."""
    alive = Setting(setting.slots, setting.start_up, setting.faults, 0, setting.seed)
    whole = Simulation(study, curves, alive)
    whole.run()
    resumed = _resumed(study, curves, setting, whole) if setting.kills else None
    benches = list(whole.conductor.benches.values())
    jobs = [job for bench in benches for job in bench.jobs.values()]
    taken = sum(end - start for start, end in whole.busy)
    trained = [job for job in jobs if job.outcome in OVER]
    full = sum(setting.start_up + curves.course(job).seconds * _length(curves, job) for job in trained)
    regrets = [each for bench in benches if (each := _regret(bench, curves)) is not None]
    return Forecast(
        study=study.name, cells=len(benches), trials=len(jobs), outcomes=dict(Counter(job.outcome for job in jobs)),
        slots=setting.slots, hours=whole.now / 3600, trial_hours=taken / 3600, trial_hours_unpruned=full / 3600,
        core_hours=taken / 3600 * study.resources.cpu, gpu_hours=taken / 3600 * study.resources.gpu,
        utilisation=taken / (setting.slots * whole.now) if whole.now else 0.0,
        timeline=_timeline(whole), tail_hours=_tail(whole), workers_lost=whole.lost,
        regret=statistics.fmean(regrets) if regrets else 0.0, regret_worst=max(regrets, default=0.0),
        curves=dict(curves.counts), rate=curves.speed, resumed=resumed,
    )  # fmt: skip


def _length(curves: Curves, job: Job) -> float:
    course = curves.course(job)
    return job.steps * (1.0 if course.outcome == "finished" else course.last)


def _regret(bench: CellRun, curves: Curves) -> float | None:
    """At the curves' ends; of trials that diverge there is none."""
    tried = [job for job in bench.jobs.values() if job.role == "tuning"]
    ends = [curves.course(job).error(1.0) for job in tried if curves.course(job).outcome == "finished"]
    if bench.best is None or not ends:
        return None
    best = min(ends)
    return curves.course(bench.best).error(1.0) / best - 1 if best > 0 else None


def _timeline(whole: Simulation) -> tuple[float, ...]:
    width = whole.now / BINS
    if not width:
        return ()
    changes = [0.0] * (BINS + 2)
    taken = [0.0] * BINS
    for start, end in whole.busy:
        first, last = min(int(start / width), BINS - 1), min(int(end / width), BINS - 1)
        if first == last:
            taken[first] += end - start
            continue
        taken[first] += (first + 1) * width - start
        taken[last] += end - last * width
        changes[first + 1] += width
        changes[last] -= width
    running = 0.0
    for n in range(BINS):
        running += changes[n]
        taken[n] += running
    return tuple(min(1.0, each / (width * whole.setting.slots)) for each in taken)


def _tail(whole: Simulation) -> float:
    """From the last moment at which as many slots were taken as ever were to the end, in hours."""
    moments = sorted(
        (at, change) for start, end in whole.busy if end > start for at, change in ((start, 1), (end, -1))
    )
    running = most = 0
    last = 0.0
    for at, change in moments:
        if change < 0 and running == most:
            last = at
        running += change
        if running >= most:
            most, last = running, at
    return (whole.now - last) / 3600


def _resumed(study: Study, curves: Curves, setting: Setting, whole: Simulation) -> Resumed:
    again = Simulation(study, curves, setting)
    again.run(whole.events)
    one, other = (
        ending([record for record in each.ledger.records() if record.role != "baseline"])
        for each in (whole, again)
    )
    same = sum(one.get(key) == other[key] for key in other)
    harmless = study.search.order_free and not study.scheduler.prunes
    promised = (harmless or setting.slots == 1) and not setting.faults
    return Resumed(again.killed, len(one.keys() | other.keys()), same, promised)
