"""Trained nets against the Bayes predictor of their task, on the same prompts.

A net whose error is more than three standard errors below the Bayes error must have seen the answer. The test also
checks that each net has learned something, because otherwise the comparison would be empty.
"""

from typing import Any

import pytest

from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.training.loop import train
from loopscale.training.trial import Trial

pytestmark = pytest.mark.slow

SMALL = {"kind": "gpt2", "width": 32, "heads": 2, "layers": 2}
ENCODER = {"kind": "encoder", "width": 32, "heads": 2, "layers": 2}
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "autoregression": (
        {"kind": "autoregression", "q": 1, "dim": 2, "points": 8, "width": 3, "noise": 0.5},
        SMALL,
        {"kind": "ridge", "features": "representation"},
    ),
    "chain of thought": (
        {"kind": "chain_of_thought", "dim": 2, "points": 4, "depth": 2, "slope": 0.5},
        SMALL,
        {"kind": "layer_bayes"},
    ),
    "sparse recovery": (
        {"kind": "sparse_recovery", "dim": 6, "points": 6, "nonzero": 1, "noise": 0.3, "format": "encoder"}
        | {"matrices": "fixed", "query": "drawn"},
        {"kind": "lista_cp", "layers": 4},
        {"kind": "sparse_posterior"},
    ),
    "mixture of regressions": (
        {"kind": "mixture_regression", "dim": 1, "points": 10, "snr": 10},
        SMALL,
        {"kind": "mixture_oracle"},
    ),
    "clustering": (
        {"kind": "clustering", "components": 2, "dim": 2, "points": 10, "snr": 2},
        ENCODER,
        {"kind": "mixture_posterior"},
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_trained_net_has_learned_and_is_not_below_the_bayes_error(row: str):
    task, model, solver = ROWS[row]
    training = {"steps": 600, "batch_size": 64, "lr": 3e-3, "schedule": "cosine", "eval_every": 600}
    trial = Trial.model_validate({"task": task, "model": model, "training": training})
    *_, end = train(trial)
    net, bayes = end.learner.net, Solver.model_validate(solver)
    room = bayes.room_below(trial.task)
    assert room is not None
    batch = trial.task.sample(4000, stream("not below bayes"))
    predictions = [predictor.predict(batch, model["layers"])[-1:] for predictor in (net, bayes)]
    net_errors, bayes_errors = (
        trial.task.raw_error(guess, batch)[0].double().detach() for guess in predictions
    )
    advantage = (bayes_errors - net_errors).mean(-1)
    assert advantage.mean() <= room + 3 * advantage.std() / len(advantage) ** 0.5
    assert trial.task.error(predictions[0], batch).mean() < 0.95
