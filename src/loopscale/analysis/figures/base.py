"""The figures of a study's report. A figure has a title, a caption and a drawing for each part of a study.

`figures.curves` and its neighbours draw, and hold the members of the family beside their drawings. The report shows all
members, and a notebook shows those of one kind.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

import plotly.graph_objects as go
from typing_extensions import override

from loopscale.analysis.answers.importance import Importance, importance
from loopscale.analysis.answers.pareto import CostBasis, Front, compares_models, fronts
from loopscale.analysis.laws.law import Law
from loopscale.analysis.recorded.results import Results
from loopscale.core.config import Family

MOST_GROUPS = 12
"""The largest number of tasks, and of tuned cells, with figures of their own."""
Part = tuple[str, Any]
"""The number of a part of a study, as text, and the part: a task, an axis, a cell and the like."""


@dataclass(frozen=True)
class Reported:
    """A study with the answers that its figures show."""

    results: Results
    laws: Sequence[Law] = ()

    @cached_property
    def importances(self) -> list[Importance]:
        """The importances of the tuned settings, for each cell."""
        return importance(self.results)

    @cached_property
    def fronts(self) -> list[Front]:
        """The fronts against FLOPs and against seconds, if the study compares kinds of models."""
        if not compares_models(self.results):
            return []
        bases: tuple[CostBasis, ...] = ("flops", "seconds")
        return [front for basis in bases for front in fronts(self.results, basis)[:MOST_GROUPS]]


class Drawing(NamedTuple):
    """A figure of one part of a study."""

    title: str
    text: str
    """The caption, which is also the description for screen readers."""
    figure: go.Figure
    name: str = ""
    """The identifier in the page: letters, digits and hyphens. `report_figures` writes it."""


class Figure(Family, package="loopscale.analysis.figures"):
    """A kind of figure in the report of a study."""

    place: ClassVar[int]
    """The place in a report. Neighbours with the same `parts` take turns: all draw the first part, then the second."""

    def parts(self, study: Reported) -> Iterable[Part]:
        """The parts of a study with a figure each; by default the study itself."""
        return [("", study.results)]

    @abstractmethod
    def draw(self, study: Reported, part: Any) -> Drawing | None:
        """The figure of a part; None if the part has nothing to draw."""


class TaskFigure(Figure):
    """A figure for each task of a study. The part is the end of a title that names the task, and the task's cells."""

    @override
    def parts(self, study: Reported) -> Iterable[Part]:
        tasks = list(study.results.tasks.items())[:MOST_GROUPS]
        return [
            (str(place), (f": {name}" if name else "", cells)) for place, (name, cells) in enumerate(tasks)
        ]


def report_figures(study: Reported) -> Iterator[Drawing]:
    """All figures of a report: first the answers, then the tuning, then the training."""
    kinds = sorted(Figure.choices().values(), key=lambda kind: kind.place)
    for _, neighbours in groupby(kinds, key=lambda kind: kind.parts):
        yield from _of_kinds(study, [kind() for kind in neighbours])


def figures_of_kind(study: Reported, kind: type[Figure]) -> Iterator[Drawing]:
    """The figures of one kind, one for each part of the study that has something to draw."""
    yield from _of_kinds(study, [kind()])


def _of_kinds(study: Reported, kinds: Sequence[Figure]) -> Iterator[Drawing]:
    for number, part in kinds[0].parts(study):
        for kind in kinds:
            if drawn := kind.draw(study, part):
                yield drawn._replace(name=kind.kind.replace("_", "") + number)
