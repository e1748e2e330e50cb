"""Nets that read a growing prompt in parts answer as on the whole prompt."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from loopscale.core.prompt import Batch, Prompt
from loopscale.core.seeds import stream
from loopscale.evaluate import outcomes
from loopscale.models import key_values
from loopscale.models.base import Model, Net
from loopscale.models.key_values import KeyValues, Reader
from loopscale.models.layers import TransformerNet
from loopscale.tasks.base import Task

PROMPT = Prompt(length=40, dim_in=3, dim_out=2)
SETTINGS: list[dict[str, Any]] = [
    {"kind": "gpt2", "layers": 3},
    {"kind": "gpt2", "layers": 2, "registers": 3},
    {"kind": "gpt2", "layers": 2, "attention": ["softmax", "relu", "linear"], "norm": "none"},
    {"kind": "gpt2", "layers": 2, "attention": "relu", "normaliser": "none", "mlp_width": 0},
    {"kind": "gpt2", "layers": 2, "positions": "none", "biases": False},
    {"kind": "looped", "layers": 2},
    {"kind": "looped", "injection": "none", "registers": 2},
    {"kind": "looped", "repeat_positions": False, "repeat_norm": False},
    {"kind": "algoformer", "layers": 2},
    {"kind": "algoformer", "pre_layers": 0, "registers": 1},
    {"kind": "algoformer", "post_layers": 0, "repeat_positions": False},
]


def built(settings: dict[str, Any], prompt: Prompt = PROMPT) -> Net:
    """A net in float64 whose weights are large, so that attention has an effect."""
    net = Model.model_validate({"width": 8, "heads": 2} | settings).build(prompt, stream(0)).double()
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=stream("weights", number)))
    return net


def prefixes(tokens: Tensor, sizes: list[int]) -> Iterator[Batch]:
    """Batches that ask at the last token of growing prefixes. The later tokens are 0, as in a game."""
    for size in sizes:
        known = torch.cat([tokens[:, :size], torch.zeros_like(tokens[:, size:])], 1)
        yield Batch(known, torch.zeros(len(tokens), 1, 2), torch.tensor([size - 1]), None)


def some_tokens(name: str = "tokens", batch: int = 4) -> Tensor:
    return torch.randn(batch, PROMPT.length, PROMPT.dim_in, generator=stream(name)).double()


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(map(str, settings.values())))
def test_a_prompt_in_parts_has_the_answers_of_the_whole_prompt(settings: dict[str, Any]):
    net, steps = built(settings), settings.get("layers", 3)
    answer = net.answerer(steps)
    assert isinstance(answer, Reader)
    with torch.no_grad():
        for batch in prefixes(some_tokens(), [1, 2, 3, 7, 8, 20, 39, 40]):
            whole = net.answers(batch, steps, first=steps)[0]
            torch.testing.assert_close(answer(batch), whole, rtol=1e-10, atol=1e-10)


def test_only_the_new_tokens_pass_through_the_net(monkeypatch: pytest.MonkeyPatch):
    net = built({"kind": "gpt2", "layers": 2})
    assert isinstance(net, TransformerNet)
    sizes = list[int]()
    outputs = net.outputs

    def counted(tokens: Tensor, *others: Any) -> Tensor:
        sizes.append(tokens.shape[1])
        return outputs(tokens, *others)

    monkeypatch.setattr(
        net, "outputs", lambda tokens, *others, **named: counted(tokens, *others, *named.values())
    )
    answer = net.answerer(2)
    for batch in prefixes(some_tokens(), [1, 2, 5, 40]):
        answer(batch)
    assert sizes == [1, 1, 3, 35]


def test_other_prompts_are_read_from_their_start():
    """The answers stay right if a caller changes an earlier token, asks again, or changes the number of prompts."""
    net = built({"kind": "looped"})
    answer, tokens = net.answerer(3), some_tokens()
    changed = tokens.clone()
    changed[1, 2] += 1
    order = [(tokens, 5), (tokens, 8), (changed, 9), (tokens, 10), (tokens, 10), (tokens, 4), (tokens[:2], 6)]
    with torch.no_grad():
        for some, size in order:
            (batch,) = prefixes(some, [size])
            torch.testing.assert_close(
                answer(batch), net.answers(batch, 3, first=3)[0], rtol=1e-10, atol=1e-10
            )


def test_a_caller_may_write_into_the_tokens_of_its_last_prompt():
    net = built({"kind": "gpt2", "layers": 2})
    answer, tokens = net.answerer(2), some_tokens()
    with torch.no_grad():
        for position in (3, 1):  # the second call changes a token that is read already
            tokens[0, position] += 1
            batch = Batch(tokens, torch.zeros(4, 1, 2), torch.tensor([5 + 10 // position]), None)
            torch.testing.assert_close(
                answer(batch), net.answers(batch, 2, first=2)[0], rtol=1e-10, atol=1e-10
            )


def test_a_net_keeps_nothing_after_a_pass():
    net = built({"kind": "algoformer"})
    assert isinstance(net, TransformerNet)
    (batch,) = prefixes(some_tokens(), [6])
    whole = net.answers(batch, 2)
    past = KeyValues()
    with pytest.raises(ValueError, match="longer than the 40 learned positions"):
        net.further(torch.zeros(4, 41, 3).double(), torch.tensor([0]), 2, past)
    net.answerer(2)(batch)
    assert torch.equal(net.answers(batch, 2), whole)


def test_a_net_without_room_for_the_whole_prompt_reads_prefixes(monkeypatch: pytest.MonkeyPatch):
    net = built({"kind": "gpt2", "layers": 2})
    # Keys and values of 8 numbers of 8 bytes, in 2 layers, for 4 prompts of 40 tokens.
    needed = 2 * 8 * 8 * 2 * 4 * 40
    for most, kept in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(key_values, "MOST_BYTES", most)
        answer = net.answerer(2)
        assert isinstance(answer, Reader)
        with torch.no_grad():
            for batch in prefixes(some_tokens(), [3, 6, 7]):
                torch.testing.assert_close(answer(batch), net.answers(batch, 2, first=2)[0])
        assert (answer._past is not None) == kept


def test_a_net_whose_tokens_see_their_number_reads_whole_prompts():
    net = built({"kind": "gpt2", "layers": 2, "attention": "relu", "normaliser": "length"})
    assert isinstance(net, TransformerNet)
    assert not isinstance(net.answerer(2), Reader)
    with pytest.raises(ValueError, match="give the whole prompt"):
        net.further(some_tokens(), torch.tensor([0]), 2, KeyValues())


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "task", [{"kind": "bandit", "points": 12, "round_tokens": 2}, {"kind": "mdp", "points": 4}]
)
def test_play_is_the_same_in_parts_and_with_whole_prefixes(
    task: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    posed = Task.model_validate(task)
    net = built({"kind": "looped"}, posed.prompt).float()
    in_parts = outcomes(net, posed, 3)
    monkeypatch.setattr(TransformerNet, "answerer", Net.answerer)
    whole = outcomes(net, posed, 3)
    assert in_parts == pytest.approx(whole, rel=1e-4, abs=1e-4)
    assert in_parts["play_regret"] > 0
