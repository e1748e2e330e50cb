"""One layer of linear attention: its formula, its initial weights, and the optimum that training reaches."""

from typing import Any

import numpy as np
import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.evaluate import Evaluation, evaluate
from loopscale.models.linear_attention import LinearAttention, LinearAttentionNet
from loopscale.tasks.base import Task
from loopscale.theory.bounds.base import Bound
from loopscale.training.loop import train
from loopscale.training.trial import Trial

DIM, POINTS = 3, 13
LINE = {"kind": "linear_regression", "dim": DIM, "points": POINTS, "noise": 0.5, "format": "encoder"}


def test_the_layer_computes_the_formula_of_the_paper():
    net = LinearAttention().build(Prompt(length=6, dim_in=5, dim_out=2), stream(0)).double()
    assert isinstance(net, LinearAttentionNet)
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(torch.randn(weight.shape, generator=stream("weights", len(weight))))
    tokens = torch.randn(3, 6, 5, generator=stream("tokens"), dtype=torch.float64)
    pv, kq = torch.zeros(5, 5, dtype=torch.float64), net.kq.detach()
    pv[3:] = net.pv.detach()
    for prompt, state, guess in zip(tokens, net.states(tokens, 1)[0], net(tokens, 1)[0], strict=True):
        e = prompt.mT
        expected = (e + pv @ e @ (e.mT @ kq @ e) / 5).mT
        torch.testing.assert_close(state.detach(), expected)
        torch.testing.assert_close(guess.detach(), expected[:, 3:])


def test_initial_weights_satisfy_assumption_3_3():
    net = LinearAttention(scale=0.02).build(Prompt(length=6, dim_in=5, dim_out=1), stream(0))
    assert isinstance(net, LinearAttentionNet)
    assert net.pv.tolist() == [[0, 0, 0, 0, pytest.approx(0.02)]]
    square = net.kq[:4, :4].detach() / 0.02
    assert square.norm().item() == pytest.approx(1)
    assert torch.linalg.eigvalsh(square).min() > -1e-6
    assert not net.kq[4:].any()
    assert not net.kq[:, 4:].any()


@pytest.mark.slow
def test_training_reaches_the_global_optimum_of_linear_regression():
    training = {"steps": 1500, "batch_size": 256, "lr": 0.01, "warmup": 50, "eval_every": 1500}
    training |= {"schedule": "cosine"}
    trial = Trial.model_validate({"task": LINE, "model": {"kind": "linear_attention"}, "training": training})
    (end,) = train(trial)
    net = end.learner.net
    assert isinstance(net, LinearAttentionNet)
    seen = {"dim": DIM, "points": POINTS, "noise": 0.5}
    best = 1 / Bound.fill("lsa_matrix", seen, {}).value()
    learned = (net.pv[0, -1] * net.kq).detach()
    torch.testing.assert_close(learned[:DIM, :DIM], best * torch.eye(DIM), rtol=0.05, atol=0.02)
    curve = evaluate(net, trial.task, Evaluation(loops=1, prompts=20_000))
    excess = curve.raw[0, 0] - trial.task.noise_variance
    error = curve.sem[0, 0] * trial.task.variance
    assert np.isfinite(error)
    assert abs(excess - Bound.fill("lsa_min", seen, {}).value()) < 3 * error
    assert excess < 0.6 * Bound.fill("bayes_ridge", seen | {"point": 0}, {}).value(), (
        "far below the error of predicting zero"
    )


@pytest.mark.parametrize(
    ("task", "content"),
    [
        (LINE | {"format": "decoder"}, "x and y in separate tokens"),
        ({"kind": "mixture_regression", "target": "components", "format": "encoder"}, "no pairs"),
        ({"kind": "clustering"}, "no pairs"),
        ({"kind": "pca"}, "no pairs"),
    ],
    ids=["decoder", "components", "clustering", "pca"],
)
def test_prompts_without_one_pair_per_token_are_refused(task: dict[str, Any], content: str):
    message = rf"linear_attention reads one pair .* per token, .* have {content}; write .* format: encoder, or another"
    with pytest.raises(ValueError, match=message):
        Trial.model_validate({"task": task, "model": {"kind": "linear_attention"}})


def test_prompts_with_one_pair_per_token_are_accepted():
    assert Task.model_validate(LINE).whole
    assert Trial.model_validate({"task": LINE, "model": {"kind": "linear_attention"}}).key
