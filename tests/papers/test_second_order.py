"""A study's nets beside solvers: from the records to the sentences, and figures of made-up similarities."""

import functools
import operator
from pathlib import Path

import numpy as np
import pytest

from loopscale.analysis.notebook import StudyResults, results
from loopscale.analysis.trained_nets import TrainedNet
from loopscale.contracts.planted_study import Planted
from loopscale.core.seeds import stream
from loopscale.papers import second_order
from loopscale.papers.second_order import NetSimilarity, StepErrors
from loopscale.solvers.regression import Newton
from loopscale.studies.spec import Study
from loopscale.tasks.base import Task

SOLVERS = [("newton", 8), ({"kind": "gradient_descent", "rate": "safe"}, 40), ("conjugate_gradient", 5)]
STUDIES = Path(__file__).parents[2] / "studies"
CLASSICAL = pytest.mark.parametrize("of", ["errors", "weights"])


class Untrained(StudyResults):
    """A study whose nets have their random first weights. A comparison needs no training."""

    def nets(self, cell: str = ""):
        study = Study.load(STUDIES / "second_order" / "reduced" / "isotropic.yaml")
        of_study = next(each for each in study.cells() if each.key == cell)
        for seed in (1, 2):
            trial = study.at(of_study, {}, seed)
            yield TrainedNet(trial, trial.net())


@pytest.fixture(scope="module")
def untrained() -> StudyResults:
    study = Study.load(STUDIES / "second_order" / "reduced" / "isotropic.yaml")
    return Untrained(study.document(), *Planted().tables)


def planted(growth: dict[str, list[list[int]]], iterates: int = 80) -> list[NetSimilarity]:
    """Similarities that peak at planted matches; `growth` has the matches of every replicate by solver."""
    places = np.arange(1, iterates + 1)
    return [
        NetSimilarity(
            "net", number, solver, np.exp(-np.square(np.log(places / np.array(matches)[:, None])) / 8)
        )
        for solver, replicates in growth.items()
        for number, matches in enumerate(replicates, 1)
    ]


PAPER = {
    "newton": [[2, 5, 8, 11, 14, 17], [3, 6, 9, 13, 15, 18]],
    "gradient descent": [[2, 4, 8, 16, 32, 64], [2, 4, 9, 17, 33, 62]],
}


@CLASSICAL
def test_every_step_of_every_net_is_compared_with_every_iterate(untrained: StudyResults, of: str):
    similar = second_order.similarities(untrained, SOLVERS, of, prompts=32)
    depths = {"gpt2": 6, "looped": 8, "lstm": 4}
    iterates = {"newton": 8, "gradient descent": 40, "conjugate gradient": 5}
    shapes = {(row.cell, row.replicate, row.solver): row.values.shape for row in similar}
    assert shapes == {
        (cell, replicate, solver): (depth, count)
        for cell, depth in depths.items()
        for replicate in (1, 2)
        for solver, count in iterates.items()
    }
    assert max(np.abs(row.values).max() for row in similar) <= 1 + 1e-9
    sizes = [row.values.size for row in similar if (row.cell, row.solver) == ("gpt2", "gradient descent")]
    assert sum(sizes) == 2 * 6 * 40
    trends = second_order.trends(similar)
    assert [(row.cell, row.solver) for row in trends] == [
        (net, solver) for net in depths for solver in iterates
    ]


def test_a_solver_has_its_own_errors_and_a_probed_net_is_no_worse_than_nothing(untrained: StudyResults):
    errors = second_order.step_errors(untrained, SOLVERS, prompts=256)
    task = Task.model_validate({"kind": "linear_regression", "dim": 4, "points": 10})
    batch = task.sample(256, stream("second order"))
    wanted = task.error(Newton().predict(batch, 8), batch).mean((1, 2))
    (newton,) = [row for row in errors if row.name == "newton"]
    np.testing.assert_allclose(newton.errors, wanted, rtol=1e-6)
    assert all((row.errors < 1.2).all() for row in errors if row.name in ("gpt2", "lstm"))
    gains = second_order.gains(errors)
    assert [gain.cell for gain in gains] == ["gpt2", "looped", "lstm"]
    assert all(gain.interval and gain.interval.low <= gain.factor for gain in gains)
    assert "no gain is decided" in repr(second_order.gain_sentences(gains))


def test_the_states_of_untrained_nets_hold_little_of_the_weights(untrained: StudyResults):
    errors = second_order.state_errors(untrained, prompts=256)
    assert {row.name: len(row.errors) for row in errors} == {"gpt2": 6, "looped": 8, "lstm": 4}
    assert all((row.errors > 0.5).all() for row in errors)


def test_planted_growth_as_in_the_paper_is_of_second_order():
    trends = second_order.trends(planted(PAPER))
    newton, descent = trends
    assert [row.trend.kind for row in trends] == ["linear", "exponential"]
    assert newton.rate == pytest.approx(3, abs=0.2)
    assert descent.rate == pytest.approx(2, abs=0.1)
    assert all(row.interval.low < row.rate for row in trends)
    sentences = second_order.trend_sentences(trends)
    assert sentences[0].startswith("net against newton: the best match grows along a line, by 3")
    assert "grows 2" in sentences[1]
    assert "-fold per step" in sentences[1]
    assert second_order.second_order_sentences(trends)[0].startswith("net: of second order")
    assert "newton 1.000" in second_order.similarity_sentences(trends)[0]


def test_matches_that_stay_or_jump_are_not_of_second_order():
    same = {"newton": [[4] * 6, [4] * 6], "gradient descent": [[2, 30, 1, 50, 2, 9], [70, 1, 40, 3, 20, 2]]}
    trends = second_order.trends(planted(same))
    assert [row.trend.kind for row in trends] == ["none", "none"]
    assert second_order.second_order_sentences(trends)[0].startswith("net: not of second order")
    assert "no trend" in second_order.trend_sentences(trends)[0]


def test_a_rate_whose_interval_contains_0_decides_nothing():
    late = {  # one replicate that has not begun to learn, beside two that grow as in the paper
        "newton": [*PAPER["newton"], [6, 6, 5, 5, 4, 4]],
        "gradient descent": [*PAPER["gradient descent"], [70, 66, 60, 62, 58, 55]],
    }
    trends = second_order.trends(planted(late))
    assert [row.trend.kind for row in trends] == ["undecided", "undecided"]
    assert {row.trend.why for row in trends} == {"the interval of the rate over replicates contains 0"}
    verdict = second_order.second_order_sentences(trends)[0]
    assert verdict.startswith("net: undecided whether of second order")
    assert "undecided, because the interval of the rate" in second_order.trend_sentences(trends)[0]
    alone = second_order.second_order_sentences(second_order.trends(planted({"newton": [[4] * 6, [4] * 6]})))
    assert alone[0].startswith("net: undecided"), "gradient descent was not compared"


@pytest.mark.parametrize(("solver", "axis"), [("newton", "linear"), ("gradient descent", "log")])
def test_a_trend_is_straight_on_the_axis_of_its_solver(solver: str, axis: str):
    figure = second_order.best_matches_figure(planted(PAPER), solver)
    assert figure.layout.yaxis.type == axis
    (chosen,) = [trace for trace in figure.data if "chosen" in trace.name]
    heights = np.array(chosen.y, dtype=float)
    steps = np.diff(heights if axis == "linear" else np.log(heights))
    np.testing.assert_allclose(steps, steps.mean(), rtol=0.05)


def test_the_figures_show_the_analysed_values():
    similar = planted(PAPER)
    heat = second_order.heat_maps(similar)
    maps = [trace for trace in heat.data if trace.type == "heatmap"]
    rings = [trace for trace in heat.data if trace.type == "scatter"]
    assert len(maps) == len(rings) == 2
    assert len(maps[0].x) <= second_order.MOST_COLUMNS
    assert list(rings[1].y) == [1, 2, 3, 4, 5, 6]
    figure = second_order.best_matches_figure(similar, "newton")
    names = [trace.name for trace in figure.data]
    assert len(names) == 3
    assert any("chosen" in name and "a step (" in name for name in names)
    assert list(figure.data[0].y) == functools.reduce(operator.iadd, PAPER["newton"], [])
    errors = [StepErrors("net", number, np.array([0.5, 0.25, 0.125])) for number in (1, 2)]
    errors.append(StepErrors("newton", 0, np.array([0.3])))
    names = {trace.name for trace in second_order.error_by_step(errors).data}
    assert {"net", "newton"} <= names


def test_a_study_without_records_gives_empty_results_and_figures_that_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    study = results(str(STUDIES / "second_order" / "reduced" / "conditioned.yaml"))
    assert "loopscale run" in study.missing
    similar = second_order.similarities(study, SOLVERS)
    errors = second_order.step_errors(study, SOLVERS)
    trends, gains = second_order.trends(similar), second_order.gains(errors)
    assert (trends, gains) == ([], [])
    for figure in (
        second_order.heat_maps(similar),
        second_order.best_matches_figure(similar, "newton"),
        second_order.error_by_step(errors),
    ):
        assert not figure.data
        assert "No net" in figure.layout.annotations[0].text
    for sentences in (
        second_order.trend_sentences(trends),
        second_order.second_order_sentences(trends),
        second_order.similarity_sentences(trends),
        second_order.gain_sentences(gains),
    ):
        assert sentences == (second_order.NO_NET,)


def test_an_unknown_similarity_is_an_error(untrained: StudyResults):
    with pytest.raises(ValueError, match="no similarity of answers; write errors or weights"):
        second_order.similarities(untrained, SOLVERS, "answers")
