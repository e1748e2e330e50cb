"""What the records of a running study say about its claims, and the verdicts of a look.

The claims are one family: Holm's correction, or Bonferroni's if a claim has a margin. Only runs that have learnt are
compared. The counts of learnt runs are a family of their own.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loopscale.records.tables import Grid
from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.job import Baseline, Job
from loopscale.runner.decide.question import MOST_NEEDED, Judged, learnt
from loopscale.stats.contrasts import ALPHA, Array, deciding_replicates
from loopscale.stats.learning_chances import (
    PRIOR_COUNT,
    LearningJudgement,
    LearningLooks,
    judge_learning,
    looks_at_learning,
)
from loopscale.stats.looks import ClaimLooks, LookSchedule, Mask, looks_at, looks_at_value
from loopscale.stats.multiplicity import ClaimVerdict, judge_claims
from loopscale.studies.claims import (
    FINAL_WORDS,
    OF_CURVES,
    VERDICTS_OF_LEARNING,
    CellSide,
    ClaimSpec,
    SolverSide,
    Word,
)
from loopscale.studies.spec import Study
from loopscale.studies.until import question_hash
from loopscale.training.trial import Trial

EXACT = 1e-9
"""An algorithm with a smaller error solves the task, so that no ratio to its error exists."""
Pairs = list[tuple[CellRun, ...]]
CurveReader = Callable[[Job], Mapping[str, Grid] | None]
"""Returns the recorded curve of a job by column, [loops, points]; None without a curve."""


@dataclass(frozen=True)
class ClaimData:
    """What the records say about one claim.

    Attributes
    ----------
    cells
        The cells whose runs are compared.
    looks
        The looks that the runs allow; None before the first look.
    overflows
        True if a net overflows after more loops, so that the ratio is infinite.
    valued
        The number of seeds with a value on both sides.
    compared
        The number of these seeds at which all nets have learnt.
    learning
        The counts of learnt runs of both sides. None before the first look, if all have learnt, and without two sides
        of nets.
    """

    cells: tuple[CellRun, ...]
    looks: ClaimLooks | None = None
    overflows: bool = False
    valued: int = 0
    compared: int = 0
    learning: LearningLooks | None = None


class ClaimQuestions:
    """The claims of a study."""

    def __init__(
        self,
        study: Study,
        schedule: LookSchedule,
        cell_runs: Mapping[str, CellRun],
        baselines: Mapping[str, Job],
        read_curve: CurveReader,
    ) -> None:
        self.study, self.schedule, self._cell_runs, self._baselines = study, schedule, cell_runs, baselines
        self._read_curve = read_curve
        self._rows = {key: row for row, key in enumerate(cell_runs)}
        plain = study.model_dump(mode="json")
        self.identities = [question_hash(claim, plain) for claim in plain["claims"]]
        self.texts = [claim.text for claim in study.claims]
        self._pairs = [self._paired(claim) for claim in study.claims]
        """The pairs of cells of each claim. A pair is one cell beside an algorithm, or beside the same cell."""

    def cells(self) -> list[tuple[CellRun, ...]]:
        """The cells that each claim concerns, each once."""
        return [_cells(pairs) for pairs in self._pairs]

    def judge(self) -> list[Judged]:
        """The verdicts on all claims from the present runs."""
        data = [self._data(*each) for each in zip(self.study.claims, self._pairs, strict=True)]
        evidence = [None if each.overflows else each.looks for each in data]
        verdicts = judge_claims(evidence, [claim.rule for claim in self.study.claims])
        learning = judge_learning([each.learning for each in data])
        alphas = self._alpha(verdicts), ALPHA / max(1, sum(each == "undecided" for each in learning))
        return [
            self._judged(number, each, verdict, of_learning, *alphas)
            for number, (each, verdict, of_learning) in enumerate(zip(data, verdicts, learning, strict=True))
        ]

    def _alpha(self, verdicts: Sequence[ClaimVerdict]) -> float:
        """The level at which an open claim is judged next: Holm's, or Bonferroni's if a claim has a margin."""
        left = len(verdicts)
        if all(claim.rule.room is None for claim in self.study.claims):
            left -= sum(verdict.verdict != "undecided" for verdict in verdicts)
        return ALPHA / max(left, 1)

    def _judged(
        self,
        number: int,
        data: ClaimData,
        verdict: ClaimVerdict,
        of_learning: LearningJudgement,
        alpha: float,
        alpha_of_learning: float,
    ) -> Judged:
        claim, looks, learning = self.study.claims[number], data.looks, data.learning
        counted = learnt(data.cells)
        few = looks is None and not counted.all and claim.gated and data.valued >= self.schedule.seeds[0]
        word: Word = "not run"
        if data.overflows:
            word = "does not hold"
        elif looks or few:
            word = claim.word(verdict.verdict if looks else None, of_learning)
        low, high = looks.interval() if looks else (math.nan, math.nan)
        present = looks.contrasts[-1] if looks else None
        chances, needed = [math.nan], [math.nan]
        if looks:
            chances.append(looks.chance(claim.rule, alpha))
        if looks and present and word == "undecided":
            level = 1 - float(looks.schedule.alphas(alpha)[-1])
            seeds = deciding_replicates(present, claim.rule, level, MOST_NEEDED)
            rate = present.seeds / data.valued
            needed.append(len(data.cells) * (math.ceil(seeds / rate) - data.valued) if seeds else math.inf)
        if learning and word in ("undecided", "not learnt"):
            chances.append(learning.chance(alpha_of_learning))
            more = learning.deciding_runs(alpha_of_learning) - learning.runs[-1]
            needed.append(2 * math.ceil(more) if math.isfinite(more) else math.inf)
        ratio_over = looks.is_futile(claim.rule, alpha) if looks else not self._promises_a_ratio(data)
        return Judged(
            identity=self.identities[number],
            kind="claim",
            text=claim.text,
            cells=data.cells,
            valued=data.valued,
            looked=looks is not None or few,
            word=word,
            # Learnt runs may still decide the ratio after the counts of learnt runs are decided.
            decided=word in FINAL_WORDS and (word not in VERDICTS_OF_LEARNING.values() or ratio_over),
            futile=ratio_over and (not learning or learning.is_futile(alpha_of_learning)),
            falling=counted.mostly_unfinished,
            chance=float(np.fmax.reduce(chances)),
            estimate=math.exp(present.difference) if present else math.nan,
            low=_exp(low),
            high=_exp(high),
            p=verdict.p,
            adjusted_p=verdict.adjusted_p,
            needed=float(np.fmin.reduce(needed)),
            learnt="" if counted.all or not claim.gated else self._learnt_words(number),
        )

    def _promises_a_ratio(self, data: ClaimData) -> bool:
        """True if a net of each side has learnt at a seed, and the most replicates will probably give a ratio."""
        share = (data.compared + PRIOR_COUNT) / (data.valued + 2 * PRIOR_COUNT)
        return data.compared > 0 and share * self.schedule.seeds[-1] >= self.schedule.seeds[0]

    def _learnt_words(self, number: int) -> str:
        """The learnt runs of each side, as in `5 of 6 and 6 of 6`."""
        counts = [learnt(dict.fromkeys(side)) for side in zip(*self._pairs[number], strict=True)]
        return " and ".join(f"{count.emerged} of {count.of}" for count in counts if count.of)

    def _paired(self, claim: ClaimSpec) -> Pairs:
        pairs = claim.pairs([run.cell for run in self._cell_runs.values()])
        keys = [dict.fromkeys(cell.key for cell in pair) for pair in pairs]
        return [tuple(self._cell_runs[key] for key in of_pair) for of_pair in keys]

    def _data(self, claim: ClaimSpec, pairs: Pairs) -> ClaimData:
        """The data of a claim. Regrets that are unknown, or not above 0, have no ratio: then errors are compared."""
        if not claim.of.startswith("regret"):
            return self._data_of(claim, pairs, claim.of)[0]
        data, whole = self._data_of(claim, pairs, claim.of)
        return data if whole else self._data_of(claim, pairs, claim.of.replace("regret", "error"))[0]

    def _data_of(self, claim: ClaimSpec, pairs: Pairs, of: str) -> tuple[ClaimData, bool]:
        """The data of a claim by one measure, and whether every run has a value above 0."""
        one, other = claim.sides
        if isinstance(other, SolverSide):
            return self._with_solver(claim, of, one, pairs, other)
        if len(pairs[0]) == 1:
            return self._with_itself(claim, of, one, other, pairs)
        logs = self._logs(lambda _, job: job.measure(of))
        for side, cell_runs in zip((one, other), zip(*pairs, strict=True), strict=True):
            for cell_run in cell_runs if side.loop else ():
                logs[self._row(cell_run)] = self._logs_after(cell_run, side.loop or 0, of)[
                    self._row(cell_run)
                ]
        firsts, others = (
            [self._row(cell_run) for cell_run in of_side] for of_side in zip(*pairs, strict=True)
        )
        comparable, table = self._comparable(claim), self._values(_learnt_number)
        learning = looks_at_learning(table[firsts], table[others], self.schedule)
        looks = looks_at(logs, firsts, others, self.schedule, comparable)
        return self._compared(pairs, logs, looks, comparable, learning)

    def _comparable(self, claim: ClaimSpec) -> Mask | None:
        """False for runs that have not learnt [cells, seeds]. None for a milestone, which counts these runs too."""
        return self._values(_learnt_number) != 0 if claim.gated else None

    def _compared(
        self,
        pairs: Pairs,
        logs: Array,
        looks: ClaimLooks | None,
        comparable: Mask | None,
        learning: LearningLooks | None = None,
    ) -> tuple[ClaimData, bool]:
        """The data of a claim with these looks, and whether every compared run has a value above 0."""
        cells = _cells(pairs)
        rows = [self._row(cell_run) for cell_run in cells]
        valued = np.isfinite(logs[rows]).all(axis=0)
        compared = valued if comparable is None else valued & comparable[rows].all(axis=0)
        data = ClaimData(cells, looks, False, int(valued.sum()), int(compared.sum()), learning)
        return data, self._whole(logs, cells, comparable)

    def _with_solver(
        self, claim: ClaimSpec, of: str, one: CellSide, pairs: Pairs, other: SolverSide
    ) -> tuple[ClaimData, bool]:
        logs, values = self._logs(lambda _, job: job.measure(of)), list[float]()
        for (cell_run,) in pairs:
            steps = other.step or one.loop or _trained_loops(cell_run)
            values.append(self._solver_value(cell_run, other, of, steps))
            if one.loop:
                logs[self._row(cell_run)] = self._logs_after(cell_run, one.loop, of)[self._row(cell_run)]
        if not all(math.isfinite(value) and value > EXACT for value in values):
            return ClaimData(_cells(pairs)), False
        rows = [self._row(cell_run) for (cell_run,) in pairs]
        comparable = self._comparable(claim)
        looks = looks_at_value(logs, rows, values, self.schedule, comparable)
        return self._compared(pairs, logs, looks, comparable)

    def _with_itself(
        self, claim: ClaimSpec, of: str, one: CellSide, other: CellSide, pairs: Pairs
    ) -> tuple[ClaimData, bool]:
        """Cells after two numbers of loops. The noise is that of all cells after as many times T loops."""
        of_claim = {cell_run.cell.key: _trained_loops(cell_run) for (cell_run,) in pairs}
        usual = next(iter(of_claim.values()))

        def change(cell_run: CellRun, job: Job) -> float:
            if not isinstance(job.work, Trial) or job.work.model.depth:
                return math.nan
            trained = of_claim.get(cell_run.cell.key, usual)
            shares = [(side.loop or trained) / trained for side in (one, other)]
            loops = [max(1, round(share * job.work.steps_per_prompt)) for share in shares]
            after, before = (self._value_after(job, of, loop) for loop in loops)
            return math.inf if math.isnan(after) else after / before

        logs = self._logs(change)
        rows = [self._row(cell_run) for (cell_run,) in pairs]
        comparable = self._comparable(claim)
        of_learnt = logs if comparable is None else np.where(comparable, logs, np.nan)
        if np.isposinf(of_learnt[rows]).any():
            valued = (~np.isnan(logs[rows])).all(axis=0).sum()
            return ClaimData(_cells(pairs), None, True, int(valued)), True
        looks = looks_at_value(logs, rows, [1.0] * len(rows), self.schedule, comparable)
        return self._compared(pairs, logs, looks, comparable)

    def _whole(self, logs: Array, cells: Iterable[CellRun], comparable: Mask | None) -> bool:
        """Whether every run has a value. If some runs have learnt, only these count."""
        asked = [(cell_run, job) for cell_run in cells for job in cell_run.answers if job.seed is not None]
        compared = [each for each in asked if comparable is None or each[1].learnt is not False] or asked
        counts = Counter(cell_run.cell.key for cell_run, _ in compared)
        table = logs if comparable is None or compared is asked else np.where(comparable, logs, np.nan)
        return all(
            np.isfinite(table[self._row(cell_run)]).sum() == counts[cell_run.cell.key] for cell_run in cells
        )

    def _row(self, cell_run: CellRun) -> int:
        return self._rows[cell_run.cell.key]

    def _logs(self, value: Callable[[CellRun, Job], float]) -> Array:
        """The logarithm of a value of every run [cells, seeds], as in the analysis. NaN marks a missing value."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(self._values(value))

    def _values(self, value: Callable[[CellRun, Job], float]) -> Array:
        """A value of every run [cells, seeds]. NaN marks a missing value."""
        answers = {key: cell_run.answers for key, cell_run in self._cell_runs.items()}
        seeds = sorted({job.seed for jobs in answers.values() for job in jobs if job.seed is not None})
        column = {seed: place for place, seed in enumerate(seeds)}
        table = np.full((len(answers), len(seeds)), np.nan)
        for key, jobs in answers.items():
            for job in jobs:
                if job.seed is not None:
                    table[self._rows[key], column[job.seed]] = value(self._cell_runs[key], job)
        return table

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
        if of not in OF_CURVES:  # acting has no curve
            return job.measure(of)
        grids = self._read_curve(job)
        grid = grids.get(of.removesuffix("_last")) if grids else None
        if grid is None:
            return math.nan
        values = grid[min(step, len(grid)) - 1]
        known = values[~np.isnan(values)]
        return float(values[-1]) if of.endswith("_last") else float(known.mean()) if len(known) else math.nan


def _learnt_number(_: CellRun, job: Job) -> float:
    """1 for a run that has learnt, 0 for one that has not; NaN if the records do not say."""
    return math.nan if job.learnt is None else float(job.learnt)


def _cells(pairs: Pairs) -> tuple[CellRun, ...]:
    return tuple(cell_run for pair in pairs for cell_run in pair)


def _trained_loops(cell_run: CellRun) -> int:
    work = next(job.work for job in cell_run.answers) if cell_run.answers else None
    return work.steps_per_prompt if isinstance(work, Trial) else 0


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0)) if not math.isnan(value) else math.nan
