"""Models around plain PyTorch modules, whose layers draw their own weights."""

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.models.layers import End, fresh
from loopscale.models.plain import PlainModel, seeded

PROMPT = Prompt(length=10, dim_in=4, dim_out=2, pairs="interleaved")


class GruNet(nn.Module):
    """As a researcher writes a net who does not know this project."""

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        self.gru = nn.GRU(dim_in, 8, num_layers=2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.scale = nn.Parameter(torch.ones(8))
        self.head = nn.Linear(8, dim_out)

    @override
    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.gru(tokens)
        return self.head(self.norm(states) * self.scale)


class PlainGru(PlainModel):
    """Without a kind, so that no other test finds the model."""

    @override
    def module(self, prompt: Prompt) -> nn.Module:
        return GruNet(prompt.dim_in, prompt.dim_out)


def test_the_seed_determines_the_weights_of_plain_layers_and_the_global_generator_stays():
    before = torch.get_rng_state()
    once, again, other = (PlainGru().build(PROMPT, stream(seed)).state_dict() for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(once[name], again[name]) for name in once)
    assert not torch.equal(once["module.gru.weight_hh_l1"], other["module.gru.weight_hh_l1"])


def test_two_modules_of_one_stream_have_different_weights():
    rng = stream(0)
    first, second = (seeded(lambda: nn.Linear(3, 3), rng) for _ in range(2))
    assert not torch.equal(first.weight, second.weight)


def test_a_plain_module_predicts_in_one_step_and_shows_its_predictions_to_probes():
    net = PlainGru().build(PROMPT, stream(0))
    tokens = torch.randn(3, 10, 4, generator=stream("tokens"))
    assert net(tokens, 1).shape == net.states(tokens, 1).shape == (1, 3, 10, 2)
    with pytest.raises(ValueError, match="2 steps are more than this net's 1 layers"):
        net(tokens, 2)


def test_predictions_stay_in_single_precision_where_a_layer_computes_in_reduced_precision(
    monkeypatch: pytest.MonkeyPatch,
):
    # Without oneDNN, because its bf16 kills the process on machines that announce AMX and then refuse it.
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    net = PlainGru().build(PROMPT, stream(0))
    with torch.autocast("cpu", torch.bfloat16):
        assert net(torch.zeros(3, 10, 4), 1).dtype == torch.float32


def test_a_layer_that_nobody_initialises_is_an_error_with_a_remedy():
    def mixed() -> nn.Module:
        return nn.Sequential(End(4, 4), nn.Linear(4, 4))

    with pytest.raises(
        ValueError, match=r"no part draws the weight 1.weight and 1 more; .*`loopscale.models.plain"
    ):
        fresh(mixed, stream(0))
    with torch.device("meta"):
        assert fresh(mixed, stream(0))[0].weight.is_meta
