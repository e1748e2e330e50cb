"""Sentences from a predictor of next tokens: greedy, or with a beam of the likeliest beginnings.

A net with keys and values of earlier tokens reads each new token once, also if a beam changes its rows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from loopscale.core.prompt import Batch
from loopscale.corpora.subwords import END, PADDING
from loopscale.tasks.base import Answer


def continue_sentences(
    answer: Answer,
    starts: Sequence[Int[Tensor, " tokens"]],
    length: int,
    beams: int = 1,
    problem: Any = None,
) -> list[list[int]]:
    """The likeliest tokens after every start, up to the end of the sentence or `length` tokens in all.

    Parameters
    ----------
    answer
        The logits of the next token.
    beams
        Beginnings that are kept at a time. 1: always the likeliest token. A beam chooses the sentence with the largest
        mean log-probability of a token, because a sum prefers short sentences.
    problem
        What solvers read beside the prompt.

    Returns
    -------
    list of list of int
        The new tokens with the end, and without padding.
    """
    found = [list[int]() for _ in starts]
    for size in sorted({len(start) for start in starts}):
        places = [place for place, start in enumerate(starts) if len(start) == size]
        # Starts of one length ask at the same place, so they are one batch.
        together = torch.stack([starts[place] for place in places])
        ended = _likeliest(answer, together, length, beams, problem)
        for place, row in zip(places, ended.tolist(), strict=True):
            found[place] = [token for token in row if token != PADDING]
    return found


def _likeliest(
    answer: Answer, starts: Int[Tensor, "starts tokens"], length: int, beams: int, problem: Any
) -> Int[Tensor, "starts new"]:
    """The new tokens after starts of one length; padding follows the end."""
    count, size = starts.shape
    tokens = starts.repeat_interleave(beams, 0)
    sums = torch.full((count, beams), -torch.inf)
    sums[:, 0] = 0.0  # at first all rows of a beam are equal, so one of them counts
    new, ended = torch.zeros(count, beams), torch.zeros(count, beams, dtype=torch.bool)
    while tokens.shape[1] <= length and not ended.all():
        last = torch.tensor([tokens.shape[1] - 1])
        logits = answer(Batch(tokens.unsqueeze(-1), tokens[:, -1:], last, problem))[:, 0]
        gains = logits.float().cpu().log_softmax(-1).view(count, beams, -1)
        gains[ended] = -torch.inf
        gains[..., PADDING] = torch.where(
            ended, 0.0, -torch.inf
        )  # an ended sentence goes on with padding alone
        vocabulary = gains.shape[-1]
        best, chosen = (sums.unsqueeze(-1) + gains).flatten(1).topk(beams)
        rows, next_tokens = chosen // vocabulary, chosen % vocabulary
        sums, new, ended = best, new.gather(1, rows), ended.gather(1, rows)
        new = new + (~ended)
        ended = ended | (next_tokens == END)
        rows = (rows + beams * torch.arange(count).unsqueeze(-1)).flatten()
        tokens = torch.cat([tokens[rows], next_tokens.view(-1, 1)], 1)
    choice = (sums / new.clamp_min(1)).argmax(1) + beams * torch.arange(count)
    return tokens[choice, size:]
