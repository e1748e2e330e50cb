"""Errors below the least possible error are reported as bugs; the least possible error itself is not."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.answers.impossible import Impossible, impossible_results
from loopscale.analysis.figures.curves import against_points
from loopscale.analysis.recorded.references import floors
from loopscale.analysis.recorded.results import Results
from loopscale.analysis.report.study_page import study_page
from loopscale.contracts.planted_study import Planted
from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.solvers.regression import Ridge
from loopscale.tasks.autoregression import Autoregression
from loopscale.tasks.base import Task
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.theory.bounds.base import Bound

DIM, POINTS, NOISE, PROMPTS = 3, 7, 0.5, 400
TASK = LinearRegression(dim=DIM, points=POINTS, noise=NOISE)


def measured(seed: int, leak: float = 0.0, at: int | None = None) -> pd.DataFrame:
    """Errors of the Bayes predictor on a sample of prompts. A share `leak` of one answer, or of all, is known to it."""
    batch = TASK.sample(PROMPTS, stream("floors", seed))
    residuals = (Ridge().predict(batch, 1)[0] - batch.targets)[..., 0].numpy()
    known = np.array([leak if at in (None, point) else 0.0 for point in range(POINTS)])
    square = (residuals * (1 - known)) ** 2
    error = square / TASK.variance
    columns = {"error": error.mean(0), "sem": error.std(0, ddof=1) / PROMPTS**0.5, "raw": square.mean(0)}
    return pd.DataFrame({"loop": 1, "point": np.arange(POINTS)} | columns)


def study(*curves: pd.DataFrame) -> Planted:
    planted = Planted()
    cell = planted.cell("model.kind=looped", **{"model.kind": "looped"})
    about = {"task.dim": DIM, "task.points": POINTS, "training.loops": 1.0}
    for number, curve in enumerate(curves):
        trial = planted.trial(cell, "replicate", number, float(curve["error"].mean()), **about)
        planted.rows[-1]["task.noise"] = NOISE
        planted.curve.append(curve.assign(trial=trial))
    return planted


def results_of(planted: Planted, **columns: Any) -> Results:
    return planted.changed(trials=planted.tables[0].assign(**{"task.noise": NOISE} | columns))


def impossible(planted: Planted) -> list[Impossible]:
    return impossible_results(results_of(planted))


@pytest.mark.slow
def test_the_bayes_predictor_itself_is_not_reported():
    suspected = impossible(study(*(measured(seed) for seed in range(300))))
    assert len(suspected) <= 2, (
        "three standard errors: a false alarm in about one of 700, for each of two tests"
    )


def test_a_leak_at_every_query_is_reported_on_average():
    (result,) = impossible(study(measured(0), measured(1, leak=0.2)))
    assert (result.trial, result.point, result.bound) == ("replicate-cell0-1", None, "bayes_ridge")
    assert result.error < result.floor - 3 * result.standard_error
    assert "a bug, or answers that leak into the prompts" in result.sentence


def test_a_leak_at_one_query_is_reported_there():
    (result,) = impossible(study(measured(2, leak=0.6, at=4)))
    assert result.point == 4
    assert "after 4 pairs" in result.sentence


def test_baselines_pruned_trials_and_tasks_without_a_floor_are_not_checked():
    planted = study(measured(1, leak=0.5))
    for column, value in (
        ("role", "baseline"),
        ("task.kind", "representation_regression"),
        ("outcome", "pruned"),
    ):
        assert impossible_results(results_of(planted, **{column: value})) == []
    assert impossible_results(results_of(planted, **{"task.condition": 10.0})) == []


def test_the_report_shows_impossible_results_first():
    planted = study(measured(1, leak=0.2))
    page = study_page(results_of(planted))
    assert page.index("answers that leak into the prompts") < page.index("Lowest error")
    assert 'role="alert"' in page
    clean = study(measured(0))
    assert 'role="alert"' not in study_page(results_of(clean))


@pytest.mark.parametrize("points", [1, 40])
def test_the_probability_of_a_false_alarm_does_not_grow_with_the_number_of_queries(points: int):
    from scipy.special import ndtr, ndtri

    assert 1 - (1 - ndtr(ndtri(ndtr(-3.0) / points))) ** points == pytest.approx(ndtr(-3.0), rel=0.01)


def test_the_figure_draws_the_exact_floor():
    planted = study(measured(0))
    results = results_of(planted)
    name = "least error on these prompts (ridge), exact"
    (line,) = [trace for trace in against_points(results, results.cells).data if trace.name == name]
    floor = results.floor(results.cells[0])
    assert floor
    assert np.array(line.y, dtype=float) == pytest.approx(floor.error, rel=1e-3)
    (expected,) = [errors for kind, _, errors in floors(results.cells[0].runs[0]) if kind == "bayes_ridge"]
    bayes = Bound.model_validate({"kind": "bayes_ridge", "dim": DIM, "noise": NOISE})
    raw = bayes.along("point", range(POINTS)) + NOISE**2
    assert list(line.x) == list(range(POINTS))
    assert expected == pytest.approx(raw / TASK.variance, rel=1e-3)


def beside_its_bayes_predictor(task: Task, solver: Solver, shares: Sequence[float]) -> list[Impossible]:
    """A study whose trained nets are the solver itself. Each net also knows a share of the true answer."""
    batch, planted, names = task.sample(PROMPTS, stream("leader")), Planted(), {"solver.kind": solver.kind}
    names |= {f"task.{name}": value for name, value in task.model_dump().items()}
    names |= {f"solver.{name}": value for name, value in solver.model_dump().items()}
    answer = solver.predict(batch, 1)[0]
    cell = planted.cell("looped")
    for number, share in enumerate((0.0, *shares)):
        prediction = answer + share * (batch.targets - answer)
        raw = task.raw_error(prediction, batch).double().numpy()
        role, of_cell, label = ("baseline", "", "ridge") if number == 0 else ("replicate", cell, "looped")
        trial = planted.trial(of_cell, role, number, 0.5, label=label, **{"training.loops": 1.0})
        sem = raw.std(0, ddof=1) / PROMPTS**0.5
        table = {"error": raw.mean(0) / task.variance, "sem": sem / task.variance, "raw": raw.mean(0)}
        planted.curve.append(
            pd.DataFrame({"trial": trial, "loop": 1, "point": np.arange(raw.shape[1])} | table)
        )
    trials, *_ = planted.tables
    columns = {name: [value] * len(trials) for name, value in names.items()}
    return impossible_results(planted.changed(trials=trials.assign(**columns)))


def test_without_a_formula_a_recorded_bayes_predictor_is_the_floor():
    task = Autoregression(dim=3, width=3, points=10)
    (result,) = beside_its_bayes_predictor(task, Ridge(features="representation"), (0.0, 0.01, 0.5))
    assert (result.trial, result.point, result.bound) == (
        "replicate-cell0-3",
        None,
        "ridge, on the same prompts",
    )
    assert "which no predictor beats (ridge, on the same prompts)" in result.sentence


def test_a_solver_that_other_predictors_may_beat_is_no_floor():
    task = Autoregression(dim=3, width=3, points=10)
    assert beside_its_bayes_predictor(task, Ridge(), (0.9,)) == []
    assert beside_its_bayes_predictor(task, Ridge(features="representation", penalty=1.0), (0.9,)) == []
