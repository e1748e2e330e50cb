"""Learning curves for simulated trials: recorded curves, curves of similar trials, or synthetic curves.

- A recorded trial has its own curve.
- Any other trial has the curve of the nearest recorded trial, stretched to the trial's number of steps. The nearest
  trial is of the same cell, or else of the cell with the most similar settings. Within the cell, distances are
  measured in the nuisance ranges, each scaled to 0 .. 1.
- The curve of a pruned trial is continued in proportion to the nearest trial of the cell that went further.
- Without records, a synthetic curve is a power of the steps towards a floor, with 3 % noise. The floor rises with the
  distance from an optimum of the cell. Random numbers are seeded by the keys.
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loopscale.notation.space import Axis, Choice
from loopscale.records.mirror import Mirror
from loopscale.records.model import flatten
from loopscale.records.stores.opening import open_store
from loopscale.runner.decide.job import Job
from loopscale.studies.spec import Study

DEFAULT_RATE = 1e12
"""FLOP/s of a trial if neither the records nor the caller know it: roughly a share of one GPU."""


@dataclass
class RecordedTrial:
    """A trial of the records with its learning curve."""

    key: str
    cell: str
    outcome: str
    settings: dict[str, Any]
    points: list[tuple[float, float]]
    """(share of the steps, validation error), in order."""
    seconds: float
    """Seconds of a step; nan if unknown."""
    flops: float
    """FLOPs of a step; nan if unknown."""
    role: str = "tuning"
    steps_factor: int = 1
    """The steps over the steps of the study; see `until.steps`."""


def read_recorded_trials(source: str) -> list[RecordedTrial]:
    """Trials with a validation error in a store: a folder, a server, a database, or an export. Raises StoreError."""
    mirror = Mirror(open_store(source))
    mirror.sync()
    trials = mirror.query("SELECT * FROM trials WHERE role IN ('tuning', 'replicate')").to_pylist()
    values = mirror.query(
        "SELECT trial, step, metric, value FROM history WHERE metric IN ('error', 'seconds')"
    )
    histories: dict[str, dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in values.to_pylist():
        histories[row["trial"]][row["step"]][row["metric"]] = row["value"]
    recorded: list[RecordedTrial] = []
    for row in trials:
        settings = {name: value for name, value in row.items() if "." in name and value is not None}
        steps = float(settings["training.steps"])
        history = sorted(histories.get(row["trial"], {}).items())
        points = [(step / steps, metrics["error"]) for step, metrics in history if "error" in metrics]
        times = [(step, metrics["seconds"]) for step, metrics in history if step and "seconds" in metrics]
        seconds = times[-1][1] / times[-1][0] if times else math.nan
        flops = (row["flops"] or math.nan) / steps
        if points:
            identity = row["trial"], row["cell"], row["outcome"]
            kind = row["role"], row["steps_factor"] or 1
            recorded.append(RecordedTrial(*identity, settings, points, seconds, flops, *kind))
    return recorded


@dataclass(frozen=True)
class LearningCurve:
    """The simulated course of a trial."""

    points: tuple[tuple[float, float], ...]
    """(share of the steps, validation error), in order."""
    seconds: float
    """Seconds of a step."""
    outcome: str = "finished"
    end: float = 1.0
    """Share of the steps at which the trial ends with an `outcome` other than `finished`."""

    def error(self, share: float) -> float:
        """Error at a share of the steps, by interpolation of the logarithm where it exists."""
        before = max((p for p in self.points if p[0] <= share), default=self.points[0])
        after = min((p for p in self.points if p[0] > share), default=before)
        if before[0] == after[0]:
            return before[1]
        weight = min(1.0, max(0.0, (share - before[0]) / (after[0] - before[0])))
        if min(before[1], after[1]) <= 0:
            return before[1] + weight * (after[1] - before[1])
        return math.exp(math.log(before[1]) + weight * (math.log(after[1]) - math.log(before[1])))


@dataclass
class LearningCurves:
    """The learning curves of a study's jobs."""

    study: Study
    recorded: Iterable[RecordedTrial]
    rate: float | None = None
    """FLOP/s of a trial. None for recorded times, or DEFAULT_RATE where there are none."""
    origins: dict[str, str] = field(default_factory=dict)
    """Origin of each job's curve: exact, nearest or surrogate."""

    def __post_init__(self) -> None:
        self._by_key: dict[str, RecordedTrial] = {}
        self._by_cell: dict[str, list[RecordedTrial]] = defaultdict(list)
        for trial in self.recorded:
            if trial.points:
                self._by_key[trial.key] = trial
                self._by_cell[trial.cell].append(trial)
        self._cells = {cell.key: cell for cell in self.study.cells()}
        self._similar_cells: dict[str, str] = {}
        self._curves: dict[str, LearningCurve] = {}

    @property
    def counts(self) -> Counter[str]:
        """Number of curves by origin."""
        return Counter(self.origins.values())

    @property
    def assumed_rate(self) -> float | None:
        """FLOP/s from which times are computed; None if all times are recorded."""
        timed = self._by_key and all(math.isfinite(trial.seconds) for trial in self._by_key.values())
        return self.rate or (None if timed else DEFAULT_RATE)

    def curve(self, job: Job) -> LearningCurve:
        """The learning curve of a job."""
        if job.key not in self._curves:
            self.origins[job.key], self._curves[job.key] = self._make_curve(job)
        return self._curves[job.key]

    def _make_curve(self, job: Job) -> tuple[str, LearningCurve]:
        if trial := self._by_key.get(job.key):
            return "exact", self._replay(job, trial)
        space = self._space(job)
        if not self._by_cell:
            return "surrogate", _synthetic_curve(job, space, self._seconds_per_step(job, None))
        nearest = min(
            self._by_cell[self._similar_cell(job)],
            key=lambda trial: point_distance(space, job.point, trial.settings),
        )
        return "nearest", self._replay(job, nearest)

    def _space(self, job: Job) -> dict[str, Axis]:
        return self.study.space(self._cells[job.cell])

    def _similar_cell(self, job: Job) -> str:
        if job.cell not in self._similar_cells:
            settings, space = flatten(job.work.settings), self._space(job)
            fixed = {path: value for path, value in settings.items() if path not in space and path != "seed"}
            self._similar_cells[job.cell] = (
                job.cell
                if job.cell in self._by_cell
                else min(
                    self._by_cell, key=lambda cell: _dissimilarity(fixed, self._by_cell[cell][0].settings)
                )
            )
        return self._similar_cells[job.cell]

    def _replay(self, job: Job, trial: RecordedTrial) -> LearningCurve:
        seconds = self._seconds_per_step(job, trial)
        points, end = list(trial.points), trial.points[-1][0]
        if trial.outcome in ("diverged", "out_of_memory"):
            return LearningCurve(tuple(points), seconds, trial.outcome, end)
        longer = [other for other in self._by_cell[trial.cell] if other.points[-1][0] > end + 1e-9]
        if end < 1 - 1e-9 and longer:
            longest_end = max(other.points[-1][0] for other in longer)
            longest = [other for other in longer if other.points[-1][0] == longest_end]
            space = self._space(job)
            nearest = min(longest, key=lambda other: point_distance(space, trial.settings, other.settings))
            guide = LearningCurve(tuple(nearest.points), 0.0)
            scale = points[-1][1] / max(guide.error(end), 1e-300)
            points += [(share, error * scale) for share, error in guide.points if share > end]
        return LearningCurve(tuple(points), seconds)

    def _seconds_per_step(self, job: Job, trial: RecordedTrial | None) -> float:
        flops = job.flops / max(job.steps, 1)
        if self.rate is None and trial and math.isfinite(trial.seconds):
            return trial.seconds * (flops / trial.flops if trial.flops > 0 else 1.0)
        return flops / (self.rate or DEFAULT_RATE)


def point_distance(
    space: Mapping[str, Axis], point_a: Mapping[str, Any], point_b: Mapping[str, Any]
) -> float:
    """Squared distance of two points, each range scaled to 0 .. 1. A missing setting counts as 1."""
    total = 0.0
    for path, axis in space.items():
        if path not in point_a or path not in point_b:
            total += 1
        elif isinstance(axis, Choice) or not all(
            isinstance(point[path], int | float) for point in (point_a, point_b)
        ):  # recorded when the range was a choice
            total += point_a[path] != point_b[path]
        else:
            total += (_scaled(axis, point_a[path]) - _scaled(axis, point_b[path])) ** 2
    return total


def _scaled(axis: Axis, value: float) -> float:
    assert not isinstance(axis, Choice)
    low, high = axis.ends
    if axis.scale == "log":
        low, high, value = math.log(low), math.log(high), math.log(max(value, 1e-300))
    return (value - low) / (high - low)


def _dissimilarity(fixed: Mapping[str, Any], settings: Mapping[str, Any]) -> float:
    """Dissimilarity of two cells. Kinds count most, and numbers count by their ratio."""
    total = 0.0
    for path in fixed.keys() | settings.keys():
        a, b = fixed.get(path), settings.get(path)
        if a == b:
            continue
        if path.endswith(".kind"):
            total += 100
        elif isinstance(a, int | float) and isinstance(b, int | float) and a > 0 and b > 0:
            total += min(1.0, abs(math.log(a / b)) / 5)
        else:
            total += path in fixed
    return total


def _synthetic_curve(job: Job, space: Mapping[str, Axis], seconds: float) -> LearningCurve:
    cell_random, job_random = random.Random(job.cell), random.Random(job.key)
    distance = 0.0
    for path, axis in space.items():
        optimum = cell_random.uniform(0.25, 0.75)
        distance += (_position(axis, job.point.get(path)) - optimum) ** 2
    floor = (0.02 + 0.1 * cell_random.random()) * (1 + 8 * distance)
    rate = job_random.uniform(0.8, 1.2) / (1 + 2 * distance)
    shares = [n / 40 for n in range(41)]
    points = [
        (share, (floor + (1 - floor) * (1 + 60 * share) ** -rate) * math.exp(job_random.gauss(0, 0.03)))
        for share in shares
    ]
    return LearningCurve(tuple(points), seconds)


def _position(axis: Axis, value: Any) -> float:
    if isinstance(axis, Choice):
        return axis.choice.index(value) / max(len(axis.choice) - 1, 1) if value in axis.choice else 0.0
    return _scaled(axis, value)
