"""The laws of a study that looks can judge: one question for each law and each combination of the other settings.

A law is judged if a theory stands beside the law, and if each run is trained for one value of the axis. Laws along
curves, along `flops` and of milestones are therefore no questions: they order no replicates.

`until.values` holds values of an axis in reserve. A law along this axis has two questions: a first one without the
values in reserve, and a second one with them. The results decide whether the second question is asked, so each of the
two is judged at half of the law's level.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loopscale.questions.axes.base import axis_of
from loopscale.questions.runs import CellOfRuns
from loopscale.questions.until import in_reserve, question_hash
from loopscale.stats.fitting import rate_of_course
from loopscale.stats.law_looks import LawLooks, law_looks
from loopscale.stats.looks import LookSchedule
from loopscale.stats.milestones import is_milestone, measure_of
from loopscale.stats.verdict_rule import LEAST_VALUES
from loopscale.studies.axes import AnyCell, HasValues, cells_along, varied_along
from loopscale.studies.held_out import place_of_cell, tests_of_law
from loopscale.theory.prediction import predict


@dataclass(frozen=True)
class LawQuestion:
    """A law that looks judge.

    Attributes
    ----------
    law
        The law as plain data.
    label
        The settings that the cells share, in words.
    places
        The value of each fitted cell on the axis, by the cell's key. Held-out cells are left out.
    identity
        A hash of the law, its cells and the evaluation.
    reserve
        The value of each cell in reserve on the axis, by the cell's key. `places` has these cells in the second
        question of a law only.
    second
        The identity of the law's second question, with the cells in reserve; empty without any.
    """

    law: Mapping[str, Any]
    label: str
    places: Mapping[str, float]
    identity: str
    reserve: Mapping[str, float] = field(default_factory=dict[str, float])
    second: str = ""

    @property
    def text(self) -> str:
        """The measure, the axis, the shared settings and the theory."""
        shared = f" ({self.label})" if self.label else ""
        return f"{self.law['of']} along {self.law['along']}{shared}, {self.law['theory']['kind']}"

    @property
    def x(self) -> tuple[float, ...]:
        """The values of the axis."""
        return tuple(sorted(set(self.places.values())))

    @property
    def with_reserve(self) -> "LawQuestion":
        """The second question of the law, with the values in reserve."""
        return replace(self, places={**self.places, **self.reserve}, identity=self.second)

    def schedule(self, schedule: LookSchedule) -> LookSchedule:
        """The looks at this question. Two questions of one law share its level."""
        return replace(schedule, parts=2 * schedule.parts) if self.reserve else schedule

    def errors(self, cells: Iterable[CellOfRuns]) -> dict[str, list[float]]:
        """The measure of the runs of each fitted cell, in the order of their seeds, by the cell's key."""
        runs = {cell.key: sorted(cell.runs, key=lambda run: run.seed or 0) for cell in cells}
        return {key: [run[self.law["of"]] for run in runs[key]] for key in self.places}

    def course(self, settings: Mapping[str, Any]) -> tuple[float, ...]:
        """The theory's value at each place of the axis, in a trial of these settings. Raises ValueError."""
        return tuple(predict(self.law["theory"], settings, self.law["along"], self.x, self.law["of"]))

    def looks(
        self, errors: Mapping[str, Sequence[float]], course: tuple[float, ...], schedule: LookSchedule
    ) -> LawLooks | None:
        """The looks that the errors allow; None before the first look. Raises ValueError if no form can be fitted.

        A running study and its report judge a law by these looks.
        """
        cells = [(self.places[key], list(values)) for key, values in errors.items()]
        schedule = self.schedule(schedule)
        return law_looks(
            self.law["form"], cells, schedule, lambda fit: rate_of_course(fit.form, self.x, course)
        )


def is_judged(law: Mapping[str, Any]) -> bool:
    """True if looks can judge the law."""
    judged = not axis_of(law["along"]).not_held_out and not is_milestone(measure_of(law))
    return judged and law.get("theory") is not None


def law_questions(
    study: Mapping[str, Any], cells: Sequence[HasValues], shared: Mapping[str, Any]
) -> list[LawQuestion]:
    """The laws of a study as plain data that looks can judge, without values in reserve. Their number corrects their
    level.

    Parameters
    ----------
    shared
        The settings that cells take from outside their values, by dotted path.
    """
    laws = [law for law in study.get("laws") or () if is_judged(law)]
    return [question for law in laws for question in _questions(law, study, cells, shared)]


def _questions(
    law: Mapping[str, Any], study: Mapping[str, Any], cells: Sequence[AnyCell], shared: Mapping[str, Any]
) -> Iterator[LawQuestion]:
    along = law["along"]
    reserved = {cell.key for cell in cells if in_reserve(study.get("until"), cell.values)}
    held_out = list(tests_of_law(law, cells, shared)) if law.get("hold_out") is not None else []
    fitted = {test.label: test.fitted for test in held_out}
    for label, group in cells_along(cells, varied_along(cells, along)).items():
        places = fitted.get(label) or {cell.key: place_of_cell(cell, along, shared) for cell in group}
        places = {key: place for key, place in places.items() if math.isfinite(place)}
        first = {key: place for key, place in places.items() if key not in reserved}
        reserve = {key: place for key, place in places.items() if key in reserved}
        if len(set(first.values())) >= LEAST_VALUES:
            names = [sorted(first), sorted(places)] if reserve else [sorted(first)]
            identities = [question_hash({**law, "cells": keys}, study) for keys in names]
            yield LawQuestion(law, label, first, identities[0], reserve, identities[-1] if reserve else "")
