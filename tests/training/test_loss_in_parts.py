"""The loss in parts equals the loss of all logits at once, with all gradients."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from loopscale.training import objective as training_loss
from loopscale.training.objective import objective
from loopscale.training.trial import Trial

MODELS: list[dict[str, Any]] = [
    {"kind": "gpt2", "layers": 2},
    {"kind": "gpt2", "layers": 2, "tied": True, "registers": 2},
    {"kind": "looped"},
    {"kind": "algoformer", "tied": True},
    {"kind": "algoformer", "post_layers": 0},
]


def _trial(model: dict[str, Any]) -> Trial:
    settings = {"width": 8, "heads": 2, "init_std": 0.2} | model
    training = {"loops": 3, "window": 2, "batch_size": 5, "precision": "float64"}
    return Trial.model_validate({"task": {"kind": "translation"}, "model": settings, "training": training})


@pytest.mark.parametrize("model", MODELS, ids=lambda model: " ".join(map(str, model.values())))
def test_parts_give_the_loss_and_the_gradients_of_all_logits(
    model: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    trial = _trial(model)
    batch = trial.task.training_batch(5, seed=0, number=1).for_nets("cpu", torch.float64)
    found = list[tuple[torch.Tensor, dict[str, torch.Tensor | None]]]()
    for size in (1, 2**30, None):
        net = trial.net().double()
        if size is None:
            steps = trial.steps_per_prompt
            first, truncate = (steps, False) if net.depth else (steps - 1, True)
            loss = trial.task.loss(net.answers(batch, steps, first, truncate), batch).mean()
        else:
            monkeypatch.setattr(training_loss, "PART_BYTES", size)
            loss = objective(net, trial, batch)
        loss.backward()
        found.append((loss.detach(), {name: weight.grad for name, weight in net.named_parameters()}))
    for loss, gradients in found[:2]:
        torch.testing.assert_close(loss, found[2][0])
        torch.testing.assert_close(gradients, found[2][1])
        assert all(gradient is not None for gradient in gradients.values())


def test_queries_without_a_weight_have_no_logits():
    trial = _trial({"kind": "gpt2", "layers": 1})
    batch = trial.task.training_batch(5, seed=0, number=1).for_nets("cpu", torch.float64)
    net, seen = trial.net().double(), list[int]()
    predictions = net.read_out.predictions

    def counted(kept: torch.Tensor) -> torch.Tensor:
        seen.append(kept.shape[1])
        return predictions(kept)

    net.read_out.predictions = counted
    objective(net, trial, batch)
    assert sum(seen) == len(batch.weighted) == int((batch.weights > 0).sum()) < batch.targets.numel()


def test_a_loss_without_weights_is_no_loss_in_parts(monkeypatch: pytest.MonkeyPatch):
    trial = _trial({"kind": "gpt2", "layers": 1})
    batch = trial.task.training_batch(5, seed=0, number=1).for_nets("cpu", torch.float64)
    other = replace(batch, weights=torch.zeros_like(batch.weights))
    assert objective(trial.net().double(), trial, other) == 0
