"""Which weights are Muon's, and the steps of Muon beside a singular value decomposition and beside torch."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from loopscale.contracts.optimizers import Quadratic, small_trial
from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.models.base import Model
from loopscale.models.plain import PlainNet
from loopscale.optimizers.muon import Muon, Together
from loopscale.training.cost import cost
from loopscale.training.loop import Learner

PROMPT = Prompt(length=10, dim_in=4, dim_out=2, pairs="interleaved")
OF_A_BLOCK = ["attention.out.weight", "attention.qkv.weight", "mlp.0.weight", "mlp.2.weight"]


def of_muon(kind: str, optimizer: Muon | None = None, **settings: Any) -> list[str]:
    net = Model.model_validate({"kind": kind} | settings).build(PROMPT, stream(0))
    return [name for name, rule in (optimizer or Muon()).assignment(net).items() if rule == "muon"]


@pytest.mark.parametrize(
    ("kind", "blocks"),
    [
        ("gpt2", [f"stack.blocks.{n}" for n in range(3)]),
        ("encoder", [f"stack.blocks.{n}" for n in range(3)]),
        ("looped", [f"loop.stack.blocks.{n}" for n in range(3)]),
        (
            "algoformer",
            [f"{part}.blocks.{n}" for part in ("pre", "loop.stack", "post") for n in range(3)],
        ),
    ],
)
def test_the_four_matrices_of_every_block_are_muons_and_nothing_else_is(kind: str, blocks: list[str]):
    wanted = [f"{block}.{name}" for block in blocks for name in OF_A_BLOCK]
    assert sorted(of_muon(kind, layers=3, registers=2)) == sorted(wanted)


def test_the_gates_of_an_lstm_are_muons():
    names = [f"layers.{n}.weight_{side}_l0" for n in range(2) for side in ("ih", "hh")]
    assert sorted(of_muon("lstm", layers=2)) == sorted(names)


@pytest.mark.parametrize("kind", ["lista", "lista_cp", "lista_vm", "linear_attention"])
def test_a_net_without_hidden_matrices_is_adams(kind: str):
    assert of_muon(kind, Muon(smallest_side=1)) == []


def test_matrices_with_a_small_side_are_adams():
    assert of_muon("looped", width=16, heads=2, mlp_width=15) == [
        "loop.stack.blocks.0.attention.qkv.weight",
        "loop.stack.blocks.0.attention.out.weight",
    ]
    assert of_muon("looped", width=8, heads=2) == []
    assert len(of_muon("looped", Muon(smallest_side=8), width=8, heads=2)) == 4


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, 32), nn.Linear(32, 24), nn.Conv1d(10, 10, 3, padding=1), nn.Linear(24, 2)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layers(tokens)


def test_the_first_and_the_last_layer_of_a_plain_module_are_adams():
    from loopscale.models.plain import PlainModel

    class Plain(PlainModel):
        def module(self, prompt: Prompt) -> nn.Module:
            return Sequence()

    net = Plain().build(PROMPT, stream(0))
    assert isinstance(net, PlainNet)
    rules = Muon().assignment(net)
    assert [name for name, rule in rules.items() if rule == "muon"] == ["module.layers.1.weight"]


def test_a_step_has_singular_values_near_one_times_the_scaled_rate():
    """Of Newton-Schulz in bfloat16, the singular values lie between 0.7 and 1.2."""
    net, lr = Quadratic(), 0.5
    updater = Muon().build(net, lr)
    net.loss().backward()
    before = net.matrix.detach().clone()
    updater.step()
    left, _, right = torch.linalg.svd(before - net.matrix.detach(), full_matrices=False)
    gradient = net.matrix.grad
    assert gradient is not None
    scaled = torch.linalg.svdvals(before - net.matrix.detach()) / (lr * 0.2 * 24**0.5)
    assert scaled.min() > 0.6
    assert scaled.max() < 1.3
    aligned = left.T @ gradient @ right.T
    assert (aligned.diagonal() > 0).all()


def test_the_weights_are_those_of_two_optimizers_of_torch():
    together, apart = Quadratic(), Quadratic()
    updater = Muon(momentum=0.9, weight_decay=0.1, adam_rate=0.5, beta2=0.95).build(together, 0.02)
    assert isinstance(updater, Together)
    parts = [
        torch.optim.Muon(
            [apart.matrix], lr=0.02, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.Adam([apart.vector, apart.scalar], lr=0.01, betas=(0.9, 0.95), fused=True),
    ]
    for _ in range(5):
        updater.zero_grad()
        together.loss().backward()
        updater.step()
        for part in parts:
            part.zero_grad()
        apart.loss().backward()
        for part in parts:
            part.step()
    for name, weight in together.named_parameters():
        assert torch.equal(weight, apart.get_parameter(name)), name


def test_a_state_of_other_groups_is_refused():
    full, few = (Learner(small_trial({"kind": "muon", "smallest_side": side})).optimizer for side in (16, 32))
    with pytest.raises(ValueError, match="other groups"):
        full.load_state_dict(few.state_dict())
    none = Learner(small_trial({"kind": "muon", "smallest_side": 64})).optimizer
    with pytest.raises(ValueError, match="other groups of weights"):
        full.load_state_dict(none.state_dict())


def test_the_rate_of_adams_weights_is_a_multiple_of_the_rate_of_the_training():
    learner = Learner(small_trial({"kind": "muon", "adam_rate": 0.25}, lr=0.04, warmup=2))
    learner.learn(1)
    assert [group["lr"] for group in learner.optimizer.param_groups] == [0.02, 0.005]


def test_costs_count_newton_schulz_steps_and_one_moment_for_each_matrix():
    plain, muon = cost(small_trial("adam")), cost(small_trial("muon"))
    qkv, out, mlp = (16, 48), (16, 16), (16, 64)
    products = sum(
        5 * (2 * m * m * n + 2 * m**3 + 2 * m * m * n) for m, n in Counter([qkv, out, mlp, mlp]).elements()
    )
    numbers = 16 * (48 + 16 + 64 + 64)
    assert muon.flops_step - plain.flops_step == products
    assert muon.step.calls - plain.step.calls == 4 * (9 + 3 * 5)
    assert plain.memory_bytes - muon.memory_bytes == 4 * numbers
    assert plain.checkpoint_bytes - muon.checkpoint_bytes == 4 * numbers
    assert muon.step.size() > plain.step.size()
