"""Nets trained on principal components beat predicting zero: both kinds of attention, looped nets, and tables."""

from typing import Any

import pytest

from loopscale.evaluate import Evaluation, evaluate
from loopscale.training.loop import Learner, train
from loopscale.training.trial import Trial

pytestmark = pytest.mark.slow


def learned(steps: int, model: dict[str, Any], task: dict[str, Any] | None = None) -> Learner:
    trial = Trial.model_validate(
        {
            "task": {"kind": "pca", "components": 1, "dim": 3, "points": 8, "gap": 0.7} | (task or {}),
            "model": {"causal": False, "width": 32, "heads": 4} | model,
            "training": {"lr": 1e-2, "clip": 1, "warmup": 20, "schedule": "cosine", "loops": 3, "window": 2}
            | {"steps": steps, "batch_size": 32, "eval_every": steps},
        }
    )
    return next(train(trial)).learner


@pytest.mark.parametrize("attention", ["relu", "softmax"])
@pytest.mark.parametrize("auxiliary", ["none", "start"])
def test_an_encoder_learns_the_first_component_with_and_without_the_auxiliary_matrix(
    attention: str, auxiliary: str
):
    learner = learned(250, {"kind": "encoder", "layers": 2, "attention": attention}, {"auxiliary": auxiliary})
    curve = evaluate(learner.net, learner.trial.task, Evaluation(prompts=256))
    assert curve.error[-1].mean() + 4 * curve.sem[-1].mean() < 0.75
    assert curve.measures["cosine_1"][-1] > 0.75, "by chance it is 0.5"


def test_a_looped_encoder_improves_with_loops():
    learner = learned(250, {"kind": "looped"})
    curve = evaluate(learner.net, learner.trial.task, Evaluation(loops=3, prompts=256))
    first, last = curve.error[0].mean(), curve.error[-1].mean()
    assert last + 4 * curve.sem[-1].mean() < min(first, 0.75)


def test_an_encoder_trained_on_gaussian_points_finds_components_of_tables():
    learner = learned(250, {"kind": "encoder", "layers": 2}, {"standardised": True})
    evaluation = Evaluation(prompts=256, task={"data": ["iris", "wine"]})
    curve = evaluate(learner.net, evaluation.posed(learner.trial.task), evaluation)
    assert curve.error[-1].mean() + 4 * curve.sem[-1].mean() < 0.9
