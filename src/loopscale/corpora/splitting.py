"""A corpus in three parts, without pairs of different parts that are nearly the same."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from hashlib import sha256

from loopscale.corpora.pairs import Pair
from loopscale.errors import CorpusError

CORPUS_PARTS = ("train", "validation", "test")
"""The parts of a corpus: to train, to choose settings, and to measure once."""
SHARE_HELD_OUT = 0.05
"""Share of the pairs in the validation part, and in the test part, before near-duplicates leave."""
WORDS_IN_SHINGLE = 2
SIMILAR = 0.5
"""Sentences with at least this Jaccard similarity of their shingles are near-duplicates.

Sentences of five words or more that differ in one word are near-duplicates."""

Shingles = frozenset[tuple[str, ...]]


def shingles(text: str) -> Shingles:
    """The runs of two words of a sentence, with its start and its end as words.

    Capitals and punctuation do not count, and all numbers are the same.
    """
    words = ["^", *re.sub(r"\d+", "0", re.sub(r"[^\w\s]|_", " ", text.casefold())).split(), "$"]
    last = max(len(words) - WORDS_IN_SHINGLE, 0)
    return frozenset(tuple(words[n : n + WORDS_IN_SHINGLE]) for n in range(last + 1))


def similarity(one: Shingles, other: Shingles) -> float:
    """The Jaccard similarity: the number of common shingles over the number of all shingles (@broder1997)."""
    return len(one & other) / len(one | other)


class _Sentences:
    """Sentences that are searched for near-duplicates of another sentence."""

    def __init__(self) -> None:
        self._places = defaultdict[tuple[str, ...], list[Shingles]](list)

    def add(self, sentence: Shingles) -> None:
        for each in sentence:
            self._places[each].append(sentence)

    def near(self, sentence: Shingles) -> bool:
        """Whether a near-duplicate is among the sentences.

        A near-duplicate has at least a share `SIMILAR` of the shingles. So the rarest shingles, one more than may miss,
        find every near-duplicate.
        """
        rarest = sorted(sentence, key=lambda each: len(self._places.get(each, ())))
        sought = rarest[: int(len(rarest) * (1 - SIMILAR)) + 1]
        return any(
            similarity(sentence, other) >= SIMILAR for each in sought for other in self._places.get(each, ())
        )


def split_pairs(pairs: Sequence[Pair]) -> tuple[dict[str, list[Pair]], int]:
    """The pairs of each part, and the number of pairs that leave as near-duplicates of another part's pairs.

    A group belongs to one part as a whole, by the hash of its name. The training part keeps its pairs. Another pair
    leaves if its source or its target is a near-duplicate of a sentence in the parts before.

    Raises
    ------
    CorpusError
        If a part has no pairs.
    """
    sizes = Counter(pair.group for pair in pairs)
    part_of, taken = dict[str, str](), Counter[str]()
    for group in sorted(sizes, key=lambda group: sha256(group.encode(errors="backslashreplace")).digest()):
        part = next((part for part in CORPUS_PARTS[1:] if taken[part] < SHARE_HELD_OUT * len(pairs)), "train")
        part_of[group] = part
        taken[part] += sizes[group]
    parts, before, left = dict[str, list[Pair]](), (_Sentences(), _Sentences()), 0
    for part in CORPUS_PARTS:
        drawn = [pair for pair in pairs if part_of[pair.group] == part]
        sides = {pair: (shingles(pair.source), shingles(pair.target)) for pair in drawn}
        parts[part] = [
            pair
            for pair in drawn
            if part == "train"
            or not any(index.near(side) for index, side in zip(before, sides[pair], strict=True))
        ]
        left += len(drawn) - len(parts[part])
        for pair in parts[part]:
            for index, side in zip(before, sides[pair], strict=True):
                index.add(side)
    if without := [part for part in CORPUS_PARTS if not parts[part]]:
        what = f"no pairs are left for {' and '.join(without)} of {len(pairs)} pairs in {len(sizes)} groups"
        raise CorpusError(f"{what}; give more texts")
    return parts, left
