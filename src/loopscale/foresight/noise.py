"""The noise between replicates: from the study's own records, and from a table that ships with the package.

The table has a row for each task, model and measure, over all studies of the project with records. A row of few degrees
of freedom says little, so `Noise.find` shrinks it towards the row of the task with all models. The command
`python -m loopscale.analysis.answers.noise` builds the table again.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources

from loopscale.foresight.learning_times import ANY, RecordedCell, read_rows, write_rows
from loopscale.stats.contrasts import PRIOR
from loopscale.stats.milestones import EMERGED_AT, is_milestone
from loopscale.stats.power import ReplicateNoise

NOISE_FILE = "noise.csv"
MEASURES = ("error", "error_last", "excess", "regret", "regret_last")
SUBSTITUTES = {"raw_error": "error"}


@dataclass(frozen=True)
class NoiseRow:
    """The noise of one measure of one model on one task. All deviations are of the natural logarithm."""

    task: str
    """The kind of the task; `ANY` for all tasks."""
    model: str
    """The kind of the model; `ANY` for all models."""
    measure: str
    runs: int
    """The number of replicates behind the row."""
    learnt: float
    """The share of the replicates that have learnt, within their own steps. A plan expects the share for its steps."""
    sd: float
    """The standard deviation between learnt replicates of one cell, without the effect of the seed on all cells."""
    seed_sd: float
    """The standard deviation of the effect of the seed on all cells."""
    freedom: int
    """The degrees of freedom behind `sd`."""
    gap: float
    """The mean log error of runs that have not learnt, minus the mean log error of learnt runs."""
    plateau_sd: float
    """The standard deviation between runs that have not learnt."""

    @classmethod
    def of(
        cls, task: str, model: str, measure: str, noise: ReplicateNoise, runs: int, freedom: int
    ) -> "NoiseRow":
        return cls(task, model, measure, runs, freedom=freedom, **asdict(noise))

    @property
    def noise(self) -> ReplicateNoise:
        return ReplicateNoise(self.sd, self.seed_sd, self.learnt, self.gap, self.plateau_sd)


def pooled(rows: Sequence[NoiseRow], task: str = ANY, model: str = ANY) -> NoiseRow:
    """One row over several rows of a measure. Variances are weighted by their degrees of freedom."""
    freedom, runs = sum(row.freedom for row in rows), sum(row.runs for row in rows)
    stuck = [(row, row.runs * (1 - row.learnt)) for row in rows]
    weight = sum(share for _, share in stuck) or 1.0
    return NoiseRow(
        task,
        model,
        rows[0].measure,
        runs,
        sum(row.learnt * row.runs for row in rows) / runs,
        math.sqrt(sum(row.sd**2 * row.freedom for row in rows) / freedom),
        math.sqrt(sum(row.seed_sd**2 * row.freedom for row in rows) / freedom),
        freedom,
        sum(row.gap * share for row, share in stuck) / weight,
        math.sqrt(sum(row.plateau_sd**2 * share for row, share in stuck) / weight),
    )


@dataclass(frozen=True)
class KnownNoise:
    """The noise of a planned run."""

    measure: str
    """The noisy measure."""
    noise: ReplicateNoise
    runs: int
    """The number of recorded runs behind the noise."""
    source: str
    """The origin of these runs, in words."""


class NoiseTable:
    """Rows by task, model and measure."""

    def __init__(self, rows: Iterable[NoiseRow]) -> None:
        self.rows: Mapping[tuple[str, str, str], NoiseRow] = {
            (row.task, row.model, row.measure): row for row in rows
        }

    @classmethod
    def with_totals(cls, parts: Iterable[NoiseRow]) -> "NoiseTable":
        """The table of these parts, with rows over all models of a task and over all tasks.

        Several parts of one task, model and measure, from several studies, become one row.
        """
        groups: dict[tuple[str, str, str], list[NoiseRow]] = {}
        for part in parts:
            for task, model in ((part.task, part.model), (part.task, ANY), (ANY, ANY)):
                groups.setdefault((task, model, part.measure), []).append(part)
        return cls(pooled(rows, task, model) for (task, model, _), rows in sorted(groups.items()))

    @classmethod
    def parse(cls, text: str) -> "NoiseTable":
        """The table in a CSV file."""
        return cls(read_rows(NoiseRow, text))

    def text(self) -> str:
        """The table as a CSV file."""
        return write_rows(NoiseRow, self.rows.values())


@dataclass(frozen=True)
class Noise:
    """The noise of planned runs: from earlier records of the study as far as it has some, else from the table."""

    own: NoiseTable | None = None
    recorded: tuple[RecordedCell, ...] = ()
    """The study's own records of emergence."""

    def find(self, task: str, model: str, measure: str) -> KnownNoise:
        """The noise of one measure of a model on a task, by their kinds.

        A measure without a row has the noise of the error. All milestones have the noise of the step of emergence.
        """
        measure = EMERGED_AT if is_milestone(measure) else SUBSTITUTES.get(measure, measure)
        table = shipped_noise()
        if not any(name == measure for *_, name in table.rows):
            measure = "error"
        chain = [
            table.rows.get(place)
            for place in ((ANY, ANY, measure), (task, ANY, measure), (task, model, measure))
        ]
        sources = ["all models on all tasks", f"all models on {task}", f"{model} on {task}"]
        if self.own:
            chain.append(self.own.rows.get((task, model, measure)))
            sources.append(f"{model} in this study")
        known = [(row, source) for row, source in zip(chain, sources, strict=True) if row]
        noise = known[0][0].noise
        for row, _ in known[1:]:
            noise = _shrunk(row, noise)
        return KnownNoise(measure, noise, known[-1][0].runs, known[-1][1])


@cache
def shipped_noise() -> NoiseTable:
    """The table that ships with the package."""
    return NoiseTable.parse(
        resources.files("loopscale.foresight").joinpath(NOISE_FILE).read_text(encoding="utf-8")
    )


def _shrunk(row: NoiseRow, prior: ReplicateNoise) -> ReplicateNoise:
    """The noise of a row, whose variances are averaged with those of a more general row, as `half_pooled` does."""

    def mixed(own: float, others: float, weight: float) -> float:
        return math.sqrt((weight * own**2 + PRIOR * others**2) / (weight + PRIOR))

    stuck = row.runs * (1 - row.learnt)
    return ReplicateNoise(
        mixed(row.sd, prior.sd, row.freedom),
        mixed(row.seed_sd, prior.seed_sd, row.freedom),
        row.learnt,
        row.gap if stuck else prior.gap,
        mixed(row.plateau_sd, prior.plateau_sd, stuck),
    )
