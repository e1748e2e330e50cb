import itertools
import random
import re

import pytest

from loopscale.corpora.pairs import Pair
from loopscale.corpora.splitting import CORPUS_PARTS, shingles, similarity, split_pairs
from loopscale.errors import CorpusError


def two_words(text: str) -> set[str]:
    """The runs of two words, written in another way than in the package."""
    words = re.findall(r"[^\W\d_]+|\d+", text.casefold())
    words = ["START", *("N" if word.isdigit() else word for word in words), "STOP"]
    return {f"{one}+{other}" for one, other in itertools.pairwise(words)}


def alike(one: str, other: str) -> float:
    first, second = two_words(one), two_words(other)
    return len(first & second) / (len(first) + len(second) - len(first & second))


def similar_pairs(number: int) -> list[Pair]:
    """Pairs from few words, so that many are near-duplicates. Each side is drawn by itself."""
    draw = random.Random(3)
    words = [f"w{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(200)]

    def sentence() -> str:
        start, length = draw.randrange(len(words) - 9), draw.randint(3, 9)
        base = words[start : start + length]
        base[draw.randrange(len(base))] = draw.choice([*words, "17", "4"])
        return " ".join(base) + draw.choice(".!")

    return [Pair(sentence(), sentence(), f"page {draw.randrange(number // 3)}") for _ in range(number)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Click on the red button.", "click on the RED button!", 1.0),
        ("Row 3 of 10", "row 25 of 4", 1.0),
        ("one two three four five", "one two six four five", 0.5),
        ("one two three", "four five six", 0.0),
        ("!", "?", 1.0),
    ],
)
def test_similarity_is_the_share_of_common_runs_of_words(one, other, same):
    assert similarity(shingles(one), shingles(other)) == same


def test_no_group_and_no_near_duplicate_crosses_the_split():
    pairs = similar_pairs(600)
    parts, left = split_pairs(pairs)
    assert left > 5
    assert sum(map(len, parts.values())) + left == len(pairs)
    for one, other in itertools.combinations(CORPUS_PARTS, 2):
        assert not {pair.group for pair in parts[one]} & {pair.group for pair in parts[other]}
        for first, second in itertools.product(parts[one], parts[other]):
            assert alike(first.source, second.source) < 0.5
            assert alike(first.target, second.target) < 0.5


def test_a_pair_leaves_only_as_near_duplicate_of_a_part_before():
    pairs = similar_pairs(600)
    parts, _ = split_pairs(pairs)
    kept = {pair for part in parts.values() for pair in part}
    for pair in set(pairs) - kept:
        others = [*parts["train"], *parts["validation"]]
        assert any(
            max(alike(pair.source, each.source), alike(pair.target, each.target)) >= 0.5 for each in others
        )


def test_the_parts_have_their_shares_and_depend_on_no_order():
    pairs = [
        Pair(f"{chr(0x4E00 + 3 * n)} {chr(0x4E01 + 3 * n)}", chr(0x4E02 + 3 * n), f"{n}") for n in range(400)
    ]
    parts, left = split_pairs(pairs)
    assert ({part: len(each) for part, each in parts.items()}, left) == (
        {"train": 360, "validation": 20, "test": 20},
        0,
    )
    again, _ = split_pairs(pairs[::-1])
    assert {part: set(each) for part, each in parts.items()} == {
        part: set(each) for part, each in again.items()
    }


def test_too_few_groups_are_named():
    pairs = [Pair("a b c", "d e f", "one"), Pair("g h i", "k l m", "two")]
    with pytest.raises(
        CorpusError, match=r"no pairs are left for .* of 2 pairs in 2 groups; give more texts"
    ):
        split_pairs(pairs)
