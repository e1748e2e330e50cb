"""Forecast of a study on a cluster: duration, use of the cluster, savings by pruning, and their cost in quality."""

import json
import statistics
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from loopscale.records.model import OVER, Record
from loopscale.records.study_records import geometric_mean
from loopscale.runner.decide.cell_run import CellRun, TunedPoint, point_id
from loopscale.runner.decide.job import Job
from loopscale.runner.simulation.curves import LearningCurves
from loopscale.runner.simulation.simulate import SimulatedCluster, Simulation
from loopscale.studies.spec import Study

TIMELINE_BINS = 60


@dataclass(frozen=True)
class Resumed:
    """Comparison of a study whose driver died with the uninterrupted study."""

    deaths: int
    """Deaths of the driver."""
    trials: int
    same: int
    """Trials with the same point, outcome, last step and rungs in both studies."""
    promised: bool
    """Whether all trials must be the same: random search without pruning, or one trial at a time. No worker dies."""


@dataclass(frozen=True)
class Forecast:
    """Forecast of a study, in simulated hours. Evaluation and baselines take no time."""

    study: str
    cells: int
    trials: int
    outcomes: dict[str, int]
    slots: int
    hours: float
    """From start to end."""
    trial_hours: float
    """Hours of used slots, including starts and repeated steps."""
    trial_hours_unpruned: float
    """Hours of the same trials without pruning: each trial runs to its end or its divergence, without repetition.
    Lost trials are left out.
    """
    core_hours: float
    gpu_hours: float
    utilisation: float
    """Share of the slots in use."""
    timeline: tuple[float, ...]
    """Share of the slots in use, in TIMELINE_BINS equal parts of the time."""
    tail_hours: float
    """Hours at the end with fewer trials than at the maximum, because too few were left to start."""
    workers_lost: int
    regret: float
    """Cost of pruning: excess error of the chosen point over the best tried point, both at the ends of their curves,
    relative to the best. Mean over cells.
    """
    regret_worst: float
    curves: dict[str, int]
    """Number of trials by origin of the learning curve: exact, nearest or surrogate."""
    rate: float | None
    """FLOP/s of a trial from which times are computed; None if all times are recorded."""
    resumed: Resumed | None

    @property
    def saved(self) -> float:
        """Share of the work that pruning saves."""
        return 1 - self.trial_hours / self.trial_hours_unpruned if self.trial_hours_unpruned else 0.0

    def document(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"saved": self.saved}


def forecast(study: Study, curves: LearningCurves, cluster: SimulatedCluster) -> Forecast:
    """Run the study in simulated time. If the cluster has kills, run it once more with drivers that die."""
    simulation = Simulation(study, curves, replace(cluster, kills=0))
    simulation.run()
    resumed = _compare_resumed(study, curves, cluster, simulation) if cluster.kills else None
    cell_runs = list(simulation.conductor.cell_runs.values())
    jobs = [job for cell_run in cell_runs for job in cell_run.jobs.values()]
    seconds = sum(end - start for start, end in simulation.busy)
    trained = [job for job in jobs if job.outcome in OVER]
    unpruned = sum(cluster.start_up + curves.curve(job).seconds * _length(curves, job) for job in trained)
    regrets = [regret for cell_run in cell_runs if (regret := _regret(cell_run, curves)) is not None]
    return Forecast(
        study=study.name,
        cells=len(cell_runs),
        trials=len(jobs),
        outcomes=dict(simulation.conductor.counts()),
        slots=cluster.slots,
        hours=simulation.now / 3600,
        trial_hours=seconds / 3600,
        trial_hours_unpruned=unpruned / 3600,
        core_hours=seconds / 3600 * study.resources.cpu,
        gpu_hours=seconds / 3600 * study.resources.gpu,
        utilisation=seconds / (cluster.slots * simulation.now) if simulation.now else 0.0,
        timeline=_timeline(simulation),
        tail_hours=_tail_hours(simulation),
        workers_lost=simulation.workers_lost,
        regret=statistics.fmean(regrets) if regrets else 0.0,
        regret_worst=max(regrets, default=0.0),
        curves=dict(curves.counts),
        rate=curves.assumed_rate,
        resumed=resumed,
    )


def _length(curves: LearningCurves, job: Job) -> float:
    curve = curves.curve(job)
    return job.steps * (1.0 if curve.outcome == "finished" else curve.end)


def _regret(cell_run: CellRun, curves: LearningCurves) -> float | None:
    """Relative excess error of the cell's chosen point. Points with a trial that diverges do not count."""
    errors = {point.id: _final_error(point, curves) for point in cell_run.points.values()}
    known = [error for error in errors.values() if error is not None]
    if cell_run.best is None or not known:
        return None
    chosen, best = errors[point_id(cell_run.best.point)], min(known)
    return chosen / best - 1 if chosen is not None and best > 0 else None


def _final_error(point: TunedPoint, curves: LearningCurves) -> float | None:
    """The value of the point if its trials so far were trained to the end; None if one of them diverges."""
    trials = [curves.curve(job) for job in point.jobs.values()]
    if any(trial.outcome != "finished" for trial in trials):
        return None
    return geometric_mean([trial.error(1.0) for trial in trials])


def _timeline(simulation: Simulation) -> tuple[float, ...]:
    """Share of the slots in use, in TIMELINE_BINS equal parts of the time."""
    if not simulation.now:
        return ()
    starts, ends = np.array(simulation.busy).T
    edges = np.linspace(0.0, simulation.now, TIMELINE_BINS + 1)
    used = [
        np.clip(edge - starts, 0.0, ends - starts).sum() for edge in edges
    ]  # seconds of slots before the edge
    shares = np.diff(used) / (edges[1] * simulation.cluster.slots)
    return tuple(np.minimum(shares, 1.0).tolist())


def _tail_hours(simulation: Simulation) -> float:
    """Hours from the last moment with the maximum number of used slots to the end."""
    moments = [(at, n) for start, end in simulation.busy if end > start for at, n in ((start, 1), (end, -1))]
    if not moments:
        return simulation.now / 3600
    times, changes = np.array(sorted(moments)).T
    running = np.cumsum(changes)
    last_change_at_maximum = np.flatnonzero(running == running.max())[-1]
    return float(simulation.now - times[last_change_at_maximum + 1]) / 3600


def _compare_resumed(
    study: Study, curves: LearningCurves, cluster: SimulatedCluster, uninterrupted: Simulation
) -> Resumed:
    resumed = Simulation(study, curves, cluster)
    resumed.run(uninterrupted.events)
    expected, actual = (_endings(simulation.records.records()) for simulation in (uninterrupted, resumed))
    same = sum(expected.get(key) == actual[key] for key in actual)
    harmless = study.search.order_free and not study.scheduler.prunes
    promised = (harmless or cluster.slots == 1) and not cluster.faults
    return Resumed(resumed.drivers_killed, len(expected.keys() | actual.keys()), same, promised)


def _endings(records: list[Record]) -> dict[str, tuple[Any, ...]]:
    """Identity and end of each trial, by its key: the parts that two equal studies share."""
    return {
        r.key: (
            r.cell,
            r.role,
            r.number,
            json.dumps(r.point),
            r.outcome,
            r.status,
            r.step,
            tuple(r.rungs.items()),
        )
        for r in records
        if r.role != "baseline"
    }
