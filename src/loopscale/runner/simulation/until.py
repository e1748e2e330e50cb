"""What `until: decided` would spend: many simulated courses of one study, with noise between its replicates.

Each course uses the real conductor, so the looks, the corrections and the futile claims are those of a real run. Only
final errors are drawn: on the log scale, an error is a mean of its cell plus normal noise of its seed. There are two
sources of the means:

- Records: the mean of the recorded replicates of a cell. A cell without recorded replicates has the study's mean.
- An assumed effect: the first side of every claim has this much less log error than all other cells and algorithms.
  The errors along a law follow its theory, exactly or with a rate that is a quarter off.

Nets learn at the steps of the study. A study with `until.steps` has one more line for each permitted factor of the
steps. There all nets stand on the plateau below this factor. Every cell of a question is then trained at each length.
"""

import contextlib
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from loopscale.evaluate import Curve
from loopscale.foresight.noise import Noise
from loopscale.records.decisions import Decision
from loopscale.runner.decide.job import Job, Report
from loopscale.runner.decide.questions import LawQuestions
from loopscale.runner.simulation.curves import LearningCurves, RecordedTrial
from loopscale.runner.simulation.simulate import SimulatedCluster, Simulation
from loopscale.stats.contrasts import pool
from loopscale.stats.fitting import rate_of_course
from loopscale.stats.power import OFF
from loopscale.studies.law_questions import law_questions
from loopscale.studies.spec import Study

EFFECTS = (0.0, 0.05, 0.1, 0.2, 0.5)
"""Assumed effects, as differences of log errors."""
SHARES = (1.0, 1 - OFF)
"""Assumed rates of laws, as shares of the rates of their theories."""
UNKNOWN_ERROR = 0.1
"""The error of cells and algorithms without an effect. Only ratios count."""


@dataclass(frozen=True)
class AssumedErrors:
    """The final errors of one simulated course."""

    means: Mapping[str, float]
    """The mean log error by cell. Cells without a value have the log of `UNKNOWN_ERROR`."""
    sd: float
    """The standard deviation of the log error between the replicates of a cell."""
    draw: int
    """The number of the course. The noise of a trial depends on the draw and on the trial's key."""
    solver: float | None = UNKNOWN_ERROR
    """The error of every algorithm; None if the algorithms have none."""
    learns_at: int = 1
    """The least factor of the steps at which nets leave the plateau."""

    def log_error(self, cell: str, trial: str) -> float:
        """The log error of a trial of a cell."""
        noise = random.Random(f"{self.draw} {trial}").gauss(0, self.sd)
        return self.means.get(cell, math.log(UNKNOWN_ERROR)) + noise

    def report(self, job: Job, report: Report) -> Report:
        """The report of a finished job with its evaluation."""
        if job.role == "baseline":
            if self.solver is None:
                return report
            grid = np.full((1, 1), self.solver)
            return replace(report, curve=Curve(grid, grid, grid))
        error = math.exp(self.log_error(job.cell, job.key))
        grid = np.full((1, 1), error)
        metrics = {"evaluate/error": error}
        if job.steps_factor < self.learns_at:
            metrics |= {"validate_floor": 0.0, "validate_ignorance": 1.0}  # and no emergence
        return replace(report, metrics=metrics, curve=Curve(grid, grid, grid))


@dataclass(frozen=True)
class Assumption:
    """What a forecast assumes; see `UntilForecast`. Without values, the means are recorded.

    `truth` is the true ratio of the first claim, or the true rate of the first law.
    """

    effect: float | None = None
    share: float | None = None
    truth: float | None = None
    learns_at: int = 1


@dataclass(frozen=True)
class UntilForecast:
    """The courses of one assumption."""

    effect: float | None
    """The assumed effect; None if the means are recorded."""
    share: float | None
    """The assumed rate of every law, as a share of its theory's rate; None without laws, and with recorded means."""
    learns_at: int
    """The least factor of the steps at which nets learn."""
    sd: float
    courses: int
    trials: float
    """The mean number of trials of a course."""
    most_trials: int
    """The largest number of trials of a course."""
    core_hours: float
    """The mean core-hours of a course."""
    replicates: float
    """The mean number of replicates at which the claims end."""
    replicates_sd: float
    """The standard deviation of this number between claims and courses."""
    covered: float | None
    """The share of last intervals that hold the assumed effect. None for recorded means, and for several claims."""
    words: dict[str, float]
    """The mean number of claims with each verdict."""
    steps: dict[str, float]
    """The mean number of claims with each reason to end."""

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
    assert study.until
    spread = sd if sd is not None else recorded_sd if recorded_sd is not None else table_noise(study)
    if means:
        mean = float(np.mean(list(means.values())))
        known = {cell.key: means.get(cell.key, mean) for cell in study.cells()}
        return [
            _forecast(study, curves, cluster, courses, known, spread, Assumption(learns_at=factor))
            for factor in study.until.factors
        ]
    level, better, (courses_of_laws, rate) = math.log(UNKNOWN_ERROR), _first_sides(study), _law_courses(study)
    forecasts = list[UntilForecast]()
    for effect, share in _assumptions(study, bool(courses_of_laws)):
        start = {key: level + (share or 0.0) * log for key, log in courses_of_laws.items()}
        shifted = {key: start.get(key, level) - effect for key in better}
        truth = math.exp(-effect) if study.claims else (share or 0.0) * rate
        late = study.until.factors if not forecasts else (1,)
        for factor in late:
            assumed = Assumption(effect, share, truth, factor)
            forecasts.append(_forecast(study, curves, cluster, courses, start | shifted, spread, assumed))
    return forecasts


def _assumptions(study: Study, laws: bool) -> Iterator[tuple[float, float | None]]:
    """Pairs of an effect of the claims, and the share of theory's rate that the laws have."""
    for effect in EFFECTS if study.claims else (0.0,):
        yield effect, SHARES[0] if laws else None
    for share in SHARES[1:] if laws else ():
        yield 0.0, share


def _law_courses(study: Study) -> tuple[dict[str, float], float]:
    """The log of theory's course in every cell of a judged law, and the rate of the first law. The first law counts."""
    assert study.until
    laws, logs, rate = (
        LawQuestions(study, study.until.schedule(study.replicates), {}),
        dict[str, float](),
        math.nan,
    )
    for question in laws.questions:
        with contextlib.suppress(ValueError):
            course = laws.course(question)
            if math.isnan(rate):
                rate = rate_of_course(question.law["form"][0], question.x, course)
            at = dict(zip(question.x, np.log(course).tolist(), strict=True))
            logs = {key: at[place] for key, place in question.places.items()} | logs
    return logs, rate


def recorded_noise(recorded: Iterable[RecordedTrial]) -> tuple[dict[str, float], float | None]:
    """The mean log error of every cell with recorded replicates, and the standard deviation between them.

    The longest trainings of a cell count.
    """
    finished = [trial for trial in recorded if trial.role == "replicate" and trial.outcome == "finished"]
    longest = dict[str, int]()
    for trial in finished:
        longest[trial.cell] = max(longest.get(trial.cell, 1), trial.steps_factor)
    logs = defaultdict[str, list[float]](list)
    for trial in finished:
        last = trial.points[-1][1]
        if trial.steps_factor == longest[trial.cell] and last > 0:
            logs[trial.cell].append(math.log(last))
    noise = pool([np.array(errors) for errors in logs.values()])
    return {cell: float(np.mean(errors)) for cell, errors in logs.items()}, noise and math.sqrt(
        noise.variance
    )


def table_noise(study: Study) -> float:
    """The noise of the measure of the study's first claim or law, from the shipped table."""
    trial = next(iter(study.layout.trials.values()))
    return Noise().find(trial.task.kind, trial.model.kind, [*study.claims, *study.laws][0].of).noise.sd


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
    assumed: Assumption,
) -> UntilForecast:
    trials, hours = list[int](), list[float]()
    last = list[Sequence[Decision]]()
    for draw in range(courses):
        solver = None if assumed.effect is None else UNKNOWN_ERROR
        errors = AssumedErrors(means, sd, draw, solver, assumed.learns_at)
        simulation = Simulation(study, curves, replace(cluster, kills=0), errors=errors)
        conductor = simulation.run()
        trials.append(sum(len(cell_run.jobs) for cell_run in conductor.cell_runs.values()))
        hours.append(sum(end - start for start, end in simulation.busy) / 3600 * study.resources.cpu)
        of_question = {each.question: each for each in simulation.records.decisions()}
        last.append([each for each in of_question.values() if each.step != "values"])
    ended = [decision for course in last for decision in course]
    seeds = [decision.seeds for decision in ended]
    return UntilForecast(
        assumed.effect,
        assumed.share,
        assumed.learns_at,
        sd,
        courses,
        float(np.mean(trials)),
        max(trials),
        float(np.mean(hours)),
        float(np.mean(seeds)) if ended else math.nan,
        float(np.std(seeds)) if ended else math.nan,
        _covered(study, ended, assumed.truth),
        {word: count / courses for word, count in Counter(each.verdict for each in ended).items()},
        {step: count / courses for step, count in Counter(each.step for each in ended).items()},
    )


def _covered(study: Study, decisions: Sequence[Decision], truth: float | None) -> float | None:
    """The share of intervals that hold the truth of the only question."""
    laws = law_questions(study.model_dump(mode="json"), study.cells(), study.layout.shared_settings)
    if truth is None or not decisions or len(study.claims) + len(laws) != 1:
        return None
    return float(np.mean([decision.low <= truth <= decision.high for decision in decisions]))
