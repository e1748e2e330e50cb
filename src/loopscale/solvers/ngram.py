"""A language model of the targets: n-grams with the smoothing of Kneser and Ney, interpolated [@chen1999, section 2.7].

The model predicts a token from the n - 1 tokens before it. A target has separators before its first token, and the
source is not read. Each count c of tokens w after a history h loses a discount D. What the discounts take off belongs
to the distribution after the shorter history h':

    p(w | h) = (max(c(h w) - D, 0) + D · N(h) · p(w | h')) / c(h)

N(h) is the number of different tokens after h. A shorter history counts the different tokens before it, and not the
occurrences. Below the empty history all tokens have equal chances. D is n₁ / (n₁ + 2 n₂), with the numbers n₁ and n₂
of n-grams that are counted once and twice.

The model is the reference of a net that has no source, or the source of another pair: a language model that is worse
knows less than the last words.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.corpora.subwords import SEPARATOR
from loopscale.solvers.base import Solver
from loopscale.tasks.sentence_pairs import CorpusInTokens
from loopscale.tasks.translation import Sentences

HIGHEST_ORDER = 4
"""An n-gram is one integer of 64 bits. Five tokens of a large vocabulary do not fit."""


class Ngram(Solver, kind="ngram", titled="n-gram language model"):
    """Answers every query from the tokens of the target before it. Further steps change nothing."""

    order: int = Field(3, ge=1, le=HIGHEST_ORDER)
    """n, tokens of an n-gram. A prediction depends on the last n - 1 tokens."""

    solves = Sentences

    @property
    @override
    def guesses_from_prior(self) -> bool:
        return True

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        problem: Sentences = batch.problem
        orders = _fitted(problem.corpus, problem.vocabulary, self.order)
        prompts = batch.tokens[..., 0].cpu().numpy()
        separators = (prompts == SEPARATOR).argmax(-1)
        histories = _histories(prompts, separators, self.order)[:, batch.queries.cpu().numpy()]
        chances = np.full((histories[..., 0].size, problem.vocabulary), 1 / problem.vocabulary)
        for counted in orders:
            counted.refine(chances, histories.reshape(len(chances), -1), problem.vocabulary)
        logits = torch.from_numpy(chances).log_().view(*histories.shape[:2], -1)
        return logits.expand(steps, -1, -1, -1)


def _histories(
    tokens: Int[NDArray[np.int64], "prompts length"],
    separators: Int[NDArray[np.int64], " prompts"],
    order: int,
) -> Int[NDArray[np.int64], "prompts length history"]:
    """The last order - 1 tokens at every place, and at least one, the latest last. The source becomes separators."""
    width = max(order - 1, 1)
    target = np.where(np.arange(tokens.shape[1]) >= separators[:, None], tokens, SEPARATOR)
    padded = np.pad(target, ((0, 0), (width - 1, 0)), constant_values=SEPARATOR)
    return np.lib.stride_tricks.sliding_window_view(padded, width, axis=1)


@dataclass(frozen=True, eq=False)
class _Order:
    """The n-grams of one length, grouped by their histories."""

    histories: Int[NDArray[np.int64], " histories"]
    """The histories as numbers, in increasing order."""
    starts: Int[NDArray[np.int64], " histories_and_end"]
    """The place of the first token after every history, and the number of all."""
    tokens: Int[NDArray[np.int64], " ngrams"]
    chances: Float[NDArray[np.float64], " ngrams"]
    """What the discounted count adds to the probability of every token."""
    rests: Float[NDArray[np.float64], " histories"]
    """The weight of the shorter history."""
    length: int
    """Tokens of a history."""

    def refine(
        self,
        chances: Float[NDArray[np.float64], "places vocabulary"],
        histories: Int[NDArray[np.int64], "places history"],
        vocabulary: int,
    ) -> None:
        """Turn the distributions after the shorter histories into those after these, in place."""
        wanted = _as_numbers(histories[:, histories.shape[1] - self.length :], vocabulary)
        found = np.minimum(np.searchsorted(self.histories, wanted), len(self.histories) - 1)
        known = np.flatnonzero(self.histories[found] == wanted)
        found = found[known]
        chances[known] *= self.rests[found, None]
        sizes = self.starts[found + 1] - self.starts[found]
        firsts = np.repeat(self.starts[found] - np.cumsum(sizes) + sizes, sizes)
        places = firsts + np.arange(sizes.sum())
        chances[np.repeat(known, sizes), self.tokens[places]] += self.chances[places]


def _as_numbers(
    tokens: Int[NDArray[np.int64], "rows tokens"], vocabulary: int
) -> Int[NDArray[np.int64], " rows"]:
    """Each row as digits of one number."""
    numbers = np.zeros(len(tokens), np.int64)
    for column in tokens.T:
        numbers = numbers * vocabulary + column
    return numbers


@lru_cache(maxsize=2)
def _fitted(corpus: CorpusInTokens, vocabulary: int, order: int) -> tuple[_Order, ...]:
    """The n-grams of a corpus's training part, from the empty history to the longest."""
    tokens, separators = corpus.train.tokens.numpy(), corpus.train.separators
    places = np.arange(tokens.shape[1] - 1)
    asked = (places >= separators[:, None]) & (places < corpus.train.lengths[:, None] - 1)
    histories = _histories(tokens[:, :-1], separators, order)[asked]
    ngrams = np.column_stack([histories, tokens[:, 1:][asked]])[:, -order:]
    keys, counts = np.unique(_as_numbers(ngrams, vocabulary), return_counts=True)
    found = list[_Order]()
    for length in range(order - 1, -1, -1):
        found.append(_counted(keys, counts, vocabulary, length))
        keys, counts = np.unique(keys % vocabulary**length, return_counts=True)  # different tokens before
    return tuple(reversed(found))


def _counted(
    keys: Int[NDArray[np.int64], " ngrams"],
    counts: Int[NDArray[np.int64], " ngrams"],
    vocabulary: int,
    length: int,
) -> _Order:
    once, twice = (counts == 1).sum(), (counts == 2).sum()
    discount = once / (once + 2 * twice) if once and twice else 0.5
    histories, firsts = np.unique(keys // vocabulary, return_index=True)
    starts = np.append(firsts, len(keys))
    totals = np.add.reduceat(counts, firsts)
    sizes = starts[1:] - starts[:-1]
    chances = (counts - discount) / np.repeat(totals, sizes)
    return _Order(histories, starts, keys % vocabulary, chances, discount * sizes / totals, length)
