"""The looks at the laws of a study with `until: decided`. The runner judges by the same functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loopscale.analysis.recorded.looks import decisions_of, schedule_of
from loopscale.analysis.recorded.results import Results
from loopscale.questions.until import family_hash
from loopscale.stats.contrasts import ALPHA
from loopscale.stats.fitting import FormFit
from loopscale.stats.law_looks import LawLooks
from loopscale.stats.verdict_rule import RateVerdict
from loopscale.studies.law_questions import LawQuestion, law_questions


@dataclass(frozen=True)
class LastLook:
    """The last look at a law that the runs allow."""

    fit: FormFit
    alpha: float
    """The level of the interval of this look. The intervals of all looks together cover 95 %."""
    low: float | None
    high: float | None
    """The ends of the interval with the correction for the number of laws."""
    seeds: int
    """The replicates of the look."""
    course: tuple[float, ...]
    """The theory's values on the axis."""
    predicted: float
    """The theory's rate."""
    verdict: RateVerdict
    why_futile: str
    """Empty unless the study gave the law up."""


class LooksAtLaw:
    """The looks at one law of a study, for each combination of the other settings."""

    def __init__(self, results: Results, asked: Mapping[str, Any]) -> None:
        """Find the questions of the law `asked` that looks judge."""
        self._results, self._schedule, questions = results, schedule_of(results), list[LawQuestion]()
        if self._schedule and results.trained:
            questions = law_questions(results.study, results.cells, results.trained[0].settings)
        self._family = len(questions)
        self._questions = {question.label: question for question in questions if question.law == asked}

    def judge(self, label: str) -> bool:
        """True if looks judge the law of the cells that share these settings."""
        return label in self._questions

    @property
    def first(self) -> str:
        """The replicates of the first look, in words."""
        assert self._schedule
        return f"the first look is at {self._schedule.seeds[0]} replicates"

    def last(self, label: str, settings: Mapping[str, Any]) -> LastLook | None:
        """The last look at the cells that share these settings; None before the first look.

        Also None if looks do not judge these cells, if the theory has no value, or if no form can be fitted.
        """
        if label not in self._questions:
            return None
        try:
            return self._last(self._questions[label], settings)
        except ValueError:  # `Course` notes a theory without a value
            return None

    def _last(self, question: LawQuestion, settings: Mapping[str, Any]) -> LastLook | None:
        assert self._schedule
        schedule = question.schedule(self._schedule)
        looks, course = self._looks(question, settings)
        if question.reserve:  # the second question of a law answers as soon as its cells have a look
            second = question.with_reserve
            looks_with_reserve, course_with_reserve = self._looks(second, settings)
            if looks_with_reserve:
                question, looks, course = second, looks_with_reserve, course_with_reserve
        if looks is None:
            return None
        alpha, look = ALPHA / self._family, len(looks.fits) - 1
        low, high = looks.interval(alpha)
        return LastLook(
            looks.fits[-1],
            float(schedule.alphas()[look]),
            low,
            high,
            looks.seeds,
            course,
            looks.predicted[-1],
            looks.verdict(alpha),
            self._why_futile(question),
        )

    def _looks(
        self, question: LawQuestion, settings: Mapping[str, Any]
    ) -> tuple[LawLooks | None, tuple[float, ...]]:
        """The looks that the runs allow, and the theory's values on the axis. Raises ValueError."""
        assert self._schedule
        course = question.course(settings)
        return question.looks(question.errors(self._results.cells), course, self._schedule), course

    def _why_futile(self, question: LawQuestion) -> str:
        factors = {cell.key: cell.steps_factor for cell in self._results.cells}
        factor = max(factors[key] for key in question.places)
        decisions = [
            each
            for each in decisions_of(self._results)
            if each.question == question.identity and each.steps_factor == factor
        ]
        if not decisions or decisions[-1].family != family_hash(self._results.study):
            return ""
        return decisions[-1].why_futile if decisions[-1].step == "futile" else ""
