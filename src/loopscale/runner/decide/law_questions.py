"""What the records of a running study say about its laws, and the verdicts of a look.

The laws are a family of their own, beside the claims (see `stats.law_looks`). A law with cells in reserve has two
questions. The first question orders the cells in reserve if they would decide the law for fewer FLOPs than replicates.
"""

import math
from collections.abc import Collection, Mapping

from loopscale.core.config import leaves
from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.job import Job
from loopscale.runner.decide.live_runs import LiveCell
from loopscale.runner.decide.question import MOST_NEEDED, Judged, learnt
from loopscale.stats.contrasts import ALPHA
from loopscale.stats.law_looks import LawLooks, usable_errors
from loopscale.stats.looks import LookSchedule
from loopscale.studies.law_questions import LawQuestion, law_questions
from loopscale.studies.spec import Study


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
        word = looks.verdict(alpha) if looks else "undecided"
        if not learnt(cells).all:
            word = "not learnt"
        needed, wants_values = math.nan, False
        if looks and word == "undecided":
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
            word=word,
            decided=word in ("agrees", "faster", "slower"),
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
