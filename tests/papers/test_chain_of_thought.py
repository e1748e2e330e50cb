"""The error along a chain of thought, from the curves of real predictors."""

import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.recorded.results import Results
from loopscale.contracts.planted_study import Planted
from loopscale.evaluate import Evaluation, evaluate
from loopscale.papers.chain_of_thought import against_chain_steps, cell_at_chain
from loopscale.solvers.base import Solver
from loopscale.solvers.chain_of_thought import LayerBayes, LayerLeastSquares
from loopscale.tasks.chain_of_thought import ChainOfThought

TASK = ChainOfThought(dim=3, points=5, depth=4, slope=0.5)
ABOUT = {"task.kind": "chain_of_thought", "task.dim": 3, "task.points": 5}


def curve(solver: Solver) -> pd.DataFrame:
    """In the shape of the records, after one step."""
    evaluated = evaluate(solver, TASK, Evaluation(loops=1, prompts=64))
    columns = {"error": evaluated.error[0], "sem": evaluated.sem[0], "raw": evaluated.raw[0]}
    return pd.DataFrame({"loop": 1, "point": np.arange(20)} | columns)


@pytest.fixture
def study() -> Results:
    """Least squares in the place of a trained net, beside the Bayes predictor."""
    planted = Planted(loops=1)
    cell = planted.cell("model.kind=looped")
    keys = [planted.trial(cell, "replicate", n, 0.3, **ABOUT) for n in range(2)]
    keys.append(planted.trial("", "baseline", 0, 0.2, label="layer_bayes", **ABOUT))
    for key, solver in zip(keys, (LayerLeastSquares(), LayerLeastSquares(), LayerBayes()), strict=True):
        planted.curve.append(curve(solver).assign(trial=key))
    trials, curves, history = planted.tables
    return Results(planted.study, trials.assign(**{"task.depth": 4, "task.slope": 0.5}), curves, history)


def test_a_chain_has_its_own_errors_with_steps_from_one(study: Results):
    (cell,) = study.cells
    last = cell_at_chain(cell)
    trials = (*last.runs, *last.baselines)
    assert [trial.curve.points.tolist() for trial in trials] == [[1, 2, 3, 4]] * 3
    np.testing.assert_array_equal(last.runs[0].curve.error[0], curve(LayerLeastSquares())["error"][16:])
    (bayes,) = cell_at_chain(cell, demonstrations=1).baselines
    np.testing.assert_array_equal(bayes.curve.error[0], curve(LayerBayes())["error"][4:8])


def test_nets_and_oracle_share_one_figure_over_the_steps(study: Results):
    figure = against_chain_steps(study, demonstrations=1)
    lines = {trace.name: list(trace.y) for trace in figure.data if trace.mode and "lines" in trace.mode}
    assert len(lines) == 2
    assert {tuple(trace.x) for trace in figure.data if trace.mode and "lines" in trace.mode} == {(1, 2, 3, 4)}
    (bayes,) = (values for name, values in lines.items() if "Bayes predictor of one layer" in name)
    assert bayes == pytest.approx(curve(LayerBayes())["error"][4:8].tolist(), rel=1e-3)
    assert figure.layout.xaxis.title.text == "step of the chain (count)"


def test_the_figure_of_a_study_without_trials_says_so():
    figure = against_chain_steps(Planted().results)
    assert "Too little has finished" in figure.layout.annotations[0].text


def test_a_task_without_chains_and_too_many_demonstrations_are_errors(study: Results):
    unchained = Results(study.study, study.trials.drop(columns="task.depth"), study.curves, study.history)
    with pytest.raises(ValueError, match="this study has no chains of thought"):
        against_chain_steps(unchained)
    with pytest.raises(ValueError, match=r"no chain follows 5 demonstrations; write 0 \.\. 4"):
        against_chain_steps(study, demonstrations=5)
