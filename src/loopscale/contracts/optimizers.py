"""The contract of every optimizer: its steps, its schedule, its state, its counted work, and its share of a net."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from loopscale.contracts.members import under_test
from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.models.base import Model, Outer
from loopscale.optimizers.base import Optimizer
from loopscale.training import checkpoint
from loopscale.training.checkpoint import Checkpoint
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.cost import HEADER_BYTES, cost
from loopscale.training.loop import Diverged, Learner, learning_rate, train
from loopscale.training.trial import Training, Trial

EVERY = pytest.mark.parametrize("kind", under_test(Optimizer))
MODELS = pytest.mark.parametrize("model", Model.choices())
OPTIMIZER_SETTINGS: list[dict[str, Any]] = [
    {},
    {"nesterov": False},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True},
    {"weight_decay": 0.1},
    {"beta2": 0.95},
    {"adam_rate": 0.1},
    {"smallest_side": 1},
]


def _variants() -> list[Any]:
    """Every optimizer with its defaults and with every setting that it has."""
    return [
        pytest.param(
            {"kind": kind} | settings, id=f"{kind}-{','.join(f'{k}={v}' for k, v in settings.items())}"
        )
        for kind, member in under_test(Optimizer).items()
        for settings in OPTIMIZER_SETTINGS
        if settings.keys() <= member.model_fields.keys()
    ]


VARIANT = pytest.mark.parametrize("optimizer", _variants())


def small_trial(optimizer: Any, **training: Any) -> Trial:
    """A looped net with matrices of both sides of 16 and more."""
    steps = {"steps": 12, "batch_size": 8, "eval_every": 4, "lr": 0.01, "loops": 2, "window": 2}
    return Trial.model_validate(
        {
            "task": {"kind": "linear_regression", "dim": 2, "points": 5},
            "model": {"kind": "looped", "width": 16, "heads": 2},
            "training": steps | {"optimizer": optimizer} | training,
        }
    )


def weights_of(learner: Learner) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in learner.net.named_parameters()}


def moved(learner: Learner, step: int) -> float:
    """The length of a step of the training in the space of weights."""
    before = weights_of(learner)
    learner.learn(step)
    squares = [(after - before[name]).square().sum() for name, after in weights_of(learner).items()]
    return torch.stack(squares).sum().sqrt().item()


@VARIANT
def test_a_step_changes_every_weight_that_has_a_gradient(optimizer: dict[str, Any]):
    learner = Learner(small_trial(optimizer))
    before = weights_of(learner)
    learner.learn(1)
    for name, weight in learner.net.named_parameters():
        assert weight.grad is not None
        assert weight.grad.any()
        assert not torch.equal(weight, before[name]), name


@VARIANT
@pytest.mark.parametrize("precision", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_a_training_resumed_from_its_checkpoint_ends_bitwise_equal(
    optimizer: dict[str, Any], precision: str, tmp_path: Path
):
    trial = small_trial(optimizer, precision=precision, schedule="cosine", warmup=3, clip=0.5)
    store = open_checkpoint_store(tmp_path)
    first, *_, last = train(trial)
    checkpoint.save(store, trial.key, Checkpoint(first.state(), ((4, first.metrics),), 1.0))
    states = [progress.state() for progress in train(trial)]
    checkpoint.save(store, trial.key, Checkpoint(states[0], ((4, first.metrics),), 1.0))
    restored = checkpoint.load(store, trial.key)
    assert restored
    assert restored.state
    *_, resumed = train(trial, restored.state)
    assert resumed.metrics == last.metrics
    end = resumed.state()
    assert all(torch.equal(end.net[name], weight) for name, weight in states[-1].net.items())
    assert end.optimizer["param_groups"] == checkpointed(states[-1].optimizer["param_groups"])
    assert end.optimizer["state"].keys() == states[-1].optimizer["state"].keys()
    for index, moments in states[-1].optimizer["state"].items():
        assert end.optimizer["state"][index].keys() == moments.keys()
        assert all(torch.equal(end.optimizer["state"][index][name], value) for name, value in moments.items())


def checkpointed(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups as a checkpoint keeps them: a pair becomes a list."""
    return [
        {name: list(value) if isinstance(value, tuple) else value for name, value in group.items()}
        for group in groups
    ]


@EVERY
def test_a_state_has_the_format_of_one_optimizer_of_torch(kind: str):
    """Its indices are those of the weights in the net. Each weight has one group, and keeps its state there."""
    learner = Learner(small_trial(kind))
    learner.learn(1)
    found = learner.state(1).optimizer
    weights = list(learner.net.parameters())
    assert found.keys() == {"state", "param_groups"}
    grouped = [index for group in found["param_groups"] for index in group["params"]]
    assert sorted(grouped) == list(range(len(weights)))
    for index, moments in found["state"].items():
        assert all(value.shape in ((), weights[index].shape) for value in moments.values())


@EVERY
def test_the_first_steps_of_a_warm_up_are_smaller(kind: str):
    whole, warm = (Learner(small_trial(kind, warmup=warmup)) for warmup in (0, 10))
    assert moved(warm, 1) == pytest.approx(moved(whole, 1) / 10, rel=1e-2)


@EVERY
def test_every_rate_follows_the_schedule_and_ends_near_zero_along_a_cosine(kind: str):
    trial = small_trial(kind, schedule="cosine", steps=40)
    learner = Learner(trial)
    ratios = [group["lr"] / trial.training.lr for group in learner.optimizer.param_groups]
    lengths = list[float]()
    for step in range(1, 41):
        lengths.append(moved(learner, step))
        for ratio, group in zip(ratios, learner.optimizer.param_groups, strict=True):
            assert group["lr"] == pytest.approx(ratio * learning_rate(trial.training, step))
    assert lengths[-1] < 0.05 * max(lengths)


@EVERY
def test_a_rate_near_zero_changes_almost_nothing(kind: str):
    learner = Learner(small_trial(kind, lr=1e-12, precision="float64"))
    before = weights_of(learner)
    for step in range(1, 4):
        learner.learn(step)
    assert all((after - before[name]).abs().max() < 1e-10 for name, after in weights_of(learner).items())


class Quadratic(nn.Module):
    """A matrix, a vector and a scalar, whose loss is the squared distance to a target."""

    def __init__(self) -> None:
        super().__init__()
        rng = stream("quadratic")
        for name, shape in {"matrix": (24, 16), "vector": (16,), "scalar": ()}.items():
            setattr(self, name, nn.Parameter(torch.zeros(shape)))
            self.register_buffer(f"{name}_target", 0.1 * torch.randn(shape, generator=rng))

    def hidden_matrices(self) -> set[str]:
        return {"matrix"}

    def loss(self) -> Tensor:
        targets = dict(self.named_buffers())
        return sum(
            ((weight - targets[f"{name}_target"]).square().sum() for name, weight in self.named_parameters()),
            start=torch.zeros(()),
        )


@VARIANT
def test_a_quadratic_falls_to_its_minimum(optimizer: dict[str, Any]):
    """The rate falls to zero. Weight decay moves the minimum, so that its bound is wide."""
    net, steps = Quadratic(), 400
    updater = Optimizer.model_validate(optimizer).build(net, 0.05)
    ratios = [group["lr"] / 0.05 for group in updater.param_groups]
    first = net.loss().item()
    for step in range(steps):
        for ratio, group in zip(ratios, updater.param_groups, strict=True):
            group["lr"] = 0.05 * ratio * (1 - step / steps)
        updater.zero_grad()
        net.loss().backward()
        updater.step()
    assert net.loss().item() < (0.02 if "weight_decay" in optimizer else 1e-3) * first


@VARIANT
def test_a_rate_in_a_tensor_takes_the_steps_of_the_same_number(optimizer: dict[str, Any]):
    """As a CUDA graph needs. The tensor stays the rate of its group, and rounding is the only difference of a step."""
    made = Optimizer.model_validate(optimizer)
    if not made.capturable:
        return
    of_number, of_tensor = Quadratic(), Quadratic()
    by_number, by_tensor = made.build(of_number, 0.05), made.build(of_tensor, 0.05)
    ratios = [group["lr"] / 0.05 for group in by_number.param_groups]
    for group in by_tensor.param_groups:
        group["lr"] = torch.tensor(group["lr"])
    rates = [group["lr"] for group in by_tensor.param_groups]
    for step in range(1, 11):
        for ratio, group, rate in zip(ratios, by_number.param_groups, rates, strict=True):
            group["lr"] = 0.05 * ratio / step
            rate.fill_(group["lr"])
        for net, updater in ((of_number, by_number), (of_tensor, by_tensor)):
            updater.zero_grad()
            net.loss().backward()
            updater.step()
        for name, weight in of_number.named_parameters():
            torch.testing.assert_close(of_tensor.get_parameter(name), weight)
        of_tensor.load_state_dict(of_number.state_dict())
    assert all(group["lr"] is rate for group, rate in zip(by_tensor.param_groups, rates, strict=True))


@VARIANT
def test_counted_moments_and_products_equal_those_of_torch(optimizer: dict[str, Any]):
    trial = small_trial(optimizer)
    learner = Learner(trial)
    rules = trial.training.optimizer.assignment(learner.net)
    learner.learn(1)
    kept = dict[str, int]()
    for name, weight in learner.net.named_parameters():
        state = learner.optimizer.state.get(weight, {})
        kept[name] = sum(value is not None and value.shape == weight.shape for value in state.values())
        assert kept[name] == trial.training.optimizer.moments(rules[name]), name
    with FlopCounterMode(display=False) as counter:
        learner.optimizer.step()
    counted = sum(
        trial.training.optimizer.update_flops(rules[name], weight.shape)
        for name, weight in learner.net.named_parameters()
    )
    assert counted == counter.get_total_flops()
    plain = small_trial("adam")
    assert cost(trial).flops_step - cost(plain).flops_step == counted
    moments = sum(4 * kept[name] * weight.numel() for name, weight in learner.net.named_parameters())
    reports = trial.training.steps // trial.training.eval_every
    assert cost(trial).checkpoint_bytes == 4 * cost(trial).parameters + moments + HEADER_BYTES + 120 * reports
    of_adam = 8 * cost(plain).parameters
    assert cost(trial).memory_bytes - cost(plain).memory_bytes == moments - of_adam


@VARIANT
def test_an_optimizer_of_the_same_price_costs_as_much(optimizer: dict[str, Any]):
    trial = small_trial(optimizer)
    same = small_trial(trial.training.optimizer.priced().model_dump())
    assert cost(same).step == cost(trial).step


@EVERY
def test_a_recomputed_step_gives_the_same_weights(kind: str):
    kept, again = (Learner(small_trial(kind, recompute=recompute)) for recompute in (False, True))
    for step in range(1, 4):
        kept.learn(step)
        again.learn(step)
    assert all(torch.equal(weight, weights_of(again)[name]) for name, weight in weights_of(kept).items())


@EVERY
def test_a_rate_that_is_far_too_large_diverges_with_one_line(kind: str):
    with pytest.raises(Diverged) as caught:
        list(train(small_trial(kind, lr=1e35)))
    assert len(str(caught.value).splitlines()) == 1


@VARIANT
def test_an_optimizer_survives_a_round_trip_through_json(optimizer: dict[str, Any]):
    made = Optimizer.model_validate(optimizer)
    assert Optimizer.model_validate(made.model_dump(mode="json")) == made
    trial = small_trial(optimizer)
    again = Trial.model_validate(trial.model_dump(mode="json"))
    assert (again, again.key) == (trial, trial.key)


@EVERY
def test_the_kind_alone_stands_for_an_optimizer_with_its_defaults(kind: str):
    assert Training.model_validate({"optimizer": kind}) == Training.model_validate(
        {"optimizer": {"kind": kind}}
    )


@EVERY
@MODELS
def test_every_weight_of_every_model_has_one_rule_and_one_group(kind: str, model: str):
    optimizer = Optimizer.model_validate({"kind": kind})
    net = Model.model_validate({"kind": model}).build(WIDE_PROMPT, stream(0))
    assert list(optimizer.assignment(net)) == [name for name, _ in net.named_parameters()]
    groups = optimizer.build(net, 0.1).param_groups
    grouped = [id(weight) for group in groups for weight in group["params"]]
    assert sorted(grouped) == sorted(id(weight) for weight in net.parameters())


WIDE_PROMPT = Prompt(length=20, dim_in=19, dim_out=18, pairs="interleaved")
"""With sides beyond Muon's smallest, so that only the place in the net tells hidden matrices from the others."""


@MODELS
def test_hidden_matrices_neither_read_tokens_nor_write_predictions_nor_hold_positions(model: str):
    net = Model.model_validate({"kind": model}).build(WIDE_PROMPT, stream(0))
    weights, hidden = dict(net.named_parameters()), net.hidden_matrices()
    ends = {f"{path}.{name}" for path, name in _weights_of(net, lambda layer: isinstance(layer, Outer))}
    assert hidden <= weights.keys() - ends
    sides = {WIDE_PROMPT.length, WIDE_PROMPT.dim_in, WIDE_PROMPT.dim_out}
    assert all(weights[name].ndim == 2 and not sides & set(weights[name].shape) for name in hidden)


def _weights_of(net: nn.Module, which: Callable[[nn.Module], bool]) -> list[tuple[str, str]]:
    return [
        (path, name)
        for path, layer in net.named_modules()
        if which(layer)
        for name, _ in layer.named_parameters(recurse=False)
    ]
