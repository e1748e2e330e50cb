import math
import sys
from importlib.metadata import version

import pytest

from loopscale.corpora.scores import (
    CrossEntropy,
    count_characters,
    score_copying,
    score_translations,
    unigram_cross_entropy,
)
from loopscale.corpora.subwords import END, TokenSequence, train_subwords
from loopscale.errors import UsageError
from tests.corpora.conftest import small_pairs


def test_bleu_is_the_mean_precision_of_runs_of_words_with_a_penalty_for_short_translations():
    reference = "one two three four five six seven eight"
    translation = "one two three four five six seven"  # every run is right, and one word is missing
    assert score_translations([translation], [reference]).bleu == pytest.approx(100 * math.exp(1 - 8 / 7))
    other = "one two three four five six seven nine"
    precisions = (7 / 8) * (6 / 7) * (5 / 6) * (4 / 5)
    assert score_translations([other], [reference]).bleu == pytest.approx(100 * precisions**0.25)


def test_chrf_counts_runs_of_characters():
    scores = score_translations(["abc"], ["abd"])
    # Of one to three characters 2, 1 and 0 runs are common, of 3, 2 and 1. Longer runs do not exist.
    assert scores.chrf == pytest.approx(100 * (2 / 3 + 1 / 2 + 0) / 3)
    assert score_translations(["the same", "texts"], ["the same", "texts"]).chrf == pytest.approx(100)


def test_signatures_name_the_version_and_the_settings():
    scores = score_translations(["a"], ["a"])
    assert (
        scores.bleu_signature
        == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version('sacrebleu')}"
    )
    assert (
        scores.chrf_signature
        == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version('sacrebleu')}"
    )


def test_copying_takes_the_sources_for_translations():
    pairs = [("Anna Meyer 7", "Anna Meyer 7"), ("Der Hund schläft", "The dog sleeps")]
    assert score_copying(pairs) == score_translations(
        [one for one, _ in pairs], [other for _, other in pairs]
    )
    assert 0 < score_copying(pairs).chrf < 100


def test_the_unigram_counts_targets_alone_and_adds_one():
    train = [TokenSequence((1, 9, 9, 3, 4, 4, 5, END), 3), TokenSequence((1, 3, 4, END), 1)]
    held_out = [TokenSequence((1, 9, 3, 4, 6, END), 2)]
    # Targets of training: 4 three times, 5 once, the end twice. Of 8 tokens, 5 can be targets: 2, 4, 5, 6, 7.
    found = unigram_cross_entropy(train, held_out, 8, 12)
    assert found.nats == pytest.approx(-math.log(4 / 11) - math.log(1 / 11) - math.log(3 / 11))
    assert (found.tokens, found.characters) == (3, 12)


def test_the_probabilities_of_the_unigram_sum_to_1():
    subwords = train_subwords(small_pairs(), 300)
    train = subwords.sequences(small_pairs())
    each = [TokenSequence((1, 3, token), 1) for token in (END, *range(4, subwords.vocabulary))]
    chances = [math.exp(-unigram_cross_entropy(train, [one], subwords.vocabulary, 1).nats) for one in each]
    assert math.fsum(chances) == pytest.approx(1)


def test_nats_per_character_count_the_end_of_each_text():
    assert count_characters(["abc", "für"]) == 8
    found = CrossEntropy(nats=6.0, tokens=3, characters=12)
    assert (found.per_token, found.per_character) == (2.0, 0.5)


def test_other_numbers_of_references_are_a_bug():
    for translations, references in ((["a"], []), ([], [])):
        with pytest.raises(ValueError, match="translations and 0 references"):
            score_translations(translations, references)


def test_without_sacrebleu_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(
        UsageError, match=r"which is not installed; run pip install 'loopscale\[translation\]'"
    ):
        score_translations(["a"], ["a"])
