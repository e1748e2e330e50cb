import pytest

from loopscale.corpora.ding import ding_pairs


def pairs(line: str) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in ding_pairs([line])]


def test_the_sentences_of_an_entry_are_pairs_of_one_group():
    line = (
        "Haus {n} [arch.] | Häuser {pl} | Er baut (gern) ein Haus. [ugs.] | „Wo wohnst du?“ "
        ":: house | houses | He builds a house. /HB/ | 'Where do you live?'"
    )
    assert pairs(line) == [
        ("Er baut ein Haus.", "He builds a house."),
        ('"Wo wohnst du?"', "'Where do you live?'"),
    ]
    assert {pair.group for pair in ding_pairs([line])} == {"Haus = house"}


@pytest.mark.parametrize(
    "line",
    [
        "# Version :: devel.",
        "Kein Trenner.",
        "Eins ist da. | Zwei :: One is there.",
        "Ich mach's/tu's trotzdem! :: I'll do it anyway!",
        "Er gibt jdm. etwas. :: He gives something to sb.",
        "gib! :: give!",
        "Ein Satz. :: no sentence",
        "",
    ],
)
def test_a_line_without_two_sentences_has_no_pair(line):
    assert pairs(line) == []


def test_of_several_alternatives_the_first_counts():
    assert pairs("Wie geht's?; Wie steht's? :: How are things?; How is it going?") == [
        ("Wie geht's?", "How are things?")
    ]


@pytest.mark.timeout(20)
def test_a_huge_line_is_no_entry():
    assert list(ding_pairs(["{" * 200_000 + " | Er ist da. :: here | He is here."])) == []
