"""A small corpus without files: numbers below a million in German and English words.

German says the ones before the tens: einundzwanzig is twenty-one. So a word-by-word translation is wrong.
"""

import random
from functools import cache
from pathlib import Path

from loopscale.corpora.files import Corpus, TextPair

NUMBER_WORDS = "numbers"
"""The name of this corpus."""
PAIRS_OF_PARTS = {"train": 16_000, "validation": 1_000, "test": 2_000}

_GERMAN = ["null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"]  # noqa: E501  # fmt: skip
_ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]  # noqa: E501  # fmt: skip
_GERMAN_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
_ENGLISH_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


@cache
def number_corpus() -> Corpus:
    """The corpus. Its parts have no number in common."""
    numbers = random.Random(0).sample(range(1_000_000), sum(PAIRS_OF_PARTS.values()))
    parts, start = dict[str, tuple[TextPair, ...]](), 0
    for part, size in PAIRS_OF_PARTS.items():
        parts[part] = tuple(
            (german_number(number), english_number(number)) for number in numbers[start : start + size]
        )
        start += size
    return Corpus(Path(NUMBER_WORDS), "de", "en", digest="", **parts)


def german_number(number: int) -> str:
    """A number from 0 to 999,999 in German, with spaces between thousands, hundreds and the rest."""
    thousands, rest = divmod(number, 1000)
    words = [*_german_hundreds(thousands, last=False), "tausend"] if thousands else []
    return " ".join([*words, *_german_hundreds(rest, last=True)] if rest or not words else words)


def _german_hundreds(number: int, last: bool) -> list[str]:
    hundreds, rest = divmod(number, 100)
    words = [f"{_GERMAN[hundreds]}hundert"] if hundreds else []
    if rest >= len(_GERMAN):
        tens, ones = divmod(rest, 10)
        return [*words, (f"{_GERMAN[ones]}und" if ones else "") + _GERMAN_TENS[tens - 2]]
    if rest or not words:
        words.append("eins" if rest == 1 and last else _GERMAN[rest])
    return words


def english_number(number: int) -> str:
    """A number from 0 to 999,999 in English."""
    thousands, rest = divmod(number, 1000)
    words = [*_english_hundreds(thousands), "thousand"] if thousands else []
    return " ".join([*words, *_english_hundreds(rest)] if rest or not words else words)


def _english_hundreds(number: int) -> list[str]:
    hundreds, rest = divmod(number, 100)
    words = [_ENGLISH[hundreds], "hundred"] if hundreds else []
    if rest >= len(_ENGLISH):
        tens, ones = divmod(rest, 10)
        return [*words, _ENGLISH_TENS[tens - 2] + (f"-{_ENGLISH[ones]}" if ones else "")]
    return [*words, _ENGLISH[rest]] if rest or not words else words
