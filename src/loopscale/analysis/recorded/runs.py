"""The runs of recorded results, for the questions of a study."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from typing_extensions import override

from loopscale.analysis.recorded.learning import passages
from loopscale.analysis.recorded.looks import schedule_of
from loopscale.analysis.recorded.results import CellResult, Results, TrialResult
from loopscale.questions.claim import SolverSide
from loopscale.questions.runs import Runs
from loopscale.stats.contrasts import Array
from loopscale.stats.learning import Emergence
from loopscale.stats.looks import LookSchedule
from loopscale.stats.milestones import Milestone, Unit


class RecordedRuns(Runs[CellResult]):
    """The runs that answer for the cells of a recorded study.

    Parameters
    ----------
    looks
        False for cells whose number of replicates no result has chosen, so that their intervals need no looks.
    """

    def __init__(self, results: Results, looks: bool = True) -> None:
        self.results = results
        self._looks = looks

    @property
    @override
    def cells(self) -> Sequence[CellResult]:
        return self.results.cells

    @cached_property
    @override
    def schedule(self) -> LookSchedule | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return schedule_of(self.results) if self._looks else None

    @override
    def logs(self, of: str) -> Array:
        return self.results.logs(of)

    @override
    def baseline(self, cell: CellResult, side: SolverSide) -> TrialResult | None:
        for baseline in cell.baselines:
            recorded = {
                _as_written(path.removeprefix("solver.")): value
                for path, value in baseline.settings.items()
                if path.startswith("solver.")
            }
            if side.names({"kind": baseline.solver.replace(" ", "_")} | recorded):
                return baseline
        return None

    @override
    def passed(self, milestone: Milestone) -> Callable[[Any], Emergence | None]:
        runs = [run for cell in self.cells for run in cell.runs]
        found = passages(self.results, runs, milestone)
        by_trial = dict(zip([run.trial for run in runs], found, strict=True))
        return lambda run: by_trial[run.trial]

    @override
    def at_cost(self, pairs: Sequence[Sequence[CellResult]], basis: Unit, of: str) -> Array | None:
        costs = [
            {run.settings.get(f"training.{basis}") for cell in pair for run in cell.runs} for pair in pairs
        ]
        if all(len(of_pair) == 1 and None not in of_pair for of_pair in costs):
            return None
        # Imported here, because the modules import torch, which most claims do not need.
        from loopscale.analysis.recorded.equal_cost import common_budget, error_at_cost
        from loopscale.analysis.recorded.prices import study_prices

        priced = study_prices(self.results)
        budgets = {
            cell.key: common_budget((run for each in pair for run in each.runs), priced, basis)
            for pair in pairs
            for cell in pair
        }
        least = min(budgets.values())  # of cells beside the claim, which lend their noise

        def value(cell: CellResult, trial: TrialResult) -> float:
            budget = budgets.get(cell.key, least)
            if not common_budget([trial], priced, basis) >= budget:
                return math.nan
            return error_at_cost(trial, **{basis: budget}, of=of, price=priced[trial.trial])  # pyright: ignore[reportArgumentType]

        return self.table_by_seed(value)


def _as_written(path: str) -> str:
    """The name in a study's file of a recorded setting of a solver. A construction is written without its own level."""
    return "name" if path == "construction.kind" else path.removeprefix("construction.")


class RunsOfStudies(Runs[CellResult]):
    """The runs of cells of several studies, which are compared by their last evaluations.

    A cell whose trials are in two studies counts once in the noise. Two studies have no looks in common.
    """

    def __init__(self, cells: Iterable[CellResult]) -> None:
        self._cells = {_identity(cell): cell for cell in cells}
        self._places = {identity: place for place, identity in enumerate(self._cells)}

    @property
    @override
    def cells(self) -> Sequence[CellResult]:
        return list(self._cells.values())

    @property
    @override
    def schedule(self) -> LookSchedule | None:
        return None

    @override
    def baseline(self, cell: CellResult, side: SolverSide) -> TrialResult | None:
        return None

    @override
    def passed(self, milestone: Milestone) -> Callable[[Any], Emergence | None]:
        return lambda _: None

    @override
    def at_cost(self, pairs: Sequence[Sequence[CellResult]], basis: Unit, of: str) -> Array | None:
        return None

    def placed(self, cell: CellResult) -> CellResult:
        """The cell with its row in the tables of all cells."""
        return replace(cell, index=self._places[_identity(cell)])


def _identity(cell: CellResult) -> tuple[tuple[str, float], ...]:
    """The runs of a cell with their errors. Cells of two studies with equal runs are the same cell."""
    return tuple(sorted((run.trial, run["error"]) for run in cell.runs))
