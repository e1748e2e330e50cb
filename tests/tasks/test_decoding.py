"""Greedy decoding and beams, against an exhaustive search and against nets without keys and values."""

import itertools

import pytest
import torch

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.corpora.subwords import BEGIN, END, PADDING, SEPARATOR
from loopscale.models.base import Model
from loopscale.models.key_values import Reader
from loopscale.tasks.decoding import continue_sentences
from loopscale.tasks.translation import Translation

VOCABULARY = 7
"""Four special tokens and three words."""
STARTS = [torch.tensor([BEGIN, 4, SEPARATOR]), torch.tensor([BEGIN, 5, 6, SEPARATOR])]
NEW = 3
"""Tokens to find."""


def logits_of(tokens: list[int]) -> torch.Tensor:
    """Any distribution that depends on all tokens so far, without special tokens but the end."""
    logits = 2 * torch.randn(VOCABULARY, generator=stream("logits", *tokens))
    logits[[PADDING, BEGIN, SEPARATOR]] = -torch.inf
    return logits


def answer(batch: Batch) -> torch.Tensor:
    return torch.stack([logits_of(row) for row in batch.tokens[..., 0].tolist()])[:, None]


def mean_gain(start: list[int], new: tuple[int, ...]) -> float:
    gains = [
        float(logits_of([*start, *new[:place]]).log_softmax(-1)[token]) for place, token in enumerate(new)
    ]
    return sum(gains) / len(gains)


def sentences() -> list[tuple[int, ...]]:
    """Every continuation that has ended, or has `NEW` tokens."""
    words = (END, 4, 5, 6)
    ended = [
        (*words_before, END)
        for size in range(NEW)
        for words_before in itertools.product(words[1:], repeat=size)
    ]
    return ended + list(itertools.product(words[1:], repeat=NEW))


def test_greedy_takes_the_likeliest_token_each_time():
    for start, found in zip(STARTS, continue_sentences(answer, STARTS, 20), strict=True):
        tokens = start.tolist()
        for token in found:
            assert token == int(logits_of(tokens).argmax())
            tokens.append(token)
        assert found[-1] == END or len(tokens) == 21


@pytest.mark.parametrize("start", STARTS)
def test_a_wide_beam_finds_the_sentence_with_the_largest_mean(start: torch.Tensor):
    (found,) = continue_sentences(answer, [start], len(start) + NEW - 1, beams=64)
    best = max(sentences(), key=lambda new: mean_gain(start.tolist(), new))
    assert tuple(found) == best


def test_a_beam_of_one_is_greedy():
    assert continue_sentences(answer, STARTS, 9, beams=1) == continue_sentences(answer, STARTS, 9)


@pytest.mark.parametrize("kind", ["gpt2", "looped", "algoformer"])
def test_a_net_with_keys_and_values_finds_the_beams_of_a_net_without(kind: str):
    task = Translation()
    settings = {"kind": kind, "width": 16, "heads": 2, "init_std": 0.5}
    net = Model.model_validate(settings).build(task.prompt, stream(0)).double()
    steps = net.depth or 3
    starts = task._starts(task._data().test, torch.arange(6).numpy())
    reader = net.answerer(steps)
    assert isinstance(reader, Reader)
    with torch.no_grad():
        found = continue_sentences(reader, starts, task.length, beams=3)
        whole = continue_sentences(
            lambda batch: net.answers(batch, steps, first=steps)[0], starts, task.length, beams=3
        )
    assert found == whole
    assert any(tokens[-1] == END or len(tokens) > 3 for tokens in found)
