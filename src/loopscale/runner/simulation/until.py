"""What `until: decided` would spend: many simulated courses of one study, with noise between its replicates.

Each course uses the real conductor, so the looks, the corrections and the futile claims are those of a real run. Only
final errors are drawn: on the log scale, an error is a mean of its cell plus normal noise of its seed. There are two
sources of the means:

- Records: the mean of the recorded replicates of a cell. A cell without recorded replicates has the study's mean.
- An assumed effect: the first side of every claim has this much less log error than all other cells and algorithms.
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from loopscale.evaluate import Curve
from loopscale.records.decisions import Decision
from loopscale.runner.decide.job import Job, Report
from loopscale.runner.simulation.curves import LearningCurves, RecordedTrial
from loopscale.runner.simulation.simulate import SimulatedCluster, Simulation
from loopscale.stats.contrasts import pool
from loopscale.studies.noise import Noise
from loopscale.studies.spec import Study

EFFECTS = (0.0, 0.05, 0.1, 0.2, 0.5)
"""Assumed effects, as differences of log errors."""
LEVEL = 0.1
"""The error of cells and algorithms without an effect. Only ratios count."""


@dataclass(frozen=True)
class AssumedErrors:
    """The final errors of one simulated course.

    Attributes
    ----------
    means
        The mean log error by cell; other cells have the log of `LEVEL`.
    sd
        The standard deviation of the log error between the replicates of a cell.
    draw
        The number of the course. The noise of a trial depends on the draw and on the trial's key.
    solver
        The error of every algorithm; None if the algorithms have none.
    """

    means: Mapping[str, float]
    sd: float
    draw: int
    solver: float | None = LEVEL

    def log_error(self, cell: str, trial: str) -> float:
        """The log error of a trial of a cell."""
        noise = random.Random(f"{self.draw} {trial}").gauss(0, self.sd)
        return self.means.get(cell, math.log(LEVEL)) + noise

    def report(self, job: Job, report: Report) -> Report:
        """The report of a finished job with its evaluation."""
        if job.role == "baseline":
            if self.solver is None:
                return report
            grid = np.full((1, 1), self.solver)
            return replace(report, curve=Curve(grid, grid, grid))
        error = math.exp(self.log_error(job.cell, job.key))
        grid = np.full((1, 1), error)
        return replace(report, metrics={"evaluate/error": error}, curve=Curve(grid, grid, grid))


@dataclass(frozen=True)
class UntilForecast:
    """The courses of one assumption.

    Attributes
    ----------
    effect
        The assumed effect; None if the means are recorded.
    trials, core_hours
        The mean over the courses.
    most_trials
        The largest number of trials of a course.
    replicates, replicates_sd
        The replicates at which the claims ended: the mean, and the standard deviation between claims and courses.
    covered
        The share of last intervals that hold the assumed effect. None for recorded means, and for several claims.
    words, steps
        The mean number of claims with each word, and with each reason to end.
    """

    effect: float | None
    sd: float
    courses: int
    trials: float
    most_trials: int
    core_hours: float
    replicates: float
    replicates_sd: float
    covered: float | None
    words: dict[str, float]
    steps: dict[str, float]

    def document(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def until_forecasts(
    study: Study,
    curves: LearningCurves,
    cluster: SimulatedCluster,
    courses: int,
    sd: float | None = None,
) -> list[UntilForecast]:
    """The forecasts for recorded means, or for each of `EFFECTS` without recorded replicates.

    Parameters
    ----------
    courses
        Simulated courses of each assumption.
    sd
        The noise; by default that of the recorded replicates, else that of the shipped table.
    """
    means, recorded_sd = recorded_noise(curves.recorded)
    spread = sd if sd is not None else recorded_sd if recorded_sd is not None else table_noise(study)
    if means:
        mean = float(np.mean(list(means.values())))
        known = {cell.key: means.get(cell.key, mean) for cell in study.cells()}
        return [_forecast(study, curves, cluster, courses, known, spread, None)]
    better = _first_sides(study)
    level = math.log(LEVEL)
    return [
        _forecast(study, curves, cluster, courses, dict.fromkeys(better, level - effect), spread, effect)
        for effect in EFFECTS
    ]


def recorded_noise(recorded: Iterable[RecordedTrial]) -> tuple[dict[str, float], float | None]:
    """The mean log error of every cell with recorded replicates, and the standard deviation between them."""
    logs = defaultdict[str, list[float]](list)
    for trial in recorded:
        last = trial.points[-1][1]
        if trial.role == "replicate" and trial.outcome == "finished" and last > 0:
            logs[trial.cell].append(math.log(last))
    noise = pool([np.array(errors) for errors in logs.values()])
    return {cell: float(np.mean(errors)) for cell, errors in logs.items()}, noise and math.sqrt(
        noise.variance
    )


def table_noise(study: Study) -> float:
    """The noise of the study's first claim, from the shipped table."""
    trial = next(iter(study.layout.trials.values()))
    return Noise().find(trial.task.kind, trial.model.kind, study.claims[0].of).noise.sd


def _first_sides(study: Study) -> list[str]:
    """The cells that claims name as their first side, and no claim as its second side."""
    first, second = set[str](), set[str]()
    for claim in study.claims:
        for side, keys in zip(claim.sides, (first, second), strict=True):
            keys |= {cell.key for cell in study.cells() if hasattr(side, "loop") and side.names(cell.values)}
    return sorted(first - second)


def _forecast(
    study: Study,
    curves: LearningCurves,
    cluster: SimulatedCluster,
    courses: int,
    means: Mapping[str, float],
    sd: float,
    effect: float | None,
) -> UntilForecast:
    trials, hours = list[int](), list[float]()
    last = list[Sequence[Decision]]()
    for draw in range(courses):
        errors = AssumedErrors(means, sd, draw, None if effect is None else LEVEL)
        simulation = Simulation(study, curves, replace(cluster, kills=0), errors=errors)
        conductor = simulation.run()
        trials.append(sum(len(cell_run.jobs) for cell_run in conductor.cell_runs.values()))
        hours.append(sum(end - start for start, end in simulation.busy) / 3600 * study.resources.cpu)
        last.append(list({each.question: each for each in simulation.records.decisions()}.values()))
    ended = [decision for course in last for decision in course]
    seeds = [decision.seeds for decision in ended]
    return UntilForecast(
        effect,
        sd,
        courses,
        float(np.mean(trials)),
        max(trials),
        float(np.mean(hours)),
        float(np.mean(seeds)) if ended else math.nan,
        float(np.std(seeds)) if ended else math.nan,
        _covered(ended, effect) if len(study.claims) == 1 else None,
        {word: count / courses for word, count in Counter(each.word for each in ended).items()},
        {step: count / courses for step, count in Counter(each.step for each in ended).items()},
    )


def _covered(decisions: Sequence[Decision], effect: float | None) -> float | None:
    if effect is None or not decisions:
        return None
    return float(np.mean([decision.low <= math.exp(-effect) <= decision.high for decision in decisions]))
