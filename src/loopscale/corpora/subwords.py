"""Sub-words of a corpus: byte pair encoding (BPE, @sennrich2016), and a pair as one sequence for a decoder.

One vocabulary serves both languages. Its base are bytes, so every text has tokens, and the tokens give the text back.
"""

import contextlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from loopscale.core.output_files import write_output
from loopscale.corpora.extra import extra_packages, tokenizers
from loopscale.corpora.files import Corpus, TextPair
from loopscale.errors import UsageError

SPECIAL_TOKENS = ("<padding>", "<begin>", "<end>", "<separator>")
PADDING, BEGIN, END, SEPARATOR = range(4)
"""The tokens that no text has."""
SMALLEST_VOCABULARY = len(SPECIAL_TOKENS) + 256
"""The special tokens and all bytes."""


@dataclass(frozen=True)
class TokenSequence:
    """A pair as one sequence of tokens: begin, source, separator, target, end (@gao2024, section 5.5: one decoder).

    A decoder reads `tokens[:-1]`. At each place n from `separator` on, the decoder predicts `tokens[n + 1]`: the tokens
    of the target and the end.

    Parameters
    ----------
    tokens
        Length 3 + tokens of the source + tokens of the target.
    separator
        The place of the separator, which is the first place with a prediction.
    """

    tokens: tuple[int, ...]
    separator: int

    @property
    def targets(self) -> tuple[int, ...]:
        """The tokens to predict: the target and the end."""
        return self.tokens[self.separator + 1 :]


class Subwords:
    """A trained vocabulary. `subwords_of_corpus` gives the vocabulary of a corpus."""

    def __init__(self, tokenizer: "tokenizers.Tokenizer") -> None:
        self._tokenizer = tokenizer
        # A text may hold the letters of a special token, and they stay letters.
        tokenizer.encode_special_tokens = True

    @property
    def vocabulary(self) -> int:
        """The number of tokens with the special tokens. A small corpus has fewer than were asked for."""
        return self._tokenizer.get_vocab_size()

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """The tokens of each text, without special tokens."""
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [each.ids for each in encoded]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of the tokens up to the first end, without special tokens."""
        tokens = list(tokens)
        tokens = tokens[: tokens.index(END)] if END in tokens else tokens
        text = self._tokenizer.decode([token for token in tokens if token >= len(SPECIAL_TOKENS)])
        return text.strip()

    def sequences(self, pairs: Sequence[TextPair]) -> list[TokenSequence]:
        """Each pair as one sequence of tokens."""
        sides = (self.encode(pair[side] for pair in pairs) for side in (0, 1))
        return [
            TokenSequence((BEGIN, *source, SEPARATOR, *target, END), 1 + len(source))
            for source, target in zip(*sides, strict=True)
        ]

    def prompts(self, sources: Iterable[str]) -> list[tuple[int, ...]]:
        """The beginning of each sequence up to the separator, from which a decoder translates the source."""
        return [(BEGIN, *source, SEPARATOR) for source in self.encode(sources)]

    def to_json(self) -> str:
        """The vocabulary in the format of the library `tokenizers`."""
        return self._tokenizer.to_str()


def train_subwords(pairs: Sequence[TextPair], vocabulary: int) -> Subwords:
    """Train a vocabulary on the texts of both languages. The same pairs give the same vocabulary.

    Parameters
    ----------
    pairs
        The training part of a corpus, and no other part.
    vocabulary
        The number of tokens, with special tokens and bytes: at least 260.

    Raises
    ------
    UsageError
        If the vocabulary is too small, or `tokenizers` is missing.
    """
    if vocabulary < SMALLEST_VOCABULARY:
        raise UsageError(
            f"a vocabulary of {vocabulary} tokens does not hold all bytes; give at least {SMALLEST_VOCABULARY}"
        )
    with extra_packages():
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for pair in pairs for text in pair), trainer)
    return Subwords(tokenizer)


def subwords_of_corpus(corpus: Corpus, vocabulary: int) -> Subwords:
    """The vocabulary of a corpus's training part, from the file beside the corpus or trained.

    The file's name holds a hash of the training part, so a changed corpus gets another vocabulary. If the folder cannot
    be written, the vocabulary is trained at each call.
    """
    file = corpus.folder / f"subwords-{vocabulary}-{_key(corpus.train)}.json"
    with contextlib.suppress(OSError, ValueError):
        return read_subwords(file)
    trained = train_subwords(corpus.train, vocabulary)
    with contextlib.suppress(OSError):
        write_output(file, trained.to_json().encode())
    return trained


def read_subwords(file: Path) -> Subwords:
    """The vocabulary in a file. Raises OSError for an unreadable file, and ValueError for other content."""
    text = file.read_text(encoding="utf-8")
    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
    except Exception as problem:  # the library raises no more special class
        raise ValueError(f"{file} holds no sub-words") from problem
    if [tokenizer.id_to_token(token) for token in range(len(SPECIAL_TOKENS))] != list(SPECIAL_TOKENS):
        raise ValueError(f"{file} has other special tokens")
    return Subwords(tokenizer)


def _key(pairs: Sequence[TextPair]) -> str:
    content = json.dumps([SPECIAL_TOKENS, pairs], ensure_ascii=False)
    return sha256(content.encode()).hexdigest()[:16]
