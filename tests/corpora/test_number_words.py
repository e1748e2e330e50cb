import pytest

from loopscale.corpora.number_words import PAIRS_OF_PARTS, english_number, german_number, number_corpus


@pytest.mark.parametrize(
    ("number", "german", "english"),
    [
        (0, "null", "zero"),
        (1, "eins", "one"),
        (21, "einundzwanzig", "twenty-one"),
        (117, "einhundert siebzehn", "one hundred seventeen"),
        (1_001, "ein tausend eins", "one thousand one"),
        (310_000, "dreihundert zehn tausend", "three hundred ten thousand"),
        (
            999_930,
            "neunhundert neunundneunzig tausend neunhundert dreißig",
            "nine hundred ninety-nine thousand nine hundred thirty",
        ),
    ],
)
def test_numbers_have_their_words(number: int, german: str, english: str):
    assert german_number(number) == german
    assert english_number(number) == english


def test_every_number_has_words_of_its_own():
    numbers = [*range(2_500), *range(20_000, 1_000_000, 997)]
    for words in (german_number, english_number):
        assert len({words(number) for number in numbers}) == len(numbers)


def test_the_parts_have_no_pair_in_common():
    corpus = number_corpus()
    parts = {part: getattr(corpus, part) for part in PAIRS_OF_PARTS}
    assert {part: len(pairs) for part, pairs in parts.items()} == PAIRS_OF_PARTS
    assert len({pair for pairs in parts.values() for pair in pairs}) == sum(PAIRS_OF_PARTS.values())
