"""An n-gram language model adapted to the source: dynamic marginals [@kneser1997].

The n-gram model knows the earlier tokens of a target, and word-by-word translation knows the source. Each token's
probability after a history h is scaled by what the source s says of the token, against its frequency q:

    p(t | h, s) ∝ p(t | h) · (p(t | s) / q(t))^α

At α = 0 the source is not read. The validation part chooses α.

The model is the reference of translation. A net that is worse knows less than single words and the last tokens, so a
net that learns the target language alone is not better.
"""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.solvers.base import Solver
from loopscale.solvers.ngram import HIGHEST_ORDER, Ngram
from loopscale.solvers.word_translation import WordTranslation
from loopscale.tasks.sentence_pairs import CorpusInTokens
from loopscale.tasks.translation import Sentences, unigrams

STRENGTHS = np.linspace(0, 2, 21)
"""Candidates for α."""
WEIGHED_PAIRS = 256
"""Pairs of the validation part that choose α."""
WEIGHED_AT_ONCE = 32


class AdaptedNgram(Solver, kind="adapted_ngram", titled="n-gram model adapted to the source"):
    """Answers every query from the source and the tokens of the target before it. Further steps change nothing."""

    order: int = Field(3, ge=1, le=HIGHEST_ORDER)
    """n, tokens of an n-gram."""

    solves = Sentences

    @property
    @override
    def guesses_from_prior(self) -> bool:
        return True

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        problem: Sentences = batch.problem
        strength = _fitted_strength(problem.corpus, problem.vocabulary, self.order)
        history, source = _experts(batch, self.order)
        return (history + strength * source).log_softmax(-1)[None].expand(steps, -1, -1, -1)


def _experts(
    batch: Batch, order: int
) -> tuple[Float[Tensor, "batch points dim_out"], Float[Tensor, "batch points dim_out"]]:
    """log p(t | h) and log p(t | s) / q(t), for every prompt, query and token."""
    problem: Sentences = batch.problem
    frequencies = unigrams(problem.corpus, problem.vocabulary)
    return (
        Ngram(order=order).predict(batch, 1)[0],
        WordTranslation().predict(batch, 1)[0] - frequencies.log(),
    )


@lru_cache(maxsize=2)
def _fitted_strength(corpus: CorpusInTokens, vocabulary: int, order: int) -> float:
    """The α of the least cross entropy on the validation part."""
    pairs, nats = corpus.validation, np.zeros(len(STRENGTHS))
    for first in range(0, min(len(pairs), WEIGHED_PAIRS), WEIGHED_AT_ONCE):
        rows = torch.arange(first, min(first + WEIGHED_AT_ONCE, len(pairs)))
        tokens = pairs.tokens[rows]
        places = torch.arange(tokens.shape[1] - 1)
        problem = Sentences(pairs, rows, corpus, vocabulary)
        batch = Batch(tokens[:, :-1, None], tokens[:, 1:], places, problem)
        separators, lengths = (
            torch.from_numpy(ends[rows.numpy()]) for ends in (pairs.separators, pairs.lengths)
        )
        asked = (places >= separators[:, None]) & (places < lengths[:, None] - 1)
        targets = batch.targets[asked][:, None]
        history, source = (logits[asked] for logits in _experts(batch, order))
        for number, strength in enumerate(STRENGTHS.tolist()):
            logits = history + strength * source
            nats[number] += float((logits.logsumexp(-1) - logits.gather(-1, targets).squeeze(-1)).sum())
    return float(STRENGTHS[int(np.argmin(nats))])
