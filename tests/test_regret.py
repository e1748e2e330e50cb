"""Floors, ignorance and regret of every task, against closed forms."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from loopscale.core.prompt import Predictor
from loopscale.core.prompt_sets import Purpose
from loopscale.core.seeds import stream
from loopscale.evaluate import Evaluation, RegretCurve, evaluate, prompt_set, validation_errors
from loopscale.models.base import Model
from loopscale.regret import Floor, floor
from loopscale.solvers.base import Solver
from loopscale.stats.contrasts import Array
from loopscale.tasks.base import Task
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.theory.bounds.bayes_risk import prior_variance_left

RECORDS = Path(__file__).parents[1] / "notebooks" / "data"


def posed(kind: str, **settings: Any) -> Task:
    return Task.model_validate({"kind": kind, **settings})


def solver(kind: str, **settings: Any) -> Solver:
    return Solver.model_validate({"kind": kind, **settings})


def regret_curve(
    predictor: Predictor, task: Task, loops: int, purpose: Purpose = "evaluate", prompts: int = 1024
) -> RegretCurve:
    how = Evaluation(loops=loops, prompts=prompts)
    curve = evaluate(predictor, task, how, floor=floor(task, purpose, prompts), purpose=purpose)
    assert curve.regret is not None
    return curve.regret


def bayes_errors(dim: int, points: int, noise: float) -> Array:
    """The Bayes error of isotropic linear regression after 0, 1 .. pairs, over the variance of y."""
    left = np.array([prior_variance_left(pairs, dim, noise**2) for pairs in range(points)])
    return (dim * left + noise**2) / (dim + noise**2)


def assert_is(found: Floor, expected: Array, rtol: float = 1e-9) -> None:
    """The floor is the expected error, within four standard errors of the prompts."""
    sem = found.errors.std(axis=0, ddof=1) / math.sqrt(len(found.errors))
    assert (np.abs(found.error - expected) <= 4 * sem + rtol).all()


# The floor of every task


@pytest.mark.parametrize(
    "task",
    [
        posed("linear_regression", dim=3, points=6, noise=0.5),
        posed("representation_regression", dim=3, width=3, layers=1, slope=1, points=6, noise=0.5),
        posed("sparse_recovery", dim=3, nonzero=3, points=6, noise=0.5),
    ],
    ids=lambda task: task.kind,
)
def test_the_floor_of_a_regression_is_the_exact_bayes_error(task: Task):
    found = floor(task, prompts=2000)
    assert (found.how, found.measure) == ("bayes", "regret")
    assert_is(found, bayes_errors(3, 6, 0.5), rtol=5e-3)


def test_the_floor_of_an_autoregression_with_one_feature_equals_the_floor_of_a_mean():
    found = floor(posed("autoregression", q=1, dim=2, width=1, points=6, noise=0.5), prompts=2000)
    assert found.how == "bayes"
    assert_is(found, np.array([0.25 + 1 / (1 + pairs / 0.25) for pairs in range(6)]) / 1.25, rtol=5e-3)


def test_the_floor_of_linear_chains_is_the_share_of_unseen_directions():
    found = floor(posed("chain_of_thought", dim=3, depth=1, slope=1, points=6), prompts=2000)
    assert found.how == "bayes"
    assert_is(found, np.array([3, 2, 1, 0, 0, 0]) / 3, rtol=1e-6)


def test_chains_with_orthogonal_weights_have_a_reference_and_no_floor():
    found = floor(posed("chain_of_thought", dim=3, depth=2, points=5, weights="orthogonal"))
    assert (found.how, found.measure) == ("reference", "error above the reference layer_least_squares")
    assert found.error[-1] < 1e-6


def test_the_floor_of_sparse_recovery_lies_between_ridge_and_the_true_support():
    task = posed("sparse_recovery", dim=5, nonzero=2, points=6, noise=0.3)
    least = floor(task, prompts=1000)
    others = [
        evaluate(solver(kind), task, Evaluation(loops=1, prompts=1000)).error[0]
        for kind in ("oracle_support", "ridge")
    ]
    assert least.how == "bayes"
    assert others[0][1:].mean() < least.error[1:].mean() < others[1][1:].mean()


def test_the_floor_of_too_many_supports_is_a_reference():
    task = posed("sparse_recovery", dim=16, nonzero=5, points=20)
    assert floor(task, prompts=32).measure == "error above the reference lasso"


def test_the_floor_of_the_samples_components_is_zero():
    found = floor(posed("pca", dim=4, points=8))
    assert (found.how, found.measure) == ("exact", "regret")
    assert (found.error == 0).all()
    assert (
        floor(posed("pca", dim=4, points=8, target="population", spectrum_of="population")).how == "reference"
    )


def test_labels_of_opposite_components_teach_nothing():
    found = floor(posed("mixture_regression", dim=3, points=6, symmetric=True))
    assert (found.how, found.name) == ("bayes", "zero prediction")
    assert (found.error == found.ignorance).all()
    assert not found.mean.has_room
    assert np.isnan(found.mean.shares(np.array([1.0])))


def test_the_reference_of_one_component_is_ridge():
    task = posed("mixture_regression", components=1, dim=3, points=6, snr=3)
    found = floor(task, prompts=2000)
    assert found.measure == "error above the reference mixture_em"
    assert_is(found, bayes_errors(3, 6, 3**0.5 / 3))


def test_a_fixed_guess_is_the_reference_if_no_algorithm_is_better():
    task = posed("mixture_regression", dim=2, points=6, symmetric=True, target="components", snr=0.4)
    found = floor(task, prompts=128)
    assert (found.how, found.name) == ("reference", "fixed guess")
    assert not found.mean.has_room


def test_the_bound_of_clusters_is_the_entropy_of_the_labels_less_the_free_names():
    inseparable = floor(posed("clustering", components=2, dim=2, points=12, snr=1e-6), prompts=64)
    assert (inseparable.how, inseparable.measure) == ("bound", "error above the bound mixture_posterior")
    assert inseparable.error == pytest.approx(np.full(12, 1 - 1 / 12), abs=1e-5)
    separate = floor(posed("clustering", components=2, dim=2, points=12, snr=100), prompts=64)
    assert separate.error == pytest.approx(0, abs=1e-9)


def test_clusters_of_tables_have_a_reference():
    found = floor(posed("clustering", data="iris", components=2, dim=3, points=16), prompts=64)
    assert found.how == "reference"


def test_a_task_without_a_rule_has_an_error_and_no_floor(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(LinearRegression, "floor_rule", property(lambda _: None))
    found = floor(LinearRegression(dim=2, points=3, noise=0.123))
    assert (found.how, found.measure) == ("none", "error")
    assert np.isnan(found.error).all()
    assert found.ignorance == pytest.approx(1, abs=0.3)
    assert not found.mean.has_room


# Ignorance: the error of the best fixed guess


@pytest.mark.parametrize(
    ("task", "ignorance"),
    [
        (posed("linear_regression", dim=3, points=6, condition=4), 1),
        (posed("representation_regression", dim=3, points=6), 1),
        (posed("autoregression", q=1, dim=2, points=6), 1),
        (posed("sparse_recovery", dim=5, points=6), 1),
        (posed("mixture_regression", dim=3, points=6), 1),
        (posed("pca", dim=4), 0.8199),
        (posed("pca", dim=2), 1 - 4 / math.pi**2),
        (posed("pca", data="digits", dim=4), 0.8199),
        (posed("mixture_regression", dim=3, symmetric=True, target="components"), 1 - 2 / (3 * math.pi)),
        (
            posed("mixture_regression", dim=2, symmetric=True, target="components", prior="sphere"),
            1 - 4 / math.pi**2,
        ),
        (posed("mixture_regression", dim=3, target="components", w_scale=50), 1 - 1 / (3 * math.pi)),
        (posed("clustering", components=2, dim=2, points=2), 0.5),
    ],
    ids=str,
)
def test_ignorance_has_a_closed_form(task: Task, ignorance: float):
    guess = task.fixed_guess
    batch = task.sample(4000, stream("ignorance"))
    error = task.error(guess.expand(batch.targets.shape), batch).mean(-1)
    assert abs(error.mean().item() - ignorance) < 4 * error.std().item() / 4000**0.5 + 2e-3


def test_ignorance_of_chains_is_the_variance_about_the_mean_state():
    task = posed("chain_of_thought", dim=4, depth=2, slope=0.5, points=8)
    found = floor(task, prompts=4000)
    # The mean of a leaky ReLU of a normal variable, where the length of x has the mean of a chi variable.
    length = math.sqrt(2) * math.gamma(2.5) / math.gamma(2)
    mean = (1 - 0.5) * math.sqrt(task.weight_variance / (2 * math.pi)) * length
    assert found.ignorance[::2].mean() == pytest.approx(1 - mean**2, abs=0.02)
    assert found.ignorance[1::2].mean() < 1


# Regret of predictions


NOISY = posed("linear_regression", dim=3, points=6, noise=0.5)


def test_the_bayes_predictor_has_no_regret_and_no_predictor_has_a_negative_regret():
    assert (regret_curve(solver("ridge"), NOISY, 1).regret == 0).all()
    for kind in ("least_squares", "averaging", "gradient_descent"):
        assert (regret_curve(solver(kind), NOISY, 3).regret >= 0).all()


def test_the_regret_of_predicting_zero_is_the_reducible_error():
    zero = regret_curve(solver("averaging", scale=1e-9), NOISY, 1, prompts=4000)
    expected = 1 - bayes_errors(3, 6, 0.5)
    assert (np.abs(zero.regret[0] - expected) <= 4 * zero.sem[0]).all()


def test_the_summary_has_the_mean_and_the_last_query_with_their_noise():
    curve = regret_curve(solver("ridge", penalty=0.5), NOISY, 2, prompts=256)
    ends, sets = curve.summary(2), list[dict[str, float]]()
    assert (ends["regret"], ends["regret_last"]) == (curve.regret[1].mean(), curve.regret[1, -1])
    for number in range(40):  # the noise hardly differs, and the prompts do
        task = posed("linear_regression", dim=3, points=6, noise=0.5 + 1e-6 * number)
        sets.append(regret_curve(solver("ridge", penalty=0.5), task, 1, prompts=256).summary(1))
    for name in ("regret", "regret_last"):
        scatter = np.std([values[name] for values in sets], ddof=1)
        assert np.mean([values[f"{name}_sem"] for values in sets]) == pytest.approx(scatter, rel=0.4)


def test_the_squared_distance_is_less_noisy_than_the_difference_of_errors():
    known = floor(NOISY, "evaluate", 1024)
    other = Floor("exact", "ridge", known.errors, known.ignorances)
    distance, difference = list[torch.Tensor](), list[torch.Tensor]()
    start = 0
    for batch in prompt_set("evaluate", NOISY, 1024):
        guess = solver("ridge", penalty=0.5).predict(batch, 1)
        distance.append(known.regret(NOISY, guess, batch, start)[0])
        difference.append(other.regret(NOISY, guess, batch, start)[0])
        start += len(batch.targets)
    a, b = torch.cat(distance).mean(1), torch.cat(difference).mean(1)
    assert a.std() < 0.6 * b.std()
    assert abs((a - b).mean()) < 4 * (a - b).std() / 1024**0.5


@pytest.mark.parametrize("kind", ["clustering", "pca", "chain_of_thought"])
def test_regret_of_a_net_is_the_error_less_the_floor_on_the_same_prompts(kind: str):
    task = posed(kind, dim=3, points=8, **({"weights": "orthogonal"} if kind == "chain_of_thought" else {}))
    model = {"kind": "encoder" if task.whole else "gpt2", "width": 8, "heads": 1, "layers": 1}
    net = Model.model_validate(model).build(task.prompt, stream("net"))
    curve = regret_curve(net, task, 1, "validate", 512)
    errors = validation_errors(net, task, 1).numpy()
    assert curve.regret[0] == pytest.approx(errors - floor(task).error, abs=1e-5)


@pytest.mark.slow
def test_the_floor_on_the_evaluation_prompts_is_the_recorded_baseline():
    trials = pd.read_parquet(RECORDS / "sparse_noise" / "trials.parquet").set_index("run")
    curves = pd.read_parquet(RECORDS / "sparse_noise" / "curves.parquet")
    study = pd.read_parquet(RECORDS / "sparse_noise" / "studies.parquet")["study.json"].item()
    prompts = json.loads(study)["evaluate"]["prompts"]
    settings = {run: json.loads(text) for run, text in trials["settings"].items()}
    bayes = [run for run, values in settings.items() if values.get("solver.kind") == "sparse_posterior"]
    assert len(bayes) == 4
    for run in bayes:
        values = {k[5:]: yaml.safe_load(v) for k, v in settings[run].items() if k.startswith("task.")}
        recorded = curves[(curves["run"] == run) & (curves["loop"] == 1)]
        found = floor(Task.model_validate(values), "evaluate", prompts)
        assert found.error == pytest.approx(recorded["error"].to_numpy(), rel=1e-6)


def test_the_reducible_share_of_reports_uses_the_mean_or_the_last_query():
    known = floor(NOISY)
    for query, take in (("mean", np.mean), ("last", lambda values: values[-1])):
        ends = np.array([take(known.ignorance), take(known.error)])
        assert known.mean.shares(ends, query) == pytest.approx([1, 0])


def test_a_floor_is_computed_once():
    assert floor(NOISY) is floor(NOISY.model_copy())
