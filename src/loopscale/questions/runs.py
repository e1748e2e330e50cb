"""The runs that answer for the cells of a study, whether the study is running or recorded.

A verdict needs seven facts: the cells, their runs, the seed of a run, a measure, the curve, whether the net has learnt,
and its number of loops. `Runs` is their contract. `analysis.recorded.runs` reads them from records, and
`runner.decide.live_runs` reads them from the jobs of a running study.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from loopscale.questions.claim import SolverSide
from loopscale.stats.contrasts import Array
from loopscale.stats.learning import Emergence, Learnt
from loopscale.stats.looks import LookSchedule
from loopscale.stats.milestones import Milestone, Unit


class Run(Protocol):
    """One trained net, or one run of a classical algorithm."""

    @property
    def seed(self) -> int | None:
        """None for an algorithm."""
        ...

    @property
    def learnt(self) -> float:
        """1 if the net has left the plateau, 0 if not; NaN if the records do not say."""
        ...

    @property
    def loop(self) -> int:
        """T, the loop at which the net is judged; the last layer of a net of fixed depth."""
        ...

    @property
    def last_loop(self) -> int:
        """The last loop, layer or step of the curve; 0 without a curve."""
        ...

    @property
    def looped(self) -> bool:
        """True if the number of loops can be chosen after the training."""
        ...

    @property
    def solver(self) -> str:
        """The name of the algorithm."""
        ...

    @property
    def floor_solver(self) -> str:
        """The kind of the solver whose error is the floor; empty if no floor is known."""
        ...

    def __getitem__(self, measure: str, /) -> float:
        """A measure of the last evaluation; NaN if the run has none."""
        ...

    def after(self, loop: int, measure: str) -> float:
        """A measure after a loop or step, or after the last one if that is earlier. NaN if the run has no value."""
        ...


class CellOfRuns(Protocol):
    """One cell of a study with the runs that answer for it."""

    @property
    def key(self) -> str: ...

    @property
    def index(self) -> int:
        """The place of the cell in the study, and so its row in tables."""
        ...

    @property
    def values(self) -> Mapping[str, Any]:
        """The scientific settings by dotted path."""
        ...

    @property
    def runs(self) -> Sequence[Run]:
        """The finished replicates, else the best tuning trial."""
        ...

    @property
    def replicated(self) -> bool:
        """True if replicates answer, False if the best tuning trial does."""
        ...


C = TypeVar("C", bound=CellOfRuns)


class Runs(ABC, Generic[C]):
    """The runs of all cells of one study."""

    @property
    @abstractmethod
    def cells(self) -> Sequence[C]:
        """The cells of the study, in the order of its file."""

    @property
    @abstractmethod
    def schedule(self) -> LookSchedule | None:
        """The looks of the study; None for a study without `until: decided`."""

    @abstractmethod
    def baseline(self, cell: C, side: SolverSide) -> Run | None:
        """The finished run of an algorithm on the task of a cell; None without one."""

    @abstractmethod
    def passed(self, milestone: Milestone) -> Callable[[Run], Emergence | None]:
        """The two reports between which a run passed, in the unit of the milestone; None if the records do not say."""

    @abstractmethod
    def at_cost(self, pairs: Sequence[Sequence[C]], basis: Unit, of: str) -> Array | None:
        """The logarithms of a measure at the largest cost that all runs of a pair have reached, [cells, seeds].

        Returns
        -------
        Array or None
            None if all nets of a pair were trained for the same cost, so that their last values can be compared.
        """

    def logs(self, of: str) -> Array:
        """The logarithm of a measure, [cells, seeds], as `table_by_seed` gives it."""
        return self.table_by_seed(lambda _, run: run[of])

    @cached_property
    def learnt_by_seed(self) -> Array:
        """1 for every run that has learnt, 0 for every other run, [cells, seeds]. NaN if the records do not say."""
        return values_by_seed(self.cells, lambda _, run: run.learnt)

    def table_by_seed(self, value: Callable[[C, Any], float]) -> Array:
        """The logarithm of a value of every run, [cells, seeds], as `stats.contrasts` expects it.

        NaN where a cell lacks the seed or the value is NaN or negative; -inf for 0.
        """
        return logs_by_seed(self.cells, value)


def logs_by_seed(cells: Sequence[C], value: Callable[[C, Any], float]) -> Array:
    """The table of `Runs.table_by_seed` for these cells, which may come from several studies."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(values_by_seed(cells, value))


def values_by_seed(cells: Sequence[C], value: Callable[[C, Any], float]) -> Array:
    """A value of every run, [cells, seeds]. NaN where a cell lacks the seed."""
    runs_of = [cell.runs for cell in cells]
    seeds = sorted({run.seed for runs in runs_of for run in runs if run.seed is not None})
    column = {seed: place for place, seed in enumerate(seeds)}
    table = np.full((len(cells), len(seeds)), np.nan)
    for row, (cell, runs) in enumerate(zip(cells, runs_of, strict=True)):
        for run in runs:
            if run.seed is not None:
                table[row, column[run.seed]] = value(cell, run)
    return table


def learnt_of(runs: Iterable[Run]) -> Learnt:
    """How many of the runs have left the plateau, of those whose records say so."""
    known = [run.learnt for run in runs if run.learnt == run.learnt]
    return Learnt(sum(learnt == 1 for learnt in known), len(known))
