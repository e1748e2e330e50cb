"""What a look says about the questions of a running study: its claims and its laws.

`loopscale.questions` gives the evidence and the verdict of a claim, as in the reports. Here is what only a look needs:
whether a claim is over, the chance of a verdict, and the runs that a verdict would take.

The laws are a family of their own, beside the claims (see `stats.law_looks`). A law with cells in reserve has two
questions. The first question orders the cells in reserve if they would decide the law for fewer FLOPs than replicates.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loopscale.core.config import leaves
from loopscale.questions.claim import FINAL_VERDICTS, VERDICTS_OF_LEARNING, ClaimSpec
from loopscale.questions.claim_evidence import Sides, compare_sides
from loopscale.questions.claim_verdict import ClaimJudgement, judge
from loopscale.questions.until import question_hash
from loopscale.records.decisions import Kind
from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.job import Job
from loopscale.runner.decide.live_runs import LiveCell, LiveRuns
from loopscale.stats.contrasts import ALPHA, deciding_replicates
from loopscale.stats.law_looks import LawLooks, usable_errors
from loopscale.stats.learning import Learnt
from loopscale.stats.learning_chances import PRIOR_COUNT
from loopscale.stats.looks import LookSchedule
from loopscale.studies.law_questions import LawQuestion, law_questions
from loopscale.studies.spec import Study

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
        True if the verdict ends the question.
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
    verdict: str
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


class ClaimQuestions:
    """The claims of a study."""

    def __init__(
        self,
        study: Study,
        schedule: LookSchedule,
        cell_runs: Mapping[str, CellRun],
        present_runs: Callable[[], LiveRuns],
    ) -> None:
        self.study, self.schedule, self._cell_runs, self._present_runs = (
            study,
            schedule,
            cell_runs,
            present_runs,
        )
        plain = study.model_dump(mode="json")
        self.identities = [question_hash(claim, plain) for claim in plain["claims"]]
        self.texts = [claim.text for claim in study.claims]
        self._cells = [self._cells_of(claim) for claim in study.claims]
        """The cells of each claim. The same cell after two numbers of loops stands here once."""

    def cells(self) -> list[tuple[CellRun, ...]]:
        """The cells that each claim concerns, each once."""
        return self._cells

    def judge(self) -> list[Judged]:
        """The verdicts on all claims from the present runs."""
        claims, runs = self.study.claims, self._present_runs()
        sides = [compare_sides(runs, claim) for claim in claims]
        judgements = judge(claims, sides)
        alphas = (
            self._alpha(judgements),
            ALPHA / max(1, sum(each.of_learning == "undecided" for each in judgements)),
        )
        return [
            self._judged(number, data, judgement, *alphas)
            for number, (data, judgement) in enumerate(zip(sides, judgements, strict=True))
        ]

    def _alpha(self, judgements: Sequence[ClaimJudgement]) -> float:
        """The level at which an open claim is judged next: Holm's, or Bonferroni's if a claim has a margin."""
        left = len(judgements)
        if all(claim.rule.room is None for claim in self.study.claims):
            left -= sum(judgement.of_ratio != "undecided" for judgement in judgements)
        return ALPHA / max(left, 1)

    def _judged(
        self,
        number: int,
        sides: Sides[LiveCell],
        judgement: ClaimJudgement,
        alpha: float,
        alpha_of_learning: float,
    ) -> Judged:
        claim, looks, learning = self.study.claims[number], sides.looks, sides.learning
        cells, verdict = self._cells[number], judgement.verdict
        counted = learnt(cells)
        low, high = looks.interval() if looks else (math.nan, math.nan)
        present = looks.contrasts[-1] if looks else None
        chances, needed = [math.nan], [math.nan]
        if looks:
            chances.append(looks.chance(claim.rule, alpha))
        if looks and present and verdict == "undecided":
            level = 1 - float(looks.schedule.alphas(alpha)[-1])
            seeds = deciding_replicates(present, claim.rule, level, MOST_NEEDED)
            rate = present.seeds / sides.valued
            needed.append(len(cells) * (math.ceil(seeds / rate) - sides.valued) if seeds else math.inf)
        if learning and verdict in ("undecided", "not learnt"):
            chances.append(learning.chance(alpha_of_learning))
            more = learning.deciding_runs(alpha_of_learning) - learning.runs[-1]
            needed.append(2 * math.ceil(more) if math.isfinite(more) else math.inf)
        ratio_over = looks.is_futile(claim.rule, alpha) if looks else not self._promises_a_ratio(sides)
        return Judged(
            identity=self.identities[number],
            kind="claim",
            text=claim.text,
            cells=cells,
            valued=sides.valued,
            looked=looks is not None or sides.blocked,
            verdict=verdict,
            # Learnt runs may still decide the ratio after the counts of learnt runs are decided.
            decided=verdict in FINAL_VERDICTS
            and (verdict not in VERDICTS_OF_LEARNING.values() or ratio_over),
            futile=ratio_over and (not learning or learning.is_futile(alpha_of_learning)),
            falling=counted.mostly_unfinished,
            chance=float(np.fmax.reduce(chances)),
            estimate=math.exp(present.difference) if present else math.nan,
            low=_exp(low),
            high=_exp(high),
            p=judgement.p,
            adjusted_p=judgement.adjusted_p,
            needed=float(np.fmin.reduce(needed)),
            learnt="" if counted.all or not claim.gated else sides.learnt_words,
        )

    def _promises_a_ratio(self, sides: Sides[LiveCell]) -> bool:
        """True if a net of each side has learnt at a seed, and the most replicates will probably give a ratio."""
        share = (sides.compared + PRIOR_COUNT) / (sides.valued + 2 * PRIOR_COUNT)
        return sides.compared > 0 and share * self.schedule.seeds[-1] >= self.schedule.seeds[0]

    def _cells_of(self, claim: ClaimSpec) -> tuple[CellRun, ...]:
        pairs = claim.pairs([run.cell for run in self._cell_runs.values()])
        keys = [key for pair in pairs for key in dict.fromkeys(cell.key for cell in pair)]
        return tuple(self._cell_runs[key] for key in keys)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0)) if not math.isnan(value) else math.nan


class LawQuestions:
    """The laws of a study that looks can judge."""

    def __init__(self, study: Study, schedule: LookSchedule, cell_runs: Mapping[str, CellRun]) -> None:
        self.study, self.schedule, self._cell_runs = study, schedule, cell_runs
        first = law_questions(study.model_dump(mode="json"), study.cells(), study.layout.shared_settings)
        self.family = len(first)
        """The number of laws, which corrects their level."""
        self.second = {question.identity: question.with_reserve for question in first if question.reserve}
        """The second question of each law with cells in reserve, by the identity of the first one."""
        self.questions = [*first, *self.second.values()]
        self.identities = [question.identity for question in self.questions]
        self.texts = [question.text for question in self.questions]

    def cells(self) -> list[tuple[CellRun, ...]]:
        """The cells that each law concerns."""
        return [tuple(self._cell_runs[key] for key in question.places) for question in self.questions]

    def judge(self) -> list[Judged]:
        """The verdicts on all laws from the present runs."""
        return [self._judged(question, ALPHA / self.family) for question in self.questions]

    def _judged(self, question: LawQuestion, alpha: float) -> Judged:
        cells = tuple(self._cell_runs[key] for key in question.places)
        errors = question.errors(LiveCell(cell, index, _no_curve) for index, cell in enumerate(cells))
        looks = self._looks(question, errors)
        verdict = looks.verdict(alpha) if looks else "undecided"
        if not learnt(cells).all:
            verdict = "not learnt"
        needed, wants_values = math.nan, False
        if looks and verdict == "undecided":
            seeds = looks.deciding_replicates(alpha, MOST_NEEDED)
            needed = len(cells) * (seeds - looks.seeds) if seeds else math.inf
            if question.identity in self.second:
                wants_values = self._flops_with_reserve(question, looks, alpha) < self._flops(
                    question.places, seeds if seeds and seeds <= self.schedule.seeds[-1] else None
                )
        low, high = looks.interval() if looks else (None, None)
        return Judged(
            identity=question.identity,
            kind="law",
            text=question.text,
            cells=cells,
            valued=min(len(usable_errors(values)) for values in errors.values()),
            looked=looks is not None,
            verdict=verdict,
            decided=verdict in ("agrees", "faster", "slower"),
            futile=bool(looks and looks.is_futile(alpha)),
            falling=learnt(cells).mostly_falling,
            chance=looks.chance(alpha) if looks else math.nan,
            estimate=looks.fits[-1].rate if looks else math.nan,
            low=math.nan if low is None else low,
            high=math.nan if high is None else high,
            p=math.nan,
            adjusted_p=math.nan,
            needed=needed,
            wants_values=wants_values,
        )

    def _flops_with_reserve(self, question: LawQuestion, looks: LawLooks, alpha: float) -> float:
        """The training FLOPs of a verdict with the cells in reserve; infinite if no look would give one."""
        seeds = looks.replicates_with_values(alpha, sorted(set(question.reserve.values())))
        return self._flops({**question.places, **question.reserve}, seeds)

    def _flops(self, keys: Collection[str], seeds: int | None) -> float:
        """The training FLOPs of the missing trials, if every cell gets so many replicates; infinite for None."""
        if seeds is None:
            return math.inf
        runs = [self._cell_runs[key] for key in keys]
        return sum(
            run.unpruned_flops * (max(0, seeds - len(run.answers)) + run.tuning_trials * run.in_reserve)
            for run in runs
        )

    def course(self, question: LawQuestion) -> tuple[float, ...]:
        """The theory's value at each place of the axis. Raises ValueError."""
        cell = next(iter(question.places))
        task = self.study.task(cell).model_dump(mode="json")
        settings = dict(leaves(self.study.layout.trials[cell].settings | {"task": task}))
        return question.course(settings)

    def _looks(self, question: LawQuestion, errors: Mapping[str, list[float]]) -> LawLooks | None:
        """None before the first look, and if the theory or the fit has no rate."""
        try:
            return question.looks(errors, self.course(question), self.schedule)
        except ValueError:
            return None


def _no_curve(_: Job) -> None:
    """Laws along curves are no questions, so no curve is read."""
