"""Copying as a translation: the target is the source, token by token, mixed with the frequencies of all targets.

Names, numbers and cognates are the same in both languages, so copying has a BLEU (@papineni2002) above 0. A net that is
not above copying has learnt no translation. The validation part chooses the share of the frequencies, at most a half.
So the likeliest token is the copied one, and a greedy translation is the source.
"""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.corpora.subwords import END, SEPARATOR
from loopscale.solvers.base import Solver
from loopscale.tasks.sentence_pairs import CorpusInTokens
from loopscale.tasks.translation import Sentences, unigrams

COPY_SHARES = np.linspace(0.05, 0.5, 10)
"""Candidates for the share of the frequencies beside copying."""


class CopiedSource(Solver, kind="copied_source", titled="copying the source"):
    """Answers the query n tokens after the separator with token n of the source, and with the end after the source.

    Further steps change nothing.
    """

    solves = Sentences

    @property
    @override
    def guesses_from_prior(self) -> bool:
        return True

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        problem: Sentences = batch.problem
        rest, share = _weighted_frequencies(problem.corpus, problem.vocabulary)
        prompts = batch.tokens[..., 0].cpu().numpy()
        copied = _copied(prompts, (prompts == SEPARATOR).argmax(-1))[:, batch.queries.cpu().numpy()]
        chances = rest.repeat(*copied.shape, 1)
        places = torch.from_numpy(copied)[..., None]
        chances.scatter_add_(-1, places, torch.full(places.shape, 1 - share, dtype=chances.dtype))
        return chances.log_().expand(steps, -1, -1, -1)


def _copied(
    tokens: Int[NDArray[np.int64], "prompts length"], separators: Int[NDArray[np.int64], " prompts"]
) -> Int[NDArray[np.int64], "prompts length"]:
    """The token of the source for every place of a prompt; the end before the separator and after the source."""
    from_source = np.arange(tokens.shape[1]) - separators[:, None] + 1
    inside = (from_source >= 1) & (from_source < separators[:, None])
    copied = np.take_along_axis(tokens, np.where(inside, from_source, 0), axis=1)
    return np.where(inside, copied, END)


@lru_cache(maxsize=2)
def _weighted_frequencies(
    corpus: CorpusInTokens, vocabulary: int
) -> tuple[Float[Tensor, " vocabulary"], float]:
    """The frequencies times their share, and the share: that of the least cross entropy on the validation part."""
    tokens, separators = corpus.validation.tokens.numpy(), corpus.validation.separators
    places = np.arange(tokens.shape[1] - 1)
    asked = (places >= separators[:, None]) & (places < corpus.validation.lengths[:, None] - 1)
    wanted = tokens[:, 1:][asked]
    equal = _copied(tokens[:, :-1], separators)[asked] == wanted
    frequencies = unigrams(corpus, vocabulary)
    chances = frequencies.numpy()[wanted]
    nats = [-np.log((1 - share) * equal + share * chances).mean() for share in COPY_SHARES]
    share = float(COPY_SHARES[int(np.argmin(nats))])
    return share * frequencies, share
