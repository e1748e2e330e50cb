"""Translation by one decoder: begin, source, separator, target, end. The task is the next token of the target.

Source: @gao2024, section 5.5 (German to English). A prompt is a pair of sentences, and its error is the cross entropy
of all tokens of the target and of the end. Weights make the mean over prompts a mean over tokens, in nats. The error is
this mean over log V, so zero logits cost 1. Padding follows the end. A decoder never sees later tokens, so padding
changes no prediction, and has weight 0, as the source has.

Training takes the training part epoch by epoch, each in an order of its own. Batches hold pairs of similar length:
the pairs of `POOL` batches are sorted by length, and the batches follow each other in random order. The batch of a step
depends on the seed and the step alone, so a resumed training sees the same sentences.

`sources: none` trains a language model of the target side, and `sources: other` gives every target the source of
another pair. Both say what a net knows without translating. The measure `other_source` asks a net that was trained with
its own sources: how much its error grows if sources are exchanged, in nats a token.

The validation part serves choices during a study, and the test part serves results. BLEU and chrF judge greedy
translations of `TRANSLATED` sentences of the test part, and `bleu_beam` judges those of a beam.
"""

import contextlib
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor
from typing_extensions import override

from loopscale.core.config import is_tree
from loopscale.core.prompt import Batch, Predictor, Prompt
from loopscale.core.prompt_sets import Purpose
from loopscale.core.seeds import stream
from loopscale.corpora.number_words import NUMBER_WORDS
from loopscale.corpora.scores import score_translations
from loopscale.corpora.subwords import BEGIN, END, PADDING, SMALLEST_VOCABULARY, SPECIAL_TOKENS
from loopscale.errors import CorpusError, UsageError
from loopscale.tasks.base import Answer, Errors, Example, FloorRule, Measures, Prediction, Task
from loopscale.tasks.decoding import continue_sentences
from loopscale.tasks.sentence_pairs import CorpusInTokens, SentencePairs, corpus_in_tokens, find_corpus

POOL = 50
"""Batches whose pairs are sorted by length together."""
ROUNDED = 16
"""The tokens of a batch are a multiple of this number, up to the length of a prompt."""
TRANSLATED = 256
"""Sentences that a net translates."""
BEAMS = 4
"""Beginnings in a beam."""
SHOWN_TRANSLATIONS = 5
"""Translations that a report shows."""
GROUPS = 16
"""Groups of sentences, each left out once for the standard errors of BLEU and chrF."""


@dataclass(frozen=True)
class Sentences:
    """The pairs of a batch, for solvers and probes."""

    pairs: SentencePairs
    rows: Int[Tensor, " batch"]
    """The numbers of the batch's pairs."""
    corpus: CorpusInTokens
    vocabulary: int


class Translation(Task, kind="translation"):
    corpus: str = NUMBER_WORDS
    """The folder of a corpus, as `loopscale corpus` makes it. A relative name is looked up in the folder of
    $LOOPSCALE_CORPORA, and then from the current folder. numbers: number words, a small corpus without files."""
    digest: str | None = None
    """The hash of the corpus's files. A study fills it in, and a trial is known by it, wherever the corpus lies."""
    languages: tuple[str, str] = ("de", "en")
    """Source and target: the endings of the corpus's files."""
    vocabulary: int = Field(448, ge=SMALLEST_VOCABULARY)
    """V, sub-words of both languages together, with special tokens and all bytes."""
    length: PositiveInt = Field(32, ge=4)
    """Tokens of a prompt. Pairs with more tokens are left out of all parts."""
    sources: Literal["own", "none", "other"] = "own"
    """The source before a target: its own, none (a language model of the targets), or that of another pair."""
    places: ClassVar[frozenset[str]] = frozenset({"corpus"})

    @model_validator(mode="before")
    @classmethod
    def _with_digest(cls, data: Any) -> Any:
        if not is_tree(data) or data.get("digest") is not None:
            return data
        name, languages = data.get("corpus", NUMBER_WORDS), data.get("languages", ("de", "en"))
        if not isinstance(name, str) or name == NUMBER_WORDS or len(languages) != 2:
            return data
        with contextlib.suppress(CorpusError):  # the first prompt raises the error, with its remedy
            return {**data, "digest": find_corpus(name, *map(str, languages)).digest}
        return data

    @property
    @override
    def prompt(self) -> Prompt:
        return Prompt(self.length, dim_in=1, dim_out=self.vocabulary, vocabulary=self.vocabulary)

    @property
    @override
    def seen(self) -> tuple[int, ...]:
        """One error a prompt."""
        return (0,)

    @property
    @override
    def variance(self) -> float:
        return math.log(self.vocabulary)

    @property
    @override
    def noise_variance(self) -> float:
        """0, so `excess` equals the error. The entropy of a language is unknown."""
        return 0.0

    @property
    @override
    def floor_rule(self) -> FloorRule | None:
        """A language model, which is adapted to the source if a net sees its own source."""
        return FloorRule("reference", {"kind": "adapted_ngram" if self.sources == "own" else "ngram"})

    @property
    @override
    def fixed_guess(self) -> Float[Tensor, "points dim_out"]:
        """The frequencies of the targets' tokens in the training part, as logits."""
        return unigrams(self._data(), self.vocabulary).log().float().expand(self.length, -1)

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        """Pairs of the training part, drawn with replacement."""
        pairs = self._data().train
        rows = torch.randint(len(pairs), (batch_size,), generator=rng).numpy()
        return self._batch(pairs, rows, self.length, float(pairs.answered[rows].mean()))

    @override
    def training_batch(self, size: int, seed: int, number: int) -> Batch:
        pairs = self._data().train
        rows = _epoch_rows(pairs, size, seed, number)
        longest = int(pairs.lengths[rows].max()) - 1
        length = min(self.length, -(-longest // ROUNDED) * ROUNDED)
        return self._batch(pairs, rows, length, float(pairs.answered[rows].mean()))

    @override
    def typical_batch(self, size: int) -> Batch:
        """Equal prompts of the mean length, with the mean number of targets."""
        pairs = self._data().train
        answered = math.ceil(pairs.answered.mean())
        tokens_read = answered + 1 if self.sources == "none" else math.ceil(pairs.lengths.mean()) - 1
        length = min(self.length, -(-tokens_read // ROUNDED) * ROUNDED)
        weights = (torch.arange(length) >= length - answered).float().expand(size, -1)
        tokens = torch.full((size, length, 1), BEGIN)
        return Batch(tokens, tokens.squeeze(-1), torch.arange(length), None, weights / answered)

    @override
    def held_out(self, purpose: Purpose, prompts: int, block: range, rng: torch.Generator) -> Batch:
        pairs = self._part(purpose)
        if prompts > len(pairs):
            part, setting = (
                ("validation", "") if purpose == "validate" else ("test", "; lower evaluate.prompts")
            )
            raise UsageError(
                f"the {part} part has {len(pairs)} pairs of at most {self.length} tokens, and {prompts} are "
                f"needed{setting}"
            )
        mean = float(pairs.answered[:prompts].mean())
        return self._batch(pairs, np.array(block), self.length, mean)

    @override
    def easier(self, dim: int, points: int) -> "Task":
        raise ValueError("there is no easier task with fewer words; leave curriculum out")

    @override
    def raw_error(self, prediction: Prediction, batch: Batch) -> Errors:
        """The cross entropy of every prompt in nats, over the mean number of tokens of a target."""
        assert batch.weights is not None
        if prediction.dim() == 4 and prediction.stride(0) == 0:  # a solver whose further steps change nothing
            return self.raw_error(prediction[0], batch).expand(len(prediction), -1, -1)
        targets, weights = batch.targets.flatten(), batch.weights.flatten().to(prediction)
        rows = batch.weighted  # sources and padding have weight 0
        if rows is not None and len(rows) == len(weights):
            rows = None
        if rows is not None:
            targets, weights = targets[rows], weights[rows]
        errors = list[Tensor]()
        for logits in prediction.reshape(-1, *prediction.shape[-3:]):  # the logits of all steps are large
            asked = logits.flatten(0, 1)
            asked = asked if rows is None else asked[rows]
            nats = (asked.logsumexp(-1) - asked.gather(-1, targets.unsqueeze(-1)).squeeze(-1)) * weights
            if rows is not None:
                nats = nats.new_zeros(batch.weights.numel()).index_put((rows,), nats)
            errors.append(nats.view(batch.weights.shape).sum(-1, keepdim=True))
        return torch.stack(errors).view(*prediction.shape[:-2], 1)

    @override
    def measures(self, prediction: Prediction, batch: Batch) -> Measures:
        """`nats_per_character`: with one character for the end. Compares vocabularies."""
        there: Sentences = batch.problem
        rows: list[int] = there.rows.tolist()
        tokens = float(there.pairs.answered[rows].sum())
        characters = sum(len(there.pairs.texts[row][1]) + 1 for row in rows)
        return {"nats_per_character": self.raw_error(prediction, batch).squeeze(-1) * (tokens / characters)}

    @override
    def probes(self, predictor: Predictor, batch: Batch, steps: int) -> Measures:
        """`other_source`: the error with the source of another pair, less the error, in nats a token."""
        if self.sources != "own":
            return {}
        there: Sentences = batch.problem
        rows = there.rows.cpu().numpy()
        swapped = self._assembled(there.pairs, rows, _donors(there.pairs, rows), self.length, weight=1.0)
        other = batch.asking(
            swapped.tokens.to(batch.tokens.device), batch.targets, problem=there, weights=batch.weights
        )
        own = self.raw_error(predictor.predict(batch, steps), batch)
        return {"other_source": (self.raw_error(predictor.predict(other, steps), other) - own).squeeze(-1)}

    @property
    @override
    def probe_names(self) -> tuple[str, ...]:
        return ("other_source",) if self.sources == "own" else ()

    @property
    @override
    def games(self) -> int:
        return TRANSLATED

    @property
    @override
    def outcome_names(self) -> tuple[str, ...]:
        return ("bleu", "chrf", "bleu_beam")

    @override
    def outcomes(self, answer: Answer) -> dict[str, Float[Tensor, " groups"]]:
        """BLEU and chrF of greedy translations, and BLEU with a beam of `BEAMS`.

        The numbers of a group are the pseudo-values of the jackknife.
        """
        pairs = self._data().test
        rows = np.arange(min(TRANSLATED, len(pairs)))
        references = [pairs.texts[row][1] for row in rows]
        bleu, chrf = _jackknifed(self.translate(answer, pairs, rows), references)
        beam, _ = _jackknifed(self.translate(answer, pairs, rows, BEAMS), references)
        return {"bleu": bleu, "chrf": chrf, "bleu_beam": beam}

    @override
    def examples(self, answer: Answer) -> list[Example]:
        """The first `SHOWN_TRANSLATIONS` sentences that are scored, translated greedily."""
        pairs = self._data().test
        rows = np.arange(min(SHOWN_TRANSLATIONS, len(pairs)))
        texts = [pairs.texts[row] for row in rows]
        found = self.translate(answer, pairs, rows)
        return [
            Example(source, translation, target)
            for (source, target), translation in zip(texts, found, strict=True)
        ]

    def translate(
        self, answer: Answer, pairs: SentencePairs, rows: NDArray[np.int64], beams: int = 1
    ) -> list[str]:
        """Translations of some pairs' sources, with `continue_sentences`."""
        problem = Sentences(pairs, torch.from_numpy(rows), self._data(), self.vocabulary)
        found = continue_sentences(answer, self._starts(pairs, rows), self.length, beams, problem)
        return [self._data().subwords.decode(tokens) for tokens in found]

    def _starts(self, pairs: SentencePairs, rows: NDArray[np.int64]) -> list[Int[Tensor, " tokens"]]:
        """The tokens up to the separator."""
        batch = self._batch(pairs, rows, self.length, mean=1.0)
        assert batch.weights is not None
        first = (batch.weights > 0).int().argmax(-1).tolist()
        return [row[: place + 1] for row, place in zip(batch.tokens[..., 0], first, strict=True)]

    def _batch(self, pairs: SentencePairs, rows: NDArray[np.int64], length: int, mean: float) -> Batch:
        """The pairs `rows`, cut to `length` tokens. `mean` is the mean number of targets in the whole set."""
        donors = _donors(pairs, rows) if self.sources == "other" else rows
        return self._assembled(pairs, rows, donors, length, 1 / mean)

    def _assembled(
        self,
        pairs: SentencePairs,
        rows: NDArray[np.int64],
        donors: NDArray[np.int64],
        length: int,
        weight: float,
    ) -> Batch:
        tokens = pairs.tokens[rows, : length + 1].clone()
        separators = torch.from_numpy(pairs.separators[rows])
        lengths = torch.from_numpy(pairs.lengths[rows])
        at = torch.arange(length + 1)
        if self.sources == "none":
            # The separator and what follows move to the second place.
            moved = (at + (separators - 1)[:, None]).clamp(max=length)
            tokens = torch.where(at + (separators - 1)[:, None] <= length, tokens.gather(1, moved), PADDING)
            tokens[:, 0] = BEGIN
            lengths, separators = lengths - (separators - 1), torch.ones_like(separators)
        elif donors is not rows:
            given = pairs.tokens[donors, : length + 1]
            inside = (at > 0) & (at < separators[:, None])
            theirs = torch.from_numpy(pairs.separators[donors])[:, None]
            tokens = torch.where(inside & (at < theirs), given, tokens)
            tokens = torch.where(inside & (at >= theirs), PADDING, tokens)
        asked = (at[:-1] >= separators[:, None]) & (at[:-1] < lengths[:, None] - 1)
        there = Sentences(pairs, torch.from_numpy(rows), self._data(), self.vocabulary)
        weights = asked.float() * weight
        return Batch(tokens[:, :-1, None], tokens[:, 1:], torch.arange(length), there, weights)

    def _part(self, purpose: Purpose) -> SentencePairs:
        data = self._data()
        return data.validation if purpose == "validate" else data.test

    def _data(self) -> CorpusInTokens:
        return corpus_in_tokens(self.corpus, *self.languages, self.digest, self.vocabulary, self.length)


def _jackknifed(
    translations: list[str], references: list[str]
) -> tuple[Float[Tensor, " groups"], Float[Tensor, " groups"]]:
    """BLEU and chrF as pseudo-values, each from all sentences and from all but one group."""
    groups = min(GROUPS, len(references))
    whole, values = score_translations(translations, references), list[tuple[float, float]]()
    for group in range(groups):
        kept = [place for place in range(len(references)) if place % groups != group]
        rest = score_translations([translations[n] for n in kept], [references[n] for n in kept])
        values.append(
            (
                groups * whole.bleu - (groups - 1) * rest.bleu,
                groups * whole.chrf - (groups - 1) * rest.chrf,
            )
        )
    bleu, chrf = torch.tensor(values, dtype=torch.float64).unbind(-1)
    return bleu, chrf


def unigrams(corpus: CorpusInTokens, vocabulary: int) -> Float[Tensor, " vocabulary"]:
    """The frequencies of tokens in the targets of the training part. One is added to every count."""
    pairs = corpus.train
    places = np.arange(pairs.tokens.shape[1])
    predicted = (places > pairs.separators[:, None]) & (places < pairs.lengths[:, None])
    counts = torch.bincount(pairs.tokens[torch.from_numpy(predicted)], minlength=vocabulary).double()
    counts += 1
    never = [token for token in range(len(SPECIAL_TOKENS)) if token != END]
    counts[never] = 1e-3  # no target, but a logarithm must be finite
    return counts / counts.sum()


def _donors(pairs: SentencePairs, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """For every pair another pair of the batch whose source has nearly the same length."""
    order = np.argsort(pairs.separators[rows], kind="stable")
    donors = np.empty_like(rows)
    donors[order] = rows[np.roll(order, 1)]
    return donors


@lru_cache(maxsize=4)
def _epoch(pairs: int, size: int, seed: int, epoch: int) -> Int[Tensor, " pairs"]:
    return torch.randperm(pairs, generator=stream(seed, "epoch", epoch))


def _epoch_rows(pairs: SentencePairs, size: int, seed: int, number: int) -> NDArray[np.int64]:
    """The pairs of batch `number`, counted from 1. A last batch that is not full is left out of its epoch."""
    size = min(size, len(pairs))
    batches = len(pairs) // size
    epoch, batch = divmod(number - 1, batches)
    order = _epoch(len(pairs), size, seed, epoch).numpy()
    pool = batch // POOL
    first, last = pool * POOL, min((pool + 1) * POOL, batches)
    together = order[first * size : last * size]
    together = together[np.argsort(pairs.lengths[together], kind="stable")]
    place = torch.randperm(last - first, generator=stream(seed, "batches", epoch, pool))[batch - first]
    start = int(place) * size
    return together[start : start + size]
