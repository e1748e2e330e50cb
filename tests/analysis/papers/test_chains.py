"""The error along a chain of thought is read off the curves of real predictors, chain by chain."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.papers.chains import against_chain_steps, steps_of_chain
from loopscale.evaluate import Evaluation, evaluate
from loopscale.solvers.base import Solver
from loopscale.solvers.chain_of_thought import LayerBayes, LayerLeastSquares
from loopscale.tasks.chain_of_thought import ChainOfThought
from tests.analysis.planted import Planted

TASK = ChainOfThought(dim=3, points=5, depth=4, slope=0.5)
ABOUT = {"task.kind": "chain_of_thought", "task.dim": 3, "task.points": 5}


def curve(solver: Solver) -> pd.DataFrame:
    """In the shape of the records, after one step."""
    found = evaluate(solver, TASK, Evaluation(loops=1, prompts=64))
    columns = {"error": found.error[0], "sem": found.sem[0], "raw": found.raw[0]}
    return pd.DataFrame({"loop": 1, "point": np.arange(20)} | columns)


@pytest.fixture
def tables() -> tuple[Planted, pd.DataFrame, pd.DataFrame]:
    """Least squares in the place of a trained net, beside the Bayes predictor."""
    planted = Planted(loops=1)
    cell = planted.cell("model.kind=looped")
    keys = [planted.trial(cell, "replicate", n, 0.3, **ABOUT) for n in range(2)]
    keys.append(planted.trial("", "baseline", 0, 0.2, label="layer_bayes", **ABOUT))
    for key, solver in zip(keys, (LayerLeastSquares(), LayerLeastSquares(), LayerBayes()), strict=True):
        planted.curve.append(curve(solver).assign(trial=key))
    trials, curves, _ = planted.tables
    return planted, trials.assign(**{"task.depth": 4, "task.slope": 0.5}), curves


def test_a_chain_is_cut_out_with_its_steps_counted_from_one(tables):
    _, trials, curves = tables
    last = steps_of_chain(trials, curves)
    assert last.groupby("trial")["point"].apply(list).tolist() == [[1, 2, 3, 4]] * 3
    mine = last[last["trial"] == trials["trial"][0]]
    np.testing.assert_array_equal(mine["error"], curve(LayerLeastSquares())["error"][16:])
    first = steps_of_chain(trials, curves, demonstrations=1)
    np.testing.assert_array_equal(
        first[first["trial"] == trials["trial"][2]]["error"], curve(LayerBayes())["error"][4:8]
    )


def test_models_and_oracle_stand_on_one_figure_over_the_steps(tables):
    planted, trials, curves = tables
    records = SimpleNamespace(study=planted.study, trials=trials, curves=curves)
    figure = against_chain_steps(records, demonstrations=1)
    drawn = {trace.name: list(trace.y) for trace in figure.data if trace.mode and "lines" in trace.mode}
    assert len(drawn) == 2
    assert {tuple(trace.x) for trace in figure.data if trace.mode and "lines" in trace.mode} == {(1, 2, 3, 4)}
    (bayes,) = (values for name, values in drawn.items() if "layer_bayes" in name.replace(" ", "_"))
    assert bayes == pytest.approx(curve(LayerBayes())["error"][4:8].tolist(), rel=1e-3)
    assert figure.layout.xaxis.title.text == "step of the chain (count)"


def test_a_study_that_has_not_been_run_says_so_in_the_figure():
    planted = Planted()
    trials, curves, _ = planted.tables
    figure = against_chain_steps(SimpleNamespace(study=planted.study, trials=trials, curves=curves))
    assert "Too little has finished" in figure.layout.annotations[0].text


def test_what_is_no_chain_is_said_to_be_none(tables):
    _, trials, curves = tables
    with pytest.raises(ValueError, match="no trial of this study is about chains"):
        steps_of_chain(trials.drop(columns="task.depth"), curves)
    with pytest.raises(ValueError, match=r"no chain has 5 demonstrations before it; write 0 \.\. 4"):
        steps_of_chain(trials, curves, demonstrations=5)
