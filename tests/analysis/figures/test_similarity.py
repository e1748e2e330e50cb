"""Figures of nets in training beside the iterates of solvers."""

import numpy as np
import pytest

from loopscale.analysis.figures.base import Reported, report_figures
from loopscale.analysis.figures.similarity import (
    compared_solvers,
    matches_along_training,
    similarity_along_training,
)
from loopscale.analysis.notebook import StudyResults
from loopscale.contracts.planted_study import Planted

STEPS = (100, 200, 400, 1000)


def watched() -> Planted:
    """Two cells of three runs. Run n of a cell matches the iterate (n + 1) · step / 100, and looped nets half of it."""
    planted = Planted()
    for label in ("looped", "gpt2"):
        cell = planted.cell(label, **{"model.kind": label})
        planted.replicated(cell, 0.1)
        for number in range(3):
            for step in STEPS:
                match = (number + 1) * step / 100
                values = {"similarity_newton": 0.9, "match_newton": match}
                values |= {"half_match_newton": match / 2} if label == "looped" else {}
                planted.history += [
                    {"trial": f"replicate-{cell}-{number}", "step": step, "metric": name, "value": value}
                    for name, value in values.items()
                ]
    return planted


def test_the_lines_are_means_over_runs_at_the_steps_of_the_comparison():
    results = watched().results
    assert compared_solvers(results) == ["newton"]
    figure = matches_along_training(results, "newton")
    lines = {trace.name: trace for trace in figure.data if trace.showlegend is not False}
    assert list(lines) == [
        "looped",
        "GPT-2",
        "looped, after half of the loops",
    ]
    for name, factor in (("looped", 2.0), ("GPT-2", 2.0), ("looped, after half of the loops", 1.0)):
        np.testing.assert_allclose(lines[name].x, STEPS)
        np.testing.assert_allclose(lines[name].y, [factor * step / 100 for step in STEPS])
    assert len({line.line.color for line in lines.values()}) == 3
    similar = similarity_along_training(results, "newton")
    assert [trace.name for trace in similar.data if trace.showlegend is not False] == ["looped", "GPT-2"]
    assert {value for trace in similar.data if trace.mode != "none" for value in trace.y} == {0.9}


@pytest.mark.slow
def test_a_report_has_both_figures_for_every_solver_and_none_without_a_comparison():
    names = [figure.name for figure in report_figures(Reported(watched().results))]
    assert {"trainedmatch0", "trainedsimilarity0"} <= set(names)
    plain = Planted()
    plain.replicated(plain.cell("a", **{"model.heads": 1}), 0.1)
    assert compared_solvers(plain.results) == []
    assert not [figure for figure in report_figures(Reported(plain.results)) if "trained" in figure.name]


def test_a_notebook_draws_both_figures_and_says_if_no_net_was_compared():
    study = StudyResults.of(watched().results)
    assert study.along_training("newton").layout.yaxis.title.text.startswith("best-matching iterate")
    assert study.along_training("newton", of="similarity").layout.yaxis.title.text.startswith("similarity")
    with pytest.raises(
        ValueError, match="newtn is no solver that nets were compared with; did you mean newton"
    ):
        study.along_training("newtn")
    planted = Planted()
    planted.replicated(planted.cell("a", **{"model.heads": 1}), 0.1)
    plain = StudyResults.of(planted.results).along_training("newton")
    assert not plain.data
    assert "training.similar_to" in plain.layout.annotations[0].text


def test_a_run_without_a_comparison_is_left_out():
    planted = watched()
    planted.history = [
        row
        for row in planted.history
        if row["metric"] == "error" or not row["trial"].startswith("replicate-cell0-2")
    ]
    figure = matches_along_training(planted.results, "newton")
    line = next(trace for trace in figure.data if trace.name == "looped" and trace.showlegend is not False)
    np.testing.assert_allclose(line.y, [1.5 * step / 100 for step in STEPS])
