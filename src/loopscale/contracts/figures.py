"""The contract of every figure of a report. A new file in `loopscale/analysis/figures` is tested here."""

import json
import re
from functools import cache
from typing import Any

import plotly.graph_objects as go
import pytest

from loopscale.analysis.figures.base import Drawing, Figure, Reported, figures_of_kind
from loopscale.analysis.figures.panels import finished
from loopscale.analysis.laws.law import study_laws
from loopscale.contracts.members import under_test
from loopscale.contracts.planted_study import MARKED, Planted, with_every_answer, with_two_objectives

BASIC_TRACES = {"scatter", "bar", "pie"}
"""The traces of plotly's basic bundle, which a report carries."""
EVERY_FIGURE = pytest.mark.parametrize("kind", under_test(Figure).values(), ids=lambda kind: kind.kind)


@cache
def planted() -> list[Reported]:
    studies = [with_every_answer(), with_two_objectives()]
    return [Reported(study.results, study_laws(study.results)[0]) for study in studies]


@cache
def drawn(kind: type[Figure]) -> list[Drawing]:
    return [drawing for study in planted() for drawing in figures_of_kind(study, kind)]


@EVERY_FIGURE
def test_the_place_in_a_report_is_that_of_no_other_figure(kind: type[Figure]):
    assert isinstance(kind.place, int)
    assert [each.kind for each in Figure.choices().values() if each.place == kind.place] == [kind.kind]


@EVERY_FIGURE
def test_a_figure_has_a_title_and_a_caption_of_whole_sentences(kind: type[Figure]):
    for each in drawn(kind):
        assert re.fullmatch(r"\S.*[^.\s]", each.title)
        assert re.fullmatch(r"[A-Z].*\.", each.text)


@EVERY_FIGURE
def test_figures_have_identifiers_of_their_own(kind: type[Figure]):
    for study in planted():
        names = [each.name for each in figures_of_kind(study, kind)]
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", name) for name in names)


@EVERY_FIGURE
def test_the_page_can_draw_every_trace(kind: type[Figure]):
    for each in drawn(kind):
        traces = finished(go.Figure(each.figure)).to_dict()["data"]
        assert {trace["type"] for trace in traces} <= BASIC_TRACES


@EVERY_FIGURE
def test_equal_records_give_equal_figures_and_stay_as_they_are(kind: type[Figure]):
    for study in planted():
        tables = study.results.trials, study.results.curves, study.results.history
        before = [table.copy() for table in tables]
        first, second = (list(figures_of_kind(study, kind)) for _ in range(2))
        assert [each._replace(figure=each.figure.to_json()) for each in first] == [
            each._replace(figure=each.figure.to_json()) for each in second
        ]
        assert all(old.equals(new) for old, new in zip(before, tables, strict=True))


@EVERY_FIGURE
def test_names_from_a_study_are_shown_as_text_and_not_as_markup(kind: type[Figure]):
    for each in drawn(kind):
        shown = json.loads(each.figure.to_json() or "", object_hook=_without_groups)
        assert MARKED not in json.dumps(shown), "pass names through figures.style.safe"


def _without_groups(options: dict[str, Any]) -> dict[str, Any]:
    """A trace without its legend group, which nobody sees."""
    return {name: value for name, value in options.items() if name != "legendgroup"}


@EVERY_FIGURE
@pytest.mark.parametrize("finished_trials", [False, True])
def test_a_study_that_has_just_begun_gives_no_error(kind: type[Figure], finished_trials: bool):
    begun = Planted()
    cell = begun.cell("a", **{"training.loops": 2.0})
    if finished_trials:
        begun.trial(cell, "tuning", 0, 0.5)
    else:
        begun.trial(cell, "tuning", 0, float("nan"), outcome="running")
    for each in figures_of_kind(Reported(begun.results), kind):
        finished(each.figure)
