"""The runs of a running study, for the questions of the study."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from typing_extensions import override

from loopscale.questions.claim import SolverSide
from loopscale.questions.measures import CURVE_MEASURES
from loopscale.questions.runs import Runs
from loopscale.records.tables import Grid
from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.job import Baseline, Job
from loopscale.stats.contrasts import Array
from loopscale.stats.learning import Emergence
from loopscale.stats.looks import LookSchedule
from loopscale.stats.milestones import Milestone, Unit
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial

CurveReader = Callable[[Job], Mapping[str, Grid] | None]
"""Returns the recorded curve of a job by column, [loops, points]; None without a curve."""


class LiveRun:
    """A finished trial or baseline of a running study."""

    def __init__(self, job: Job, read_curve: CurveReader) -> None:
        self.job, self._read_curve = job, read_curve

    @property
    def seed(self) -> int | None:
        return self.job.seed

    @property
    def learnt(self) -> float:
        return math.nan if self.job.learnt is None else float(self.job.learnt)

    @property
    def loop(self) -> int:
        work = self.job.work
        return work.steps_per_prompt if isinstance(work, Trial) else self.last_loop

    @property
    def last_loop(self) -> int:
        return len(self._curve["error"]) if self._curve else 0

    @property
    def looped(self) -> bool:
        return isinstance(self.job.work, Trial) and not self.job.work.model.depth

    @property
    def solver(self) -> str:
        return self.job.label.replace("_", " ")

    @property
    def floor_solver(self) -> str:
        return self.job.floor.partition(" ")[2]

    def __getitem__(self, measure: str) -> float:
        return self.job.measure(measure)

    def after(self, loop: int, measure: str) -> float:
        if not self._curve or measure not in CURVE_MEASURES:
            return self[measure]
        of_curve = CURVE_MEASURES[measure]
        grid = self._curve.get(of_curve.grid)
        return math.nan if grid is None else of_curve.at(grid[min(loop, len(grid)) - 1])

    @cached_property
    def _curve(self) -> Mapping[str, Grid] | None:
        return self._read_curve(self.job)


class LiveCell:
    """A cell of a running study with the runs that answer for it now."""

    def __init__(self, cell_run: CellRun, index: int, read_curve: CurveReader) -> None:
        self.cell_run, self.index = cell_run, index
        self.key, self.values = cell_run.cell.key, cell_run.cell.values
        self.runs = tuple(LiveRun(job, read_curve) for job in cell_run.answers)

    @property
    def replicated(self) -> bool:
        return any(run.job.role == "replicate" for run in self.runs)


class LiveRuns(Runs[LiveCell]):
    """The runs that answer for the cells of a running study now."""

    def __init__(
        self,
        study: Study,
        schedule: LookSchedule | None,
        cell_runs: Mapping[str, CellRun],
        baselines: Mapping[str, Job],
        read_curve: CurveReader,
    ) -> None:
        self._study, self._schedule, self._baselines = study, schedule, baselines
        self._read_curve = read_curve
        self._cells = [LiveCell(run, index, read_curve) for index, run in enumerate(cell_runs.values())]

    @property
    @override
    def cells(self) -> Sequence[LiveCell]:
        return self._cells

    @property
    @override
    def schedule(self) -> LookSchedule | None:
        return self._schedule

    @override
    def baseline(self, cell: LiveCell, side: SolverSide) -> LiveRun | None:
        task = self._study.task(cell.key)
        for job in self._baselines.values():
            assert isinstance(job.work, Baseline)
            same = job.work.task == task and side.names(job.work.solver.model_dump(mode="json"))
            if same and job.outcome == "finished":
                return LiveRun(job, self._read_curve)
        return None

    @override
    def passed(self, milestone: Milestone) -> Callable[[Any], Emergence | None]:
        """`until_checks` admits only the steps until emergence."""
        assert milestone == Milestone()
        return lambda run: run.job.emergence

    @override
    def at_cost(self, pairs: Sequence[Sequence[LiveCell]], basis: Unit, of: str) -> Array | None:
        """None: `until_checks` admits only nets that are trained for the same cost."""
        return None
