"""The sentences of a corpus as sequences of tokens, in the memory of a process."""

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from loopscale.core.seeds import stream
from loopscale.corpora.files import Corpus, TextPair, read_corpus
from loopscale.corpora.number_words import NUMBER_WORDS, number_corpus
from loopscale.corpora.subwords import PADDING, Subwords, subwords_of_corpus, train_subwords
from loopscale.errors import CorpusError

CORPORA_FOLDER = "LOOPSCALE_CORPORA"
"""The environment variable with the folder in which relative names of corpora are looked up first."""


class SentencePairs:
    """A part of a corpus. Pairs with too many tokens are left out, and the others stand in a fixed random order.

    Not a dataclass, because a batch that moves to a device moves the dataclasses of its problem.
    """

    def __init__(
        self,
        tokens: Int[Tensor, "pairs tokens"],
        lengths: NDArray[np.int64],
        separators: NDArray[np.int64],
        texts: tuple[TextPair, ...],
    ) -> None:
        self.tokens = tokens
        """Begin, source, separator, target and end, and then padding."""
        self.lengths = lengths
        """Tokens of every pair, without padding."""
        self.separators = separators
        """The place of the separator of every pair: the first place with a prediction."""
        self.texts = texts

    @property
    def answered(self) -> NDArray[np.int64]:
        """The tokens to predict of every pair: the target and the end."""
        return self.lengths - 1 - self.separators

    def __len__(self) -> int:
        return len(self.lengths)


class CorpusInTokens:
    """All parts of a corpus with their vocabulary. Not a dataclass either."""

    def __init__(
        self, subwords: Subwords, train: SentencePairs, validation: SentencePairs, test: SentencePairs
    ) -> None:
        self.subwords = subwords
        self.train, self.validation, self.test = train, validation, test


def corpus_folder(name: str) -> Path:
    """The folder of a corpus: below the folder of $LOOPSCALE_CORPORA if it is there, else from the current folder."""
    above = os.environ.get(CORPORA_FOLDER)
    if above and (Path(above) / name).is_dir():
        return Path(above) / name
    return Path(name)


@lru_cache(maxsize=4)
def find_corpus(name: str, source: str, target: str) -> Corpus:
    """Raises CorpusError if the corpus is missing or damaged."""
    return number_corpus() if name == NUMBER_WORDS else read_corpus(corpus_folder(name), source, target)


@lru_cache(maxsize=4)
def corpus_in_tokens(
    name: str, source: str, target: str, digest: str | None, vocabulary: int, length: int
) -> CorpusInTokens:
    """The corpus as prompts of at most `length` tokens. Raises CorpusError, also for a corpus with another digest."""
    corpus = find_corpus(name, source, target)
    if digest is not None and corpus.digest != digest:
        raise CorpusError(
            f"the corpus {name} has changed: its digest is {corpus.digest[:16]}, and not {digest[:16]}; "
            "restore its files, or leave digest out"
        )
    own = train_subwords(corpus.train, vocabulary) if name == NUMBER_WORDS else None
    subwords = own or subwords_of_corpus(corpus, vocabulary)
    parts = (_in_tokens(subwords, pairs, length) for pairs in (corpus.train, corpus.validation, corpus.test))
    return CorpusInTokens(subwords, *parts)


def _in_tokens(subwords: Subwords, pairs: tuple[TextPair, ...], length: int) -> SentencePairs:
    order = torch.randperm(len(pairs), generator=stream("order of a corpus")).tolist()
    sequences = subwords.sequences([pairs[number] for number in order])
    # A decoder reads all tokens but the last.
    kept = [place for place, sequence in enumerate(sequences) if len(sequence.tokens) - 1 <= length]
    if not kept:
        raise CorpusError(f"no pair of the corpus has at most {length} tokens; write a larger length")
    tokens = torch.full((len(kept), length + 1), PADDING)
    for row, place in enumerate(kept):
        tokens[row, : len(sequences[place].tokens)] = torch.tensor(sequences[place].tokens)
    return SentencePairs(
        tokens,
        np.array([len(sequences[place].tokens) for place in kept]),
        np.array([sequences[place].separator for place in kept]),
        tuple(pairs[order[place]] for place in kept),
    )
