"""A study's nets beside solvers: from the records to the sentences, and figures of tables that are made up."""

import functools
import operator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.papers import iterates as compared
from loopscale.analysis.papers import second_order
from loopscale.analysis.papers.similarity import table
from loopscale.analysis.results import Reading, reading
from loopscale.analysis.trained_nets import Trained
from loopscale.core.seeds import stream
from loopscale.solvers.regression import Newton
from loopscale.studies.spec import Study
from loopscale.tasks.base import Task

SOLVERS = [("newton", 8), ({"kind": "gradient_descent", "rate": "safe"}, 40), ("conjugate_gradient", 5)]
STUDIES = Path(__file__).parents[2] / "studies"
CLASSICAL = pytest.mark.parametrize("of", ["errors", "weights"])


class Untrained(Reading):
    """A study whose nets are as they were drawn: what is compared needs no training."""

    def nets(self, cell: str = ""):
        study = Study.load(STUDIES / "second_order" / "reduced" / "isotropic.yaml")
        here = next(each for each in study.cells() if each.key == cell)
        for seed in (1, 2):
            trial = study.at(here, {}, seed)
            yield Trained(trial, trial.net())


@pytest.fixture(scope="module")
def untrained() -> Reading:
    study = Study.load(STUDIES / "second_order" / "reduced" / "isotropic.yaml")
    nothing = pd.DataFrame()
    return Untrained(study.document(), nothing, nothing, nothing)


def planted(growth: dict[str, list[list[int]]], iterates: int = 80) -> pd.DataFrame:
    """Similarities that peak where `growth` says, for every solver a list of matches for every replicate."""
    rows = []
    for solver, replicates in growth.items():
        for number, matches in enumerate(replicates, 1):
            places = np.arange(1, iterates + 1)
            similar = np.exp(-np.square(np.log(places[None] / np.array(matches)[:, None])) / 8)
            rows.append(table(_tensor(similar)).assign(cell="net", replicate=number, solver=solver))
    return pd.concat(rows, ignore_index=True)


def _tensor(values: np.ndarray):
    import torch

    return torch.from_numpy(values)


PAPER = {
    "newton": [[2, 5, 8, 11, 14, 17], [3, 6, 9, 13, 15, 18]],
    "gradient descent": [[2, 4, 8, 16, 32, 64], [2, 4, 9, 17, 33, 62]],
}


@CLASSICAL
def test_every_step_of_every_net_is_compared_with_every_iterate(untrained: Reading, of: str):
    found = compared.similarities(untrained, SOLVERS, of, prompts=32)
    sizes = found.groupby(["cell", "replicate", "solver"]).size().unstack("solver")
    depths = {"gpt2": 6, "looped": 8, "lstm": 4}
    for (cell, _), row in sizes.iterrows():
        assert row.to_dict() == {
            "newton": 8 * depths[cell],
            "gradient descent": 40 * depths[cell],
            "conjugate gradient": 5 * depths[cell],
        }
    assert found["similarity"].abs().max() <= 1 + 1e-9
    assert list(compared.trends(found).index.names) == ["cell", "solver"]


def test_solvers_errors_are_theirs_and_a_probed_net_is_no_worse_than_nothing(untrained: Reading):
    found = compared.errors(untrained, SOLVERS, prompts=256)
    task = Task.model_validate({"kind": "linear_regression", "dim": 4, "points": 10})
    batch = task.sample(256, stream("second order"))
    wanted = task.error(Newton().predict(batch, 8), batch).mean((1, 2))
    newton = found[found["cell"] == "newton"]
    np.testing.assert_allclose(newton["error"], wanted, rtol=1e-6)
    assert (found.loc[found["cell"].isin(["gpt2", "lstm"]), "error"] < 1.2).all()
    gains = compared.gains(found)
    assert list(gains.index) == ["gpt2", "looped", "lstm"]
    assert (gains["low"] <= gains["factor"]).all()
    assert "no gain can be told" in repr(second_order.gained(gains))


def test_the_states_of_untrained_nets_hold_little_of_the_weights(untrained: Reading):
    found = compared.held(untrained, prompts=256)
    assert found.groupby("cell")["step"].max().to_dict() == {"gpt2": 6, "looped": 8, "lstm": 4}
    assert (found["error"] > 0.5).all()


def test_what_the_paper_finds_is_said_where_it_is_so():
    trends = compared.trends(planted(PAPER))
    assert trends["trend"].tolist() == ["linear", "exponential"]
    assert trends.loc[("net", "newton"), "rate"] == pytest.approx(3, abs=0.2)
    assert trends.loc[("net", "gradient descent"), "rate"] == pytest.approx(2, abs=0.1)
    assert (trends["low"] < trends["rate"]).all()
    said = second_order.said(trends)
    assert said[0].startswith("net against newton: a line, 3")
    assert "an exponential, 2" in said[1]
    assert second_order.finding(trends)[0].startswith("net: of second order")
    assert "newton 1.000" in second_order.caution(trends)[0]


def test_what_is_not_so_is_not_said():
    same = {"newton": [[4] * 6, [4] * 6], "gradient descent": [[2, 30, 1, 50, 2, 9], [70, 1, 40, 3, 20, 2]]}
    trends = compared.trends(planted(same))
    assert trends["trend"].tolist() == ["none", "none"]
    assert second_order.finding(trends)[0].startswith("net: not of second order")
    assert "no trend" in second_order.said(trends)[0]


def test_a_rate_whose_interval_contains_0_decides_nothing():
    late = {  # one replicate that has not begun to learn, beside two that are as the paper has it
        "newton": [*PAPER["newton"], [6, 6, 5, 5, 4, 4]],
        "gradient descent": [*PAPER["gradient descent"], [70, 66, 60, 62, 58, 55]],
    }
    trends = compared.trends(planted(late))
    assert trends["trend"].tolist() == ["undecided", "undecided"]
    assert set(trends["why"]) == {"the rate's interval over replicates contains 0"}
    assert second_order.finding(trends)[0].startswith("net: undecided whether of second order")
    assert "undecided: the rate's interval" in second_order.said(trends)[0]
    alone = compared.trends(planted({"newton": [[4] * 6, [4] * 6]}))
    assert second_order.finding(alone)[0].startswith("net: undecided"), "gradient descent was not compared"


@pytest.mark.parametrize(("solver", "axis"), [("newton", "linear"), ("gradient descent", "log")])
def test_a_trend_is_straight_on_its_solvers_axis(solver: str, axis: str):
    figure = second_order.best_matching(planted(PAPER), solver)
    assert figure.layout.yaxis.type == axis
    (chosen,) = [trace for trace in figure.data if "chosen" in trace.name]
    heights = np.array(chosen.y, dtype=float)
    steps = np.diff(heights if axis == "linear" else np.log(heights))
    np.testing.assert_allclose(steps, steps.mean(), rtol=0.05)


def test_the_figures_show_what_the_tables_hold():
    similar = planted(PAPER)
    heat = second_order.heat_maps(similar)
    maps = [trace for trace in heat.data if trace.type == "heatmap"]
    rings = [trace for trace in heat.data if trace.type == "scatter"]
    assert len(maps) == len(rings) == 2
    assert len(maps[0].x) <= second_order.MOST_COLUMNS
    assert list(rings[1].y) == [1, 2, 3, 4, 5, 6]
    figure = second_order.best_matching(similar, "newton")
    names = [trace.name for trace in figure.data]
    assert len(names) == 3
    assert any("chosen" in name and "a step (" in name for name in names)
    assert list(figure.data[0].y) == functools.reduce(operator.iadd, PAPER["newton"], [])
    errors = pd.DataFrame(
        [("net", n, step, 0.5**step) for n in (1, 2) for step in (1, 2, 3)] + [("newton", 0, 1, 0.3)],
        columns=["cell", "replicate", "step", "error"],
    )
    assert {"net", "newton"} <= {trace.name for trace in second_order.error_by_step(errors).data}


def test_a_study_that_nobody_has_run_gives_empty_tables_and_figures_that_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    found = reading(str(STUDIES / "second_order" / "reduced" / "conditioned.yaml"))
    assert "loopscale run" in found.missing
    similar, errors = compared.similarities(found, SOLVERS), compared.errors(found, SOLVERS)
    trends, gains = compared.trends(similar), compared.gains(errors)
    assert trends.empty
    assert gains.empty
    for figure in (
        second_order.heat_maps(similar),
        second_order.best_matching(similar, "newton"),
        second_order.error_by_step(errors),
    ):
        assert not figure.data
        assert "No net" in figure.layout.annotations[0].text
    for said in (second_order.said, second_order.finding, second_order.caution):
        assert said(trends) == (second_order.UNTRAINED,)
    assert second_order.gained(gains) == (second_order.UNTRAINED,)


def test_a_similarity_that_is_none_is_an_error(untrained: Reading):
    with pytest.raises(ValueError, match="no similarity of answers; write errors or weights"):
        compared.similarities(untrained, SOLVERS, "answers")
