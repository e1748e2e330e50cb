"""Looped nets: the definition of a loop, truncated gradients, and trials that may truncate."""

import re
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.models.algoformer import Algoformer, AlgoformerNet
from loopscale.models.base import Model
from loopscale.models.looped import Looped, LoopedNet
from loopscale.tasks.base import Task
from loopscale.training.live_memory import LiveMemory
from loopscale.training.trial import Trial

PROMPT = Prompt(length=8, dim_in=3, dim_out=1)
TASK = {"kind": "linear_regression", "dim": 3, "points": 4}


def tokens() -> Tensor:
    return torch.randn(2, 8, 3, generator=stream("tokens"), dtype=torch.float64)


def by_hand(net: LoopedNet | AlgoformerNet, steps: int, first: int) -> Tensor:
    """z <- TF(z + pre(e)) from z = 0. The state is detached from the graph before loop `first`."""
    source = net.read_in(tokens())
    if isinstance(net, AlgoformerNet):
        source = net.pre(source)
    state, outputs = torch.zeros_like(source), []
    for step in range(1, steps + 1):
        if step == first:
            state = state.detach()
        state = net.loop.stack(state + source)
        if step >= first:
            outputs.append(net.read_out(net.post(state) if isinstance(net, AlgoformerNet) else state))
    return torch.stack(outputs)


def gradients(net: torch.nn.Module, output: Tensor) -> dict[str, Tensor]:
    net.zero_grad()
    output.square().mean().backward()
    return {name: weight.grad for name, weight in net.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("model", [Looped(width=16), Algoformer(width=16)], ids=lambda model: model.kind)
@pytest.mark.parametrize("first", [1, 4, 6])
def test_a_truncated_gradient_equals_the_gradient_of_the_last_loops_from_a_fixed_state(
    model: Model, first: int
):
    net = model.build(PROMPT, stream(0)).double()
    assert isinstance(net, LoopedNet | AlgoformerNet)
    truncated = gradients(net, net(tokens(), 6, first, truncate=True))
    expected = gradients(net, by_hand(net, 6, first))
    whole = gradients(net, net(tokens(), 6, first))
    for name, grad in truncated.items():
        torch.testing.assert_close(grad, expected[name], msg=name)
    same = all(torch.allclose(grad, whole[name]) for name, grad in truncated.items())
    assert same == (first == 1), "both gradients agree only if the window contains all loops"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"injection": "none"},
        {"repeat_positions": False},
        {"repeat_norm": False},
        {"injection": "none", "repeat_positions": False, "repeat_norm": False},
    ],
    ids=str,
)
def test_without_layers_before_and_after_an_algoformer_is_a_looped_transformer(settings: dict[str, Any]):
    looped = Looped(**settings).build(PROMPT, stream(0))
    algoformer = Algoformer(pre_layers=0, post_layers=0, **settings).build(PROMPT, stream(1))
    algoformer.load_state_dict(looped.state_dict())
    x = tokens().float()
    torch.testing.assert_close(algoformer(x, 5), looped(x, 5))


def test_without_injection_the_loop_composes_its_blocks():
    net = Looped(injection="none", repeat_positions=False, norm="none", layers=2).build(PROMPT, stream(0))
    assert isinstance(net, LoopedNet)
    x = tokens().float()
    state = net.loop.stack.place(net.read_in(x))
    for output in net(x, 4):
        state = net.loop.stack.run(state)
        torch.testing.assert_close(output, net.read_out(state))


def test_without_repeat_norm_only_the_output_is_normalised():
    net = Looped(repeat_norm=False).build(PROMPT, stream(0))
    assert isinstance(net, LoopedNet)
    x = tokens().float()
    source = net.loop.stack.place(net.read_in(x))
    state = torch.zeros_like(source)
    for output in net(x, 4):
        state = net.loop.stack.run(state + source)
        torch.testing.assert_close(output, net.read_out(net.loop.stack.norm(state)))


@pytest.mark.parametrize(
    ("settings", "parameters"),
    [
        ({"kind": "looped"}, 847_873),
        ({"kind": "gpt2", "layers": 12}, 9_535_233),
        ({"kind": "algoformer"}, 2_532_353),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_nets_of_the_published_sizes_have_the_published_number_of_weights(settings: dict, parameters: int):
    model = Model.model_validate(settings | {"width": 256, "heads": 8})
    with torch.device("meta"):
        net = model.build(Prompt(length=203, dim_in=20, dim_out=1), stream(0))
    assert sum(weight.numel() for weight in net.parameters()) == parameters


@pytest.mark.parametrize("model", [Looped(), Algoformer()], ids=lambda model: model.kind)
def test_the_number_of_weights_does_not_depend_on_the_number_of_loops(model: Model):
    net = model.build(PROMPT, stream(0))
    before = {name: weight.shape for name, weight in net.named_parameters()}
    assert net(tokens().float(), 50).isfinite().all()
    assert {name: weight.shape for name, weight in net.named_parameters()} == before


def test_each_part_of_an_algoformer_has_layers_layers_unless_set():
    net = Algoformer(layers=2, pre_layers=3, post_layers=0).build(PROMPT, stream(0))
    assert isinstance(net, AlgoformerNet)
    parts = (net.pre, net.loop, net.post)
    names = [name for part in parts for name, _ in part.named_modules() if name.endswith(".attention")]
    assert len(names) == 3 + 2 + 0


def test_output_layers_of_a_block_start_with_smaller_weights():
    net = Looped(width=128, layers=8).build(PROMPT, stream(0))
    for name, weight in net.named_parameters():
        if "blocks" in name and weight.ndim == 2:
            std = 0.02 / 4 if name.endswith(("attention.out.weight", "mlp.2.weight")) else 0.02
            assert weight.std().item() == pytest.approx(std, rel=0.05), name


@pytest.mark.parametrize("kind", ["looped", "algoformer", "gpt2", "encoder"])
@pytest.mark.parametrize(
    ("init", "std"),
    [
        ({}, 0.02),
        ({"init_std": 0.1}, 0.1),
        ({"init": "scaled"}, None),
        ({"init": "scaled", "init_gain": 2.0}, None),
    ],
    ids=str,
)
def test_initial_weights_have_the_standard_deviation_of_the_settings(
    kind: str, init: dict[str, Any], std: float | None
):
    model = Model.model_validate({"kind": kind, "width": 128, "layers": 2} | init)
    long = Prompt(length=64, dim_in=3, dim_out=1)
    for name, weight in model.build(long, stream(0)).named_parameters():
        if name.endswith("positions") or ("blocks" in name and weight.ndim == 2):
            inputs = 128 if name.endswith("positions") else weight.shape[1]
            wanted = std or init.get("init_gain", 0.55) / inputs**0.5
            if name.endswith(("attention.out.weight", "mlp.2.weight")):
                wanted /= 2  # sqrt(2 layers)
            assert weight.std().item() == pytest.approx(wanted, rel=0.05), name


def test_another_standard_deviation_multiplies_the_same_random_numbers():
    once, again = (Looped(init_std=std).build(PROMPT, stream(0)) for std in (0.02, 0.1))
    for (name, weight), other in zip(once.named_parameters(), again.parameters(), strict=True):
        factor = 5 if ("blocks" in name and weight.ndim == 2) or name.endswith("positions") else 1
        torch.testing.assert_close(factor * weight, other)


def test_the_scaled_rule_gives_the_weights_of_gpt2_at_its_width():
    assert Looped(init="scaled").std(768) == pytest.approx(0.02, rel=0.01)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"init": "scaled", "init_std": 0.1},
            "init_std 0.1 has no effect with init: scaled; write init_gain",
        ),
        ({"init_gain": 2.0}, "init_gain 2 has no effect with init: normal; write init_std"),
    ],
)
def test_a_setting_of_the_other_rule_is_refused(settings: dict[str, Any], line: str):
    with pytest.raises(ValidationError, match=line):
        Looped.model_validate(settings)


@pytest.mark.parametrize("kind", ["looped", "algoformer"])
def test_a_prompt_longer_than_the_positions_is_an_error(kind: str):
    net = Model.choices()[kind]().build(PROMPT, stream(0))
    with pytest.raises(ValueError, match="9 tokens is longer than the 8 learned positions"):
        net(torch.zeros(1, 9, 3), 2)


@pytest.mark.parametrize("kind", ["looped", "algoformer"])
def test_a_trial_whose_truncation_leaves_a_weight_untrained_is_an_error(kind: str):
    def trial(training: dict[str, Any], **settings: Any) -> Trial:
        return Trial.model_validate(
            {"task": TASK, "model": {"kind": kind} | settings, "training": {"loops": 4} | training}
        )

    with pytest.raises(ValidationError, match=re.escape("window 2 of 4 loops") + ".*truncate to false"):
        trial({"window": 2}, injection="none")
    trial({"window": 4}, injection="none")
    trial({"window": 2, "truncate": False}, injection="none")
    trial({"window": 2}, injection="add")
    once = {"repeat_positions": False}
    if kind == "looped":
        with pytest.raises(ValidationError, match="repeat_positions to true"):
            trial({"window": 2}, **once)
    else:
        trial({"window": 2}, **once)
    trial({"window": 2}, positions="none", **once)


@pytest.mark.parametrize("kind", ["looped", "algoformer"])
def test_an_evaluation_keeps_the_state_of_one_loop(kind: str):
    task = Task.model_validate({"kind": "linear_regression", "dim": 2, "points": 20})
    net = Model.model_validate({"kind": kind, "width": 64, "heads": 2}).build(task.prompt, stream("weights"))
    batch = task.sample(32, stream("prompts"))
    peaks = list[int]()
    for loops in (4, 40):
        with torch.no_grad(), LiveMemory() as memory:
            net.answers(batch, loops)
        peaks.append(memory.peak)
    assert peaks[1] < 1.2 * peaks[0]
