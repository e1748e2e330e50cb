"""Survival fits against lifelines, on simulated and on recorded trainings."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter, LogNormalAFTFitter, WeibullAFTFitter

from loopscale.analysis.notebook import results
from loopscale.analysis.recorded.references import task_of
from loopscale.regret import floor
from loopscale.stats.contrasts import Array
from loopscale.stats.learning import Emergence, EmergenceRule, emergence
from loopscale.stats.survival import Distribution, accelerated_failure_time, survival_curve
from tests.stats.simulated_emergence import DISTRIBUTIONS, simulated

LIFELINES = {"lognormal": (LogNormalAFTFitter, "mu_"), "weibull": (WeibullAFTFitter, "lambda_")}
RECORDS = Path(__file__).parents[2] / "notebooks" / "data"

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("seed", range(4))
def test_the_fit_equals_the_fit_of_lifelines(distribution: Distribution, seed: int):
    columns, after, by = simulated(seed, each=10, slopes=(0.4, -0.3))
    fitter, name = LIFELINES[distribution]
    frame = pd.DataFrame({"a": columns[:, 0], "b": columns[:, 1], "by": by})
    frame["after"] = np.maximum(after, 1e-3)  # lifelines sometimes fails at a step of 0
    other = fitter().fit_interval_censoring(frame, "after", "by")
    fit = accelerated_failure_time(columns, after, by, distribution)
    assert fit is not None
    summary = other.summary.loc[name]
    assert fit.log_likelihood == pytest.approx(other.log_likelihood_, abs=1e-5)
    assert fit.coefficients == pytest.approx(summary.loc[["a", "b"], "coef"].to_numpy(), abs=1e-3)
    assert fit.errors == pytest.approx(summary.loc[["a", "b"], "se(coef)"].to_numpy(), rel=1e-2)
    assert fit.level == pytest.approx(summary.loc["Intercept", "coef"], abs=1e-3)
    row = frame[["a", "b"]].iloc[:1]
    steps = np.array([200.0, 700.0, 1500.0])
    expected = other.predict_survival_function(row, times=steps).to_numpy()[:, 0]
    assert fit.survival(steps, columns[0]) == pytest.approx(expected, abs=1e-3)
    assert fit.median(columns[0]) == pytest.approx(other.predict_median(row).item(), rel=1e-3)


def test_the_survival_curve_equals_kaplan_and_meier_if_all_runs_report_at_the_same_steps():
    _, after, by = simulated(5, each=20)
    curve = survival_curve(after, by)
    emerged = np.isfinite(by)
    other = KaplanMeierFitter().fit(np.where(emerged, by, after), emerged)
    expected = other.survival_function_at_times(curve.by).to_numpy()
    assert curve.share == pytest.approx(expected, abs=1e-6)
    assert curve.median == other.median_survival_time_


def test_the_survival_curve_equals_lifelines_if_reports_differ_between_runs():
    rng = np.random.default_rng(6)
    steps, every = rng.lognormal(6, 0.5, 60), rng.choice([50.0, 90.0, 170.0], 60)
    after = np.floor(steps / every) * every
    by = np.where(after + every <= 800, after + every, np.inf)
    after = np.where(np.isfinite(by), after, np.floor(800 / every) * every)
    curve = survival_curve(after, by)
    # The intervals of lifelines contain their first step, so the first step is moved.
    other = KaplanMeierFitter().fit_interval_censoring(after + 1e-3, by, tol=1e-9)
    # The table of lifelines has the share after a fall in the row of the next step.
    table = other.survival_function_.iloc[:, 0]
    assert curve.share == pytest.approx([table[table.index > step].iloc[0] for step in curve.by], abs=2e-3)


def recorded() -> tuple[Array, Array, Array]:
    """log2 T, log2 width, log κ and log rate of the runs of two studies, and the emergence of their last query."""
    rows = dict[str, tuple[list[float], Emergence]]()
    for name in ("compute", "conditioning"):
        study = results(f"scaling/reduced/{name}", RECORDS / f"scaling_{name}")
        for trial in study.trained:
            if trial.outcome != "finished":
                continue
            steps, errors = trial.history("error_last")
            share = floor(task_of(trial.settings)).mean.shares(errors, "last")
            found = emergence(steps.astype(float), share, EmergenceRule(consecutive=1))
            assert found is not None
            get = trial.settings
            axes = np.log(
                [get["training.loops"], get["model.width"], get["task.condition"], get["training.lr"]]
            )
            rows[trial.trial] = ((axes / [math.log(2), math.log(2), 1, 1]).tolist(), found)
    columns = np.array([row[0] for row in rows.values()])
    return columns, *np.array([(row[1].after, row[1].by) for row in rows.values()]).T


@pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")
def test_the_fit_of_recorded_trainings_equals_the_fit_of_lifelines():
    columns, after, by = recorded()
    assert min(np.isfinite(by).sum(), np.isinf(by).sum()) >= 10  # enough of both to tell a fit from another
    for distribution in DISTRIBUTIONS:
        fitter, name = LIFELINES[distribution]
        frame = pd.DataFrame(columns, columns=["loops", "width", "condition", "rate"])
        frame["after"], frame["by"] = np.maximum(after, 1e-3), by
        other = fitter().fit_interval_censoring(frame, "after", "by")
        summary = other.summary.loc[name].drop("Intercept").loc[list(frame.columns[:4])]
        fit = accelerated_failure_time(columns, after, by, distribution)
        assert fit is not None
        assert fit.log_likelihood == pytest.approx(other.log_likelihood_, abs=1e-4)
        assert fit.coefficients == pytest.approx(summary["coef"].to_numpy(), abs=1e-3)
        assert fit.errors == pytest.approx(summary["se(coef)"].to_numpy(), rel=1e-2)
