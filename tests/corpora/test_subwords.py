import hashlib
import os
import subprocess
import sys
import unicodedata

import hypothesis
import hypothesis.strategies as st
import pytest

from loopscale.corpora.files import read_corpus
from loopscale.corpora.subwords import (
    BEGIN,
    END,
    PADDING,
    SEPARATOR,
    SPECIAL_TOKENS,
    TokenSequence,
    read_subwords,
    subwords_of_corpus,
    train_subwords,
)
from loopscale.errors import UsageError
from tests.corpora.conftest import small_pairs

SUBWORDS = train_subwords(small_pairs(), 300)
TRAIN = """
import hashlib
from loopscale.corpora.subwords import train_subwords
from tests.corpora.conftest import small_pairs
print(hashlib.sha256(train_subwords(small_pairs(), 400).to_json().encode()).hexdigest())
"""


def test_a_pair_is_one_sequence_for_a_decoder():
    source, target = "Der Hund schläft.", "The dog sleeps."
    (sequence,) = SUBWORDS.sequences([(source, target)])
    of_source, of_target = SUBWORDS.encode([source, target])
    assert sequence.tokens == (BEGIN, *of_source, SEPARATOR, *of_target, END)
    assert sequence.tokens[sequence.separator] == SEPARATOR
    assert sequence.targets == (*of_target, END)
    assert SUBWORDS.prompts([source]) == [sequence.tokens[: sequence.separator + 1]]
    assert SUBWORDS.decode(sequence.targets) == target
    assert SUBWORDS.decode([*sequence.targets, PADDING, *of_source]) == target
    assert TokenSequence((1, 7, 3, 8, 9, 2), 2).targets == (8, 9, 2)


def test_a_vocabulary_has_the_asked_size_and_common_words_as_one_token():
    assert SUBWORDS.vocabulary == 300
    assert [SUBWORDS.decode([token]) for token in range(len(SPECIAL_TOKENS))] == ["", "", "", ""]
    larger = train_subwords(small_pairs(), 400)
    assert [len(tokens) for tokens in larger.encode(["Anna", "Zebra"])] == [1, 5]
    assert train_subwords(small_pairs(), 5_000).vocabulary < 1_000


@pytest.mark.slow
@hypothesis.given(st.text().map(str.strip))
def test_tokens_give_the_text_back_in_normal_form(text):
    (tokens,) = SUBWORDS.encode([text])
    assert SUBWORDS.decode(tokens) == unicodedata.normalize("NFC", text).strip()
    assert all(len(SPECIAL_TOKENS) <= token < SUBWORDS.vocabulary for token in tokens)


@pytest.mark.parametrize("special", SPECIAL_TOKENS)
def test_the_letters_of_a_special_token_stay_letters(special, tmp_path):
    file = tmp_path / "subwords.json"
    file.write_text(SUBWORDS.to_json(), encoding="utf-8")
    for subwords in (SUBWORDS, read_subwords(file)):
        (tokens,) = subwords.encode([f"a {special} b"])
        assert min(tokens) >= len(SPECIAL_TOKENS)
        assert subwords.decode(tokens) == f"a {special} b"


def test_every_process_trains_the_same_vocabulary():
    here = hashlib.sha256(train_subwords(small_pairs(), 400).to_json().encode()).hexdigest()
    for threads in ("1", "3"):
        environment = os.environ | {
            "RAYON_NUM_THREADS": threads,
            "TOKENIZERS_PARALLELISM": "true",
            "PYTHONHASHSEED": threads,
        }
        done = subprocess.run(
            [sys.executable, "-c", TRAIN], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == here


def test_the_vocabulary_is_saved_beside_the_corpus_and_read_again(corpus_folder):
    corpus = read_corpus(corpus_folder)
    first = subwords_of_corpus(corpus, 300)
    (file,) = corpus_folder.glob("subwords-300-*.json")
    assert file.read_text(encoding="utf-8") == first.to_json() == train_subwords(corpus.train, 300).to_json()
    other = read_subwords(file)
    file.write_text(train_subwords(small_pairs(), 280).to_json(), encoding="utf-8")
    assert subwords_of_corpus(corpus, 300).vocabulary == 280
    assert other.to_json() == first.to_json()


def test_another_training_part_has_another_vocabulary_and_other_parts_do_not_count(corpus_folder):
    subwords_of_corpus(read_corpus(corpus_folder), 300)
    with (corpus_folder / "test.de").open("a") as german, (corpus_folder / "test.en").open("a") as english:
        german.write("Zebras zebra zebras.\n")
        english.write("Zebras zebra zebras.\n")
    subwords_of_corpus(read_corpus(corpus_folder), 300)
    assert len(list(corpus_folder.glob("subwords-*.json"))) == 1
    with (corpus_folder / "train.de").open("a") as german, (corpus_folder / "train.en").open("a") as english:
        german.write("Zebras zebra zebras.\n")
        english.write("Zebras zebra zebras.\n")
    subwords_of_corpus(read_corpus(corpus_folder), 300)
    assert len(list(corpus_folder.glob("subwords-*.json"))) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"model": 1}'])
def test_a_damaged_vocabulary_is_trained_again(corpus_folder, content):
    corpus = read_corpus(corpus_folder)
    whole = subwords_of_corpus(corpus, 300).to_json()
    (file,) = corpus_folder.glob("subwords-*.json")
    file.write_bytes(content)
    assert subwords_of_corpus(corpus, 300).to_json() == whole
    assert file.read_text(encoding="utf-8") == whole


def test_a_vocabulary_without_all_bytes_is_refused():
    with pytest.raises(
        UsageError, match="a vocabulary of 259 tokens does not hold all bytes; give at least 260"
    ):
        train_subwords(small_pairs(), 259)
    assert train_subwords(small_pairs(), 260).vocabulary == 260


def test_without_tokenizers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        UsageError,
        match=r"needs tokenizers, which is not installed; run pip install 'loopscale\[translation\]'",
    ):
        train_subwords(small_pairs(), 300)
