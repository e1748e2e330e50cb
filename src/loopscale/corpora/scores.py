"""Measures of translations: BLEU, chrF, and cross entropy per token and per character."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loopscale.corpora.extra import extra_packages
from loopscale.corpora.files import TextPair
from loopscale.corpora.subwords import SPECIAL_TOKENS, TokenSequence


@dataclass(frozen=True)
class TranslationScores:
    """Scores of all translations of a corpus together, from 0 to 100.

    The signatures name the version and the settings, so that scores compare (@post2018).

    Parameters
    ----------
    bleu
        Common runs of one to four words (@papineni2002).
    chrf
        Common runs of one to six characters (@popovic2015).
    """

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


@dataclass(frozen=True)
class CrossEntropy:
    """The negative log-probability of target texts under a model.

    Nats per token compare models of one vocabulary. Nats per character compare models of different vocabularies.

    Parameters
    ----------
    nats
        Summed over all predicted tokens, with the end of each text.
    tokens
        The number of predicted tokens.
    characters
        The number of characters of the texts, with one for the end of each text.
    """

    nats: float
    tokens: int
    characters: int

    @property
    def per_token(self) -> float:
        return self.nats / self.tokens

    @property
    def per_character(self) -> float:
        return self.nats / self.characters


def score_translations(translations: Sequence[str], references: Sequence[str]) -> TranslationScores:
    """BLEU and chrF by sacrebleu, with one reference for each translation.

    Raises
    ------
    UsageError
        If sacrebleu is missing.
    ValueError
        If there are no translations, or another number of references.
    """
    if not translations or len(translations) != len(references):
        raise ValueError(f"{len(translations)} translations and {len(references)} references")
    with extra_packages():
        # here, because an extra installs the package
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    scores = list[tuple[float, str]]()
    for metric in (BLEU(), CHRF()):
        score = metric.corpus_score(list(translations), [list(references)]).score
        scores.append((float(score), str(metric.get_signature())))
    (bleu, bleu_signature), (chrf, chrf_signature) = scores
    return TranslationScores(bleu, chrf, bleu_signature, chrf_signature)


def score_copying(pairs: Sequence[TextPair]) -> TranslationScores:
    """The scores of the sources themselves as translations: names and numbers alone are right."""
    return score_translations([source for source, _ in pairs], [target for _, target in pairs])


def count_characters(texts: Iterable[str]) -> int:
    """The characters of texts for `CrossEntropy`, with one for the end of each text."""
    return sum(len(text) + 1 for text in texts)


def unigram_cross_entropy(
    train: Sequence[TokenSequence], held_out: Sequence[TokenSequence], vocabulary: int, characters: int
) -> CrossEntropy:
    """The cross entropy of held-out targets under the frequencies of tokens in the targets of training.

    One is added to the count of each token (add-one smoothing), because a held-out token may not occur in training.

    Parameters
    ----------
    vocabulary
        The number of tokens with special tokens. Of the special tokens, only the end is predicted.
    characters
        The characters of the held-out targets, as `count_characters` counts.
    """
    counts = Counter(token for sequence in train for token in sequence.targets)
    log_total = math.log(counts.total() + vocabulary - len(SPECIAL_TOKENS) + 1)
    nats = [log_total - math.log(counts[token] + 1) for sequence in held_out for token in sequence.targets]
    return CrossEntropy(math.fsum(nats), len(nats), characters)
