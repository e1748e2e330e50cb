"""The contract of the figures of the package (`loopscale.contracts.figures`)."""

from pathlib import Path

import pytest

from loopscale.analysis.figures.base import Figure, report_figures
from loopscale.analysis.figures.panels import shows_values
from loopscale.analysis.notebook import StudyResults, results
from loopscale.contracts.figures import *  # noqa: F403
from loopscale.contracts.figures import drawn, planted

DRAWN_ELSEWHERE = {"front", "importance"}
"""Fronts need the prices of a plan, and importances many trials: see test_pareto.py and test_tuning.py."""


@pytest.mark.parametrize("kind", sorted(Figure.choices().keys() - DRAWN_ELSEWHERE))
def test_every_kind_shows_values_of_a_study_with_every_answer(kind: str):
    assert any(shows_values(each.figure) for each in drawn(Figure.choices()[kind]))


def test_kinds_of_one_part_take_turns_in_a_report():
    names = [each.name for each in report_figures(planted()[0])]
    assert len(set(names)) == len(names)
    of_tasks = ["regret", "pointsregret", "loops", "points", "rounds", "runs"]
    assert names[:12] == [f"{name}{task}" for task in (0, 1) for name in of_tasks]
    assert names[-3:] == ["trainedmatch0", "trainedsimilarity0", "emergence"]


def test_a_notebook_has_the_figures_of_a_kind_by_title():
    study = StudyResults.of(planted()[0].results)
    assert list(study.figures("tuning")) == ["Tuning: training.lr", "Tuning: model.width"]
    with pytest.raises(ValueError, match="there is no figure 'tunin'; did you mean tuning"):
        study.figures("tunin")


def test_sentences_have_no_figure_along_the_pairs_of_a_prompt():
    """A sentence asks one query, so nothing varies along the pairs."""
    exported = Path(__file__).parents[2] / "notebooks/data/translation_reduced_german_english"
    study = results("translation/reduced/german_english", exported)
    assert study.figures("points") == study.figures("points_regret") == {}
    assert study.figures("loops")
