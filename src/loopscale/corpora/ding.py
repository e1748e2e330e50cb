"""Pairs of sentences from the Ding dictionary, whose examples are sentences of everyday language.

A line is one entry: `Haus {n} | Er baut ein Haus. :: house | He builds a house.` The parts between bars translate each
other. Semicolons separate alternatives, and brackets hold remarks.
"""

import re
from collections.abc import Iterable, Iterator

from loopscale.corpora.files import LONGEST_LINE
from loopscale.corpora.pairs import Pair, normal_text

DICTIONARY_FILE = "usr/share/trans/de-en"
"""The dictionary in the Debian package `trans-de-en`."""

_REMARKS = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|<[^>]*>|(?<!\S)/[^/]*/(?!\S)")
_OPEN_PLACES = re.compile(r"\b(?:jdm?|jdn|jds|etw|sb|sth|so)\.|/")
"""A word that stands for a person or a thing, and a slash between alternatives of one word."""


def ding_pairs(lines: Iterable[str]) -> Iterator[Pair]:
    """The pairs of all parts of entries that are sentences in both languages. The group of a pair is its entry."""
    for line in lines:
        source, separator, target = line.partition("::")
        parts = source.split("|"), target.split("|")
        if (
            len(line) > LONGEST_LINE
            or line.startswith("#")
            or not separator
            or len(parts[0]) != len(parts[1])
        ):
            continue
        entry = normal_text(_REMARKS.sub(" ", parts[0][0]))
        for texts in zip(*parts, strict=True):
            one, other = map(_sentence, texts)
            if one and other:
                yield Pair(one, other, f"{entry} = {normal_text(parts[1][0])}")


def _sentence(part: str) -> str | None:
    """The first alternative of a part without remarks, if the alternative is a sentence."""
    text = normal_text(_REMARKS.sub(" ", part).partition(";")[0])
    text = re.sub(r"\s+([.,!?])", r"\1", text)
    whole = re.match(r"[\"'(]?[A-ZÄÖÜ0-9]", text) and re.search(r"[.!?][\"')]?$", text)
    return text if whole and not _OPEN_PLACES.search(text) else None
