"""Pairs of sentences: normal form of a text, sentences of a paragraph, and the pairs that a corpus keeps."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SHORTEST_PAIR, LONGEST_PAIR = 3, 16
"""Words of each side of a kept pair, both included."""
NO_TEXT = ("Cc", "Cs")
"""Unicode's categories of control characters and of halves of characters. No file of a corpus can hold the halves."""
PLACEHOLDER = "@"
"""Stands for every placeholder, such as `%s`, `{name}` and `$(ARG1)`."""

_PLACEHOLDERS = re.compile(
    r"%(?:\(\w+\)|\d+\$)?[-+#0]*(?:[1-9]\d*)?(?:\.\d+)?(?:hh?|ll?|[zjtL])?[sdiufgGxXcoeEp]\b"  # printf
    r"|%\d\b|%[A-Z]{2,}\b"  # Qt, and %PRODUCTNAME
    r"|\$\(\w+\)|\$\{\w+\}|\$\[\w+\]|(?<!\w)\{\w*(?:[.!:][^{}\s]*)?\}"
)
_TAGS = re.compile(r"""</?[A-Za-z][\w:-]*(?:\s+[\w:-]+=(?:"[^"]*"|'[^']*'))*\s*/?>""")
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("„“”«»‟", '"'),
        **dict.fromkeys("’‘‚‛`´", "'"),
        **dict.fromkeys("–—‒−", "-"),
        "…": "...",
        "\u00ad": "",  # a soft hyphen
        "\u200b": "",  # a space without width
        "\ufeff": "",
    }
)
_ABBREVIATION = re.compile(
    r"abb|abs|allg|approx|bspw|bzgl|bzw|ca|cf|dr|etc|evtl|fig|ggf|incl|inkl|max|min|mr|mrs|ms|nr|prof|sog|st|tel"
    r"|u\.a|usw|vgl|vs|z\.b|e\.g|i\.e|d\.h|\d+|.?"
)
"""The last word of a part that ends before a point, and ends no sentence: also a number and a letter."""
_END = re.compile(r"""([.!?]["')\]]*)\s+(?=["'(\[]*[A-ZÄÖÜ0-9])""")


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation. Pairs of one group, such as a page, stay in one part of the corpus."""

    source: str
    target: str
    group: str


def normal_text(text: str) -> str:
    """The text in one line, without markup, with plain quotes and dashes, and with one sign for every placeholder."""
    text = unicodedata.normalize("NFC", _TAGS.sub(" ", text)).translate(_SIGNS)
    return " ".join(_PLACEHOLDERS.sub(PLACEHOLDER, text).split())


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph in normal form."""
    found, start = list[str](), 0
    for end in _END.finditer(paragraph):
        words = paragraph[start : end.start()].rsplit(None, 1)
        last = words[-1].lstrip("\"'([").lower() if words else ""
        if end[1].startswith(".") and _ABBREVIATION.fullmatch(last):
            continue
        found.append(paragraph[start : end.end(1)])
        start = end.end()
    return [*found, paragraph[start:]]


def sentence_pairs(source: str, target: str, group: str) -> Iterator[Pair]:
    """The pairs of a paragraph and its translation.

    The paragraphs are one pair if they have different numbers of sentences.
    """
    source, target = normal_text(source), normal_text(target)
    sides = sentences(source), sentences(target)
    if len(sides[0]) != len(sides[1]):
        sides = [source], [target]
    for one, other in zip(*sides, strict=True):
        yield Pair(one, other, group)


def keep_pairs(pairs: Iterable[Pair]) -> tuple[list[Pair], Counter[str]]:
    """The pairs that a corpus keeps, in their order, and the number of pairs that leave for each reason.

    A repeated pair leaves, also if the pairs differ in capitals alone.
    """
    kept, reasons, seen = list[Pair](), Counter[str](), set[tuple[str, str]]()
    for pair in pairs:
        texts = pair.source.casefold(), pair.target.casefold()
        if reason := _reason_to_leave(*texts):
            reasons[reason] += 1
        elif texts in seen:
            reasons["repeated"] += 1
        else:
            seen.add(texts)
            kept.append(pair)
    return kept, reasons


def _reason_to_leave(source: str, target: str) -> str | None:
    if any(unicodedata.category(sign) in NO_TEXT for sign in source + target):
        return "characters that are no text"
    lengths = len(source.split()), len(target.split())
    if min(lengths) < SHORTEST_PAIR:
        return f"under {SHORTEST_PAIR} words"
    if max(lengths) > LONGEST_PAIR:
        return f"over {LONGEST_PAIR} words"
    if source == target:
        return "not translated"
    if min(map(_share_of_letters, (source, target))) < 0.6:
        return "formulas and numbers"
    return None


def _share_of_letters(text: str) -> float:
    """The share of letters among the characters that are no spaces."""
    signs = text.replace(" ", "")
    return sum(map(str.isalpha, signs)) / len(signs)
