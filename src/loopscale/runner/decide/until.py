"""Looks of a study with `until: decided`: which claims are decided, and which cells get more replicates.

A look takes place when nothing runs and every ordered replicate is over. All open claims are then judged together, so
the number of workers changes no decision. Laws order no replicates. The rules are:

- A claim that holds, does not hold or is level gets no more replicates.
- A futile claim gets no more replicates. Replicates that another claim orders may still decide it.
- A claim is "not learnt" if a run of its cells stands on the plateau. It gets no more replicates, because no number of
  replicates removes such a run. Longer training does.
- All other claims get the replicates of the next look, in their own cells only.
- A replicate that diverges has no error. The cells of its claim get another seed in its place, up to half as many as
  the look has. A look waits for replicates that ended by a fault of the machine or the code: the next run trains them.

The decisions are a function of the records, and are recorded before the ordered replicates start. A driver that dies
therefore changes no decision.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loopscale.records.decisions import Decision, Step
from loopscale.records.model import OVER
from loopscale.records.tables import Grid
from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.job import Baseline, Job
from loopscale.stats.contrasts import ALPHA, Array, deciding_replicates
from loopscale.stats.learning import Learnt
from loopscale.stats.looks import ClaimLooks, LookSchedule, looks_at, looks_at_value
from loopscale.stats.multiplicity import ClaimVerdict, judge_claims
from loopscale.studies.claims import VERDICTS, CellSide, ClaimSpec, SolverSide
from loopscale.studies.spec import Study
from loopscale.studies.until import family_hash, question_hash
from loopscale.training.trial import Trial

EXACT = 1e-9
"""An algorithm with a smaller error solves the task, so that no ratio to its error exists."""
MOST_NEEDED = 1_000_000
"""The largest number of replicates that a futile claim names."""
CurveReader = Callable[[Job], Mapping[str, Grid] | None]
"""Returns the recorded curve of a job by column, [loops, points]; None without a curve."""


@dataclass(frozen=True)
class ClaimData:
    """What the records say about one claim.

    Attributes
    ----------
    cells
        The cells whose runs are compared, one or two.
    looks
        The looks that the runs allow; None before the first look.
    overflows
        True if a net overflows after more loops, so that the ratio is infinite.
    valued
        The number of seeds with a value on both sides.
    """

    cells: tuple[CellRun, ...]
    looks: ClaimLooks | None = None
    overflows: bool = False
    valued: int = 0


@dataclass
class Judged:
    """The result of one look: what to record, and the cells that get more replicates."""

    decisions: list[Decision]
    cells: set[str]


class StudyLooks:
    """Judges the questions of a study at each look, and orders replicates."""

    def __init__(
        self,
        study: Study,
        cell_runs: Mapping[str, CellRun],
        baselines: Mapping[str, Job],
        recorded: Iterable[Decision],
        read_curve: CurveReader,
    ) -> None:
        """Restore the orders of the `recorded` decisions."""
        assert study.until is not None
        self.study, self._cell_runs, self._baselines = study, dict(cell_runs), baselines
        self._read_curve = read_curve
        self.schedule: LookSchedule = study.until.schedule(study.replicates)
        self._rows = {key: row for row, key in enumerate(self._cell_runs)}
        plain = study.model_dump(mode="json")
        self._ids = [question_hash(claim, plain) for claim in plain["claims"]]
        self._family = family_hash(plain)
        recorded = list(recorded)
        self._words = {decision.question: decision.word for decision in recorded}
        last = self.schedule.seeds[-1]
        self._over = {
            decision.question
            for decision in recorded
            if decision.over or (decision.step == "most" and decision.seeds >= last)
        }
        """The identities of questions that get no more replicates."""
        for decision in recorded:
            for key in decision.cells:
                if cell_run := self._cell_runs.get(key):
                    cell_run.replicates = max(cell_run.replicates, decision.replicates)
        asked = [decision.replicates or decision.seeds for decision in recorded]
        self._look = self._index(max(asked, default=0))

    @property
    def is_over(self) -> bool:
        """True if no question gets more replicates."""
        return all(identity in self._over for identity in self._ids)

    def judge(self) -> Judged:
        """Judge all questions. Call this when every ordered replicate is over.

        Nothing is judged while replicates are missing that can still be trained.
        """
        if self.is_over or self._unfinished():
            return Judged([], set())
        data = [self._data(claim) for claim in self.study.claims]
        if replacements := self._replace_failed(data):
            return Judged([], replacements)
        evidence = [self._evidence(each) for each in data]
        verdicts = judge_claims(evidence, [claim.margin for claim in self.study.claims])
        alpha = self._alpha(verdicts)
        decisions = [
            self._decide(number, each, verdict, alpha)
            for number, (each, verdict) in enumerate(zip(data, verdicts, strict=True))
        ]
        # Replicates for other claims may decide a futile claim. Its verdict is recorded too.
        decisions = [
            decision
            for decision in decisions
            if decision.question not in self._over
            or (decision.step == "decided" and self._words.get(decision.question) != decision.word)
        ]
        self._words |= {decision.question: decision.word for decision in decisions}
        cells: set[str] = set()
        for decision in decisions:
            if decision.step != "train":
                self._over.add(decision.question)
                continue
            for key in decision.cells:
                self._cell_runs[key].replicates = max(self._cell_runs[key].replicates, decision.replicates)
                cells.add(key)
        self._look = min(self._look + 1, len(self.schedule.seeds) - 1)
        return Judged(decisions, cells)

    @property
    def _goal(self) -> int:
        """The replicates of the present look."""
        return self.schedule.seeds[self._look]

    def _index(self, replicates: int) -> int:
        """The look that so many ordered replicates lead to."""
        later = [look for look, seeds in enumerate(self.schedule.seeds) if seeds >= replicates]
        return later[0] if later else len(self.schedule.seeds) - 1

    def _unfinished(self) -> bool:
        """True if a replicate of an open question ended by a fault of the machine or the code."""
        keys = {cell_run.cell.key for number in self._open() for cell_run in self._cells(number)}
        jobs = (job for key in keys for job in self._cell_runs[key].jobs.values() if job.role == "replicate")
        return any(job.outcome not in OVER for job in [*jobs, *self._baselines.values()])

    def _open(self) -> list[int]:
        return [number for number, identity in enumerate(self._ids) if identity not in self._over]

    def _cells(self, number: int) -> tuple[CellRun, ...]:
        """The cells that a claim concerns, each once."""
        sides = [side for side in self.study.claims[number].sides if isinstance(side, CellSide)]
        return tuple(
            {cell_run.cell.key: cell_run for side in sides for cell_run in [self._cell(side)]}.values()
        )

    def _replace_failed(self, data: Sequence[ClaimData]) -> set[str]:
        """Order a seed for each seed of the present look that diverged. Returns the cells with such an order."""
        ordered: set[str] = set()
        for number in self._open():
            cells = data[number].cells
            failed, finished = _failed_seeds(cells), len(_shared_seeds(cells))
            wanted = self._goal + len(failed)
            if finished >= self._goal or len(failed) > self._goal / 2 or not all(map(_can_replicate, cells)):
                continue
            for cell_run in cells:
                if cell_run.replicates < wanted:
                    cell_run.replicates = wanted
                    ordered.add(cell_run.cell.key)
        return ordered

    def _evidence(self, data: ClaimData) -> ClaimLooks | None:
        return None if data.overflows else data.looks

    def _alpha(self, verdicts: Sequence[ClaimVerdict]) -> float:
        """The level at which an open claim is judged next: Holm's, or Bonferroni's if a claim has a margin."""
        left = len(verdicts)
        if all(claim.margin is None for claim in self.study.claims):
            left -= sum(verdict.verdict != "undecided" for verdict in verdicts)
        return ALPHA / max(left, 1)

    def _decide(self, number: int, data: ClaimData, verdict: ClaimVerdict, alpha: float) -> Decision:
        claim, looks = self.study.claims[number], data.looks
        word = "does not hold" if data.overflows else VERDICTS[verdict.verdict] if looks else "not run"
        if looks and not self._learnt(data.cells).all:
            word = "not learnt"
        chance = looks.chance(claim.margin, alpha) if looks else math.nan
        last = self._goal == self.schedule.seeds[-1]
        step: Step = "train"
        if word in ("holds", "does not hold", "level"):
            step = "decided"
        elif word == "not learnt":
            step = "not learnt"
        elif looks is None or data.valued < self._goal:
            step = "no data"
        elif last:
            step = "most"
        elif looks.is_futile(claim.margin, alpha):
            step = "futile"
        replicates = self.schedule.seeds[self._look + 1] if step == "train" else 0
        low, high = looks.interval() if looks else (math.nan, math.nan)
        present = looks.contrasts[-1] if looks else None
        needed = math.nan
        if present and word == "undecided":
            level = 1 - float(self.schedule.alphas(alpha)[-1])
            seeds = deciding_replicates(present, claim.margin, level, MOST_NEEDED)
            needed = len(data.cells) * (seeds - present.seeds) if seeds else math.inf
        return Decision(
            question=self._ids[number],
            kind="claim",
            text=claim.text,
            seeds=self._goal,
            runs=data.valued,
            estimate=math.exp(present.difference) if present else math.nan,
            low=_exp(low),
            high=_exp(high),
            p=verdict.p,
            adjusted_p=verdict.adjusted_p,
            word=word,
            chance=chance,
            step=step,
            replicates=replicates,
            cells=tuple(cell_run.cell.key for cell_run in data.cells),
            ordered=sum(max(0, replicates - cell_run.replicates) for cell_run in data.cells),
            needed=needed,
            family=self._family,
        )

    def _learnt(self, cells: Iterable[CellRun]) -> Learnt:
        """How many of the runs have left the plateau, as far as the runs recorded it."""
        states = [
            state for cell_run in cells for job in cell_run.answers if (state := job.learnt) is not None
        ]
        return Learnt(sum(states), len(states))

    def _cell(self, side: CellSide) -> CellRun:
        return next(run for run in self._cell_runs.values() if side.names(run.cell.values))

    def _data(self, claim: ClaimSpec) -> ClaimData:
        """The data of a claim. Regrets that are unknown, or not above 0, have no ratio: then errors are compared."""
        if not claim.of.startswith("regret"):
            return self._data_of(claim, claim.of)[0]
        data, whole = self._data_of(claim, claim.of)
        return data if whole else self._data_of(claim, claim.of.replace("regret", "error"))[0]

    def _data_of(self, claim: ClaimSpec, of: str) -> tuple[ClaimData, bool]:
        """The data of a claim by one measure, and whether every run has a value above 0."""
        one, other = claim.sides
        first = self._cell(one)
        if isinstance(other, SolverSide):
            return self._with_solver(of, one, first, other)
        second = self._cell(other)
        if first is second:
            return self._with_itself(of, one, other, first)
        logs = self._logs(lambda _, job: job.measure(of))
        for side, cell_run in ((one, first), (other, second)):
            if side.loop:
                logs[self._row(cell_run)] = self._logs_after(cell_run, side.loop, of)[self._row(cell_run)]
        rows = [self._row(cell_run) for cell_run in (first, second)]
        valued = int(np.isfinite(logs[rows]).all(axis=0).sum())
        looks = looks_at(logs, rows[0], rows[1], self.schedule)
        return ClaimData((first, second), looks, False, valued), self._whole(logs, (first, second))

    def _with_solver(
        self, of: str, one: CellSide, cell_run: CellRun, other: SolverSide
    ) -> tuple[ClaimData, bool]:
        steps = other.step or one.loop or _trained_loops(cell_run)
        value = self._solver_value(cell_run, other, of, steps)
        if not (math.isfinite(value) and value > EXACT):
            return ClaimData((cell_run,)), False
        logs = (
            self._logs_after(cell_run, one.loop, of)
            if one.loop
            else self._logs(lambda _, job: job.measure(of))
        )
        row = self._row(cell_run)
        looks = looks_at_value(logs, row, value, self.schedule)
        data = ClaimData((cell_run,), looks, False, int(np.isfinite(logs[row]).sum()))
        return data, self._whole(logs, (cell_run,))

    def _with_itself(
        self, of: str, one: CellSide, other: CellSide, cell_run: CellRun
    ) -> tuple[ClaimData, bool]:
        """One cell after two numbers of loops. The noise is that of all cells after as many times T loops."""
        trained = _trained_loops(cell_run)
        shares = [(side.loop or trained) / trained for side in (one, other)]

        def change(_: CellRun, job: Job) -> float:
            if not isinstance(job.work, Trial) or job.work.model.depth:
                return math.nan
            loops = [max(1, round(share * job.work.steps_per_prompt)) for share in shares]
            after, before = (self._value_after(job, of, loop) for loop in loops)
            return math.inf if math.isnan(after) else after / before

        logs = self._logs(change)
        row = self._row(cell_run)
        if math.inf in logs[row].tolist():
            return ClaimData((cell_run,), None, True, int(np.sum(~np.isnan(logs[row])))), True
        data = ClaimData(
            (cell_run,),
            looks_at_value(logs, row, 1.0, self.schedule),
            False,
            int(np.isfinite(logs[row]).sum()),
        )
        return data, self._whole(logs, (cell_run,))

    def _whole(self, logs: Array, cells: Iterable[CellRun]) -> bool:
        counts = [
            (
                np.isfinite(logs[self._row(cell_run)]).sum(),
                sum(job.seed is not None for job in cell_run.answers),
            )
            for cell_run in cells
        ]
        return all(valued == runs for valued, runs in counts)

    def _row(self, cell_run: CellRun) -> int:
        return self._rows[cell_run.cell.key]

    def _logs(self, value: Callable[[CellRun, Job], float]) -> Array:
        """The logarithm of a value of every run [cells, seeds], NaN where there is none, as in the analysis."""
        answers = {key: cell_run.answers for key, cell_run in self._cell_runs.items()}
        seeds = sorted({job.seed for jobs in answers.values() for job in jobs if job.seed is not None})
        column = {seed: place for place, seed in enumerate(seeds)}
        table = np.full((len(answers), len(seeds)), np.nan)
        for key, jobs in answers.items():
            for job in jobs:
                if job.seed is not None:
                    table[self._rows[key], column[job.seed]] = value(self._cell_runs[key], job)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(table)

    def _logs_after(self, cell_run: CellRun, loop: int, of: str) -> Array:
        """The logarithms of a measure after a number of loops, [cells, seeds], of the cells that run so many loops.

        Up to the T of `cell_run`, these are the cells that were trained for so many loops. Beyond T, they are the cells
        that were evaluated so far.
        """
        beyond = loop > _trained_loops(cell_run)

        def value(other: CellRun, job: Job) -> float:
            if other is not cell_run:
                grids = self._read_curve(job) if beyond else None
                reach = len(grids["error"]) if grids else 0 if beyond else _trained_loops(other)
                if job.role != "replicate" or reach < loop:
                    return math.nan
            return self._value_after(job, of, loop)

        return self._logs(value)

    def _solver_value(self, cell_run: CellRun, side: SolverSide, of: str, step: int) -> float:
        """The measure of a baseline on the task of a cell; NaN if the baseline has no value."""
        task = self.study.tasks()[cell_run.cell.key]
        for job in self._baselines.values():
            assert isinstance(job.work, Baseline)
            same = job.work.task == task and side.names(job.work.solver.model_dump(mode="json"))
            if same and job.outcome == "finished":
                return self._value_after(job, of, step)
        return math.nan

    def _value_after(self, job: Job, of: str, step: int) -> float:
        """A measure of a net or an algorithm after a number of steps, or after its last step if that is earlier."""
        grids = self._read_curve(job)
        grid = grids.get(of.removesuffix("_last")) if grids else None
        if grid is None:
            return math.nan
        values = grid[min(step, len(grid)) - 1]
        known = values[~np.isnan(values)]
        return float(values[-1]) if of.endswith("_last") else float(known.mean()) if len(known) else math.nan


def _trained_loops(cell_run: CellRun) -> int:
    work = next(job.work for job in cell_run.answers) if cell_run.answers else None
    return work.steps_per_prompt if isinstance(work, Trial) else 0


def _can_replicate(cell_run: CellRun) -> bool:
    return bool(cell_run.best) or not cell_run.space


def _shared_seeds(cells: Sequence[CellRun]) -> set[int]:
    """The seeds that have finished in all cells."""
    first, *others = ({job.seed for job in cell_run.answers if job.seed} for cell_run in cells)
    return first.intersection(*others)


def _failed_seeds(cells: Sequence[CellRun]) -> set[int]:
    """The seeds that have ended in a cell without an error."""
    return {
        job.seed
        for cell_run in cells
        for job in cell_run.replicate_jobs
        if job.seed and job.state == "over" and job.outcome != "finished"
    }


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0)) if not math.isnan(value) else math.nan
