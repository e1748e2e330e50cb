"""Figures of matched steps."""

import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.figures.matched import iterative_algorithms, matched_along, matched_by_point
from loopscale.analysis.notebook import StudyResults
from loopscale.contracts.planted_study import Planted


def networks() -> Planted:
    """Nets of 8 and 40 softmax layers on tanh networks of 3 and 6 layers, beside descent that halves its error."""
    planted = Planted(loops=2, points=3, longest=8)
    number = 0
    for layers, depth in ((3, 8), (6, 40)):
        task = {"task.kind": "network_regression", "task.layers": layers, "task.activation": "tanh"}
        net = {"model.kind": "gpt2", "model.layers": 4, "model.attention": "softmax", "training.loops": depth}
        cell = planted.cell(f"layers={layers}", **task | net)
        for seed in range(2):
            key = planted.trial(cell, "replicate", seed, 2.0**-layers, error_last=2.0**-layers)
            loop, point = np.meshgrid(np.arange(1, depth + 1), np.arange(3), indexing="ij")
            planted.curve.append(_rows(key, loop, point, np.full(loop.shape, 2.0**-layers)))
        for kind in ("trained_network", "ridge"):
            solver = {"solver.kind": kind} | task
            key = planted.trial("", "baseline", number, 0.1, label=kind, **solver)
            number += 1
            loop, point = np.meshgrid(np.arange(1, 6), np.arange(3), indexing="ij")
            error = 0.5**loop if kind == "trained_network" else np.full(loop.shape, 0.1)
            planted.curve.append(_rows(key, loop, point, error))
    return planted


def _rows(trial: str, loop: np.ndarray, point: np.ndarray, error: np.ndarray) -> pd.DataFrame:
    columns = {"loop": loop.ravel(), "point": point.ravel(), "error": error.ravel(), "raw": error.ravel()}
    return pd.DataFrame({"trial": trial, "sem": 0.0} | columns)


def test_only_algorithms_whose_error_changes_from_step_to_step_are_offered():
    assert iterative_algorithms(networks().results) == ["trained network"]


def test_a_figure_along_an_axis_has_matched_steps_marks_of_censored_nets_and_the_steps_of_theory():
    line, outside, theory = matched_along(networks().results, "task.layers", "trained network").data
    assert list(line.x) == [3, 6]
    assert list(line.y) == [pytest.approx(3), None], (
        "the net at N = 6 is better than the last recorded step, 5"
    )
    assert (list(outside.x), list(outside.y), outside.marker.symbol) == ([6], [5], "triangle-up-open")
    assert list(outside.hovertext) == ["more than 5"]
    assert list(theory.y) == [2, 10], "four layers for every step"
    assert theory.name.startswith("steps in theory")


def test_a_figure_along_the_pairs_leaves_out_the_query_without_pairs():
    results = networks().results
    traces = matched_by_point(results, results.answered[:1], "trained network").data
    assert list(traces[0].x) == [1, 2]
    assert list(traces[0].y) == pytest.approx([3, 3])


def test_a_notebook_names_the_axes_and_algorithms_that_it_knows():
    study = StudyResults.of(networks().results)
    assert study.matched_steps()["steps_last"].tolist() == ["3", "more than 5"]
    assert len(study.matched_along("task.layers").data) == 3
    assert study.matched_along("point", task=study.task_names()[0]).data
    with pytest.raises(ValueError, match=r"task.width is no numeric axis of planted; .*task.layers"):
        study.matched_along("task.width")
    with pytest.raises(ValueError, match="there is no iterative algorithm 'newton'"):
        study.matched_along("task.layers", "newton")
