"""The course of a study on a cluster, computed from recorded learning curves through the real search and pruning."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopscale.errors import UsageError
from loopscale.interface import types
from loopscale.interface.foreign_errors import with_loopscale_errors

LARGEST = {
    "gpus": 10**9,
    "workers": 10**9,
    "start-up": 10**7,
    "faults": 10**6,
    "kill": 1_000,
    "noise": 100,
    "courses": 10_000,
}
"""The largest value of each option that a simulation ends with, and that a cluster or a study may have."""


@dataclass(frozen=True)
class Simulation:
    """A simulated study: schedule, use of the slots, savings by pruning, and cost."""

    study: "types.Study"
    forecast: "types.Forecast"
    cluster: "types.SimulatedCluster"
    until: "Sequence[types.UntilForecast]"
    """The courses of `until: decided`, one for each assumption; empty for other studies."""
    cost: float | None
    """In units of `currency`; None without a cluster that has prices."""
    currency: str | None

    def document(self) -> dict[str, Any]:
        """Plain data, as in JSON."""
        added = {"until": [each.document() for each in self.until]} if self.study.until else {}
        return self.forecast.document() | {"cost": self.cost, "currency": self.currency} | added


@with_loopscale_errors
def simulate(
    study: "types.Study | str | Path",
    curves: str | Path | None = None,
    *,
    workers: int | None = None,
    gpus: float | None = None,
    start_up: float = 10.0,
    faults: float = 0.0,
    kill: int = 0,
    rate: float | None = None,
    cluster: str | None = None,
    noise: float | None = None,
    courses: int = 20,
    seed: int = 0,
) -> Simulation:
    """Replay learning curves through the real search and pruning, in simulated time.

    Parameters
    ----------
    study
        A study, the file of a study, or the name of a study.
    curves
        A store, or a folder of `loopscale export`. By default the curves are made up.
    workers, gpus
        The size of the cluster: trials at a time, or GPUs. Each GPU takes 1 / `resources.gpu` trials.
    start_up
        Seconds before a trial trains.
    faults
        Deaths of workers per hour.
    kill
        Number of times to kill the driver, and to compare the decisions.
    rate
        FLOP/s of a trial, instead of recorded times.
    cluster
        The name of a cluster, for its prices.
    noise
        Of `until: decided`: the standard deviation of the log error between replicates. By default as recorded.
    courses
        Of `until: decided`: simulated courses of each assumption.
    seed
        The seed of faults, kills and lost notes.

    Raises
    ------
    UsageError
        The size of the cluster is missing or too small, a number is above `LARGEST`, the source has no curves, or the
        cluster has no prices.
    StudyError, StoreError
    """
    given = {"gpus": gpus, "workers": workers, "start-up": start_up, "faults": faults}
    given |= {"kill": kill, "noise": noise, "courses": courses}
    for name, number in given.items():
        if number is not None and not number <= LARGEST[name]:
            raise UsageError(f"--{name} {number:g} is too large to simulate; give {LARGEST[name]:,} or less")
    from loopscale.foresight.study_speed import with_speed
    from loopscale.runner.simulation.curves import LearningCurves, read_recorded_trials
    from loopscale.runner.simulation.forecast import forecast
    from loopscale.runner.simulation.simulate import SimulatedCluster
    from loopscale.studies.spec import Study

    loaded = with_speed(study if isinstance(study, Study) else Study.load(study), rate)
    prices = _prices(cluster) if cluster else None
    simulated = SimulatedCluster(_slots(loaded, gpus, workers), start_up, faults, kill, seed)
    recorded = read_recorded_trials(str(curves)) if curves else []
    if curves and not recorded:
        raise UsageError(f"{curves} holds no learning curves yet; name another source, or leave --curves out")
    known_curves = LearningCurves(loaded, recorded, rate)
    result = forecast(loaded, known_curves, simulated)
    until: Sequence[types.UntilForecast] = ()
    if loaded.until:
        from loopscale.runner.simulation.until import until_forecasts

        until = until_forecasts(loaded, known_curves, simulated, courses, noise)
    cost = prices.cost(result.core_hours, result.gpu_hours) if prices else None
    return Simulation(loaded, result, simulated, until, cost, prices.currency if prices else None)


def _slots(study: "types.Study", gpus: float | None, workers: int | None) -> int:
    """Trials at a time. Raises UsageError."""
    if (gpus is None) == (workers is None):
        raise UsageError("the size of the cluster is missing or given twice; give either --gpus or --workers")
    if workers:
        return workers
    share = study.resources.gpu or 1.0
    slots = int((gpus or 0) / share + 1e-9)
    if slots < 1:
        raise UsageError(f"--gpus {gpus:g} have no room for a trial of {share:g} GPU; give more")
    return slots


def _prices(cluster: str) -> "types.Prices":
    """Raises UsageError and Mistakes."""
    from loopscale.cluster.files import load_cluster

    name, settings = load_cluster(cluster)
    if settings.prices is None:
        raise UsageError(
            f"the cluster {name} has no prices; write prices: {{gpu_hour: ..., core_hour: ...}} in its file"
        )
    return settings.prices
