"""Word-by-word translation without order: the first model of @brown1993 (IBM model 1), mixed with frequencies.

Every token of a target comes from one token of its source, or from the empty word, with equal chances. So the
probability of a token t is the mean of p(t | s) over the tokens s of the source and the empty word. Expectation
maximisation on the training part estimates p(t | s). A share of the frequencies of all targets is mixed in, because
pairs of held-out sentences have tokens that never met. The validation part chooses the share.

The model knows no earlier token of the target. `adapted_ngram` joins this model with a language model.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.corpora.subwords import PADDING, SEPARATOR
from loopscale.solvers.base import Solver
from loopscale.tasks.sentence_pairs import CorpusInTokens, SentencePairs
from loopscale.tasks.translation import Sentences, unigrams

ITERATIONS = 6
"""Iterations of expectation maximisation. More iterations fit rare words of the training part alone."""
EMPTY_WORD = PADDING
"""The number of the empty word among source tokens, because no source has padding."""
FREQUENCY_SHARES = np.linspace(0.05, 0.95, 19)
"""Candidates for the share of the frequencies."""


class WordTranslation(Solver, kind="word_translation", titled="word-by-word translation"):
    """Answers every query of a prompt with the same distribution. Further steps change nothing."""

    solves = Sentences

    @property
    @override
    def guesses_from_prior(self) -> bool:
        return True

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        problem: Sentences = batch.problem
        model = _fitted(problem.corpus, problem.vocabulary)
        prompts = batch.tokens[..., 0].cpu().numpy()
        separators = (prompts == SEPARATOR).argmax(-1).tolist()
        sources = [prompt[1:end] for prompt, end in zip(prompts, separators, strict=True)]
        rows = np.stack([model.of_source(_with_empty_word(source)) for source in sources])
        logits = torch.from_numpy(rows).log()
        return logits[None, :, None].expand(steps, -1, len(batch.queries), -1)


@dataclass(frozen=True, eq=False)
class _Lexicon:
    """p(t | s) for the pairs of tokens that met in training, sorted by s and then by t."""

    targets: NDArray[np.int64]
    chances: NDArray[np.float64]
    starts: NDArray[np.int64]
    """The first pair of every s, and the number of pairs at the end."""
    frequencies: NDArray[np.float64]
    share: float = 0.5
    """The share of the frequencies."""

    def from_words(self, source: NDArray[np.int64]) -> NDArray[np.float64]:
        """The mean of p(t | s) over a source, for every t."""
        starts: list[int] = self.starts.tolist()
        places = np.concatenate([np.arange(starts[s], starts[s + 1]) for s in source.tolist()])
        sums = np.bincount(self.targets[places], self.chances[places], len(self.frequencies))
        return sums / len(source)

    def of_source(self, source: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability of every token in a target of the source."""
        words = self.from_words(source)
        return (1 - self.share) * words + (
            self.share + (1 - self.share) * (1 - words.sum())
        ) * self.frequencies


def _source(pairs: SentencePairs, row: int) -> NDArray[np.int64]:
    """The empty word and the tokens of a pair's source."""
    return _with_empty_word(pairs.tokens[row, 1 : int(pairs.separators[row])].numpy())


def _with_empty_word(source: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[EMPTY_WORD], source[source != PADDING]])


@lru_cache(maxsize=2)
def _fitted(corpus: CorpusInTokens, vocabulary: int) -> _Lexicon:
    """The lexicon of a corpus."""
    pairs = corpus.train
    sources, targets, sizes = list[NDArray[np.int64]](), list[NDArray[np.int64]](), list[int]()
    for row in range(len(pairs)):
        source = _source(pairs, row)
        target = pairs.tokens[row, int(pairs.separators[row]) + 1 : int(pairs.lengths[row])].numpy()
        sources.append(np.tile(source, len(target)))
        targets.append(np.repeat(target, len(source)))
        sizes += [len(source)] * len(target)
    keys, links = np.unique(
        np.concatenate(sources) * vocabulary + np.concatenate(targets), return_inverse=True
    )
    of_source, groups = keys // vocabulary, np.cumsum([0, *sizes[:-1]])
    chances = np.full(len(keys), 1 / vocabulary)
    for _ in range(ITERATIONS):
        each = chances[links]
        counts = np.bincount(links, each / np.repeat(np.add.reduceat(each, groups), sizes), len(keys))
        chances = counts / np.bincount(of_source, counts, vocabulary)[of_source]
    starts = np.searchsorted(of_source, np.arange(vocabulary + 1))
    lexicon = _Lexicon(keys % vocabulary, chances, starts, unigrams(corpus, vocabulary).numpy())
    return _with_best_share(lexicon, corpus.validation)


def _with_best_share(lexicon: _Lexicon, pairs: SentencePairs) -> _Lexicon:
    """The lexicon with the share of the least cross entropy on the validation part."""
    words, frequencies = list[NDArray[np.float64]](), list[NDArray[np.float64]]()
    for row in range(len(pairs)):
        target = pairs.tokens[row, int(pairs.separators[row]) + 1 : int(pairs.lengths[row])].numpy()
        words.append(lexicon.from_words(_source(pairs, row))[target])
        frequencies.append(lexicon.frequencies[target])
    by_words, by_frequency = np.concatenate(words), np.concatenate(frequencies)
    nats = [-np.log((1 - share) * by_words + share * by_frequency).mean() for share in FREQUENCY_SHARES]
    best = float(FREQUENCY_SHARES[int(np.argmin(nats))])
    return _Lexicon(lexicon.targets, lexicon.chances, lexicon.starts, lexicon.frequencies, best)
