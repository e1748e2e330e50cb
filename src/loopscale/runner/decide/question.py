"""What a look says about one question of a running study: a claim or a law."""

from collections.abc import Iterable
from dataclasses import dataclass

from loopscale.records.decisions import Kind
from loopscale.runner.decide.cell_run import CellRun
from loopscale.stats.learning import Learnt

MOST_NEEDED = 1_000_000
"""The largest number of replicates that a futile question names."""


@dataclass(frozen=True)
class Judged:
    """The result of a look at one question. The names of a `Decision` have the same meaning.

    Attributes
    ----------
    cells
        The cells that the question concerns.
    valued
        The replicates with a value: the smallest number among the cells.
    looked
        False if the runs allow no look yet.
    decided
        True if the word ends the question.
    futile
        True if more replicates will probably not decide the question.
    falling
        True if at least half of the runs have not learnt, or still improve.
    learnt
        The learnt runs of each side of a claim, as in `5 of 6 and 6 of 6`. Empty if all have learnt.
    wants_values
        True if the cells in reserve would decide the law for fewer FLOPs than replicates.
    """

    identity: str
    kind: Kind
    text: str
    cells: tuple[CellRun, ...]
    valued: int
    looked: bool
    word: str
    decided: bool
    futile: bool
    falling: bool
    chance: float
    estimate: float
    low: float
    high: float
    p: float
    adjusted_p: float
    needed: float
    learnt: str = ""
    wants_values: bool = False


def learnt(cells: Iterable[CellRun]) -> Learnt:
    """How many of the runs have left the plateau, and how many are still falling, as far as the runs recorded it."""
    jobs = [job for cell_run in cells for job in cell_run.answers if job.learnt is not None]
    return Learnt(sum(job.learnt is True for job in jobs), len(jobs), sum(job.falling for job in jobs))
