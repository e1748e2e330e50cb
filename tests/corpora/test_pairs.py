import pytest

from loopscale.corpora.pairs import Pair, keep_pairs, normal_text, sentence_pairs, sentences


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  two\n\tlines ", "two lines"),
        ("„Ja“ – »nein« ‚doch‘ … it’s", '"Ja" - "nein" \'doch\' ... it\'s'),
        ("soft\u00adhyphen and\u00a0space", "softhyphen and space"),
        ("u\u0308ber", "über"),
        ('<b>bold</b> and <a href="x>y">link</a>', "bold and link"),
        ("2 < 3 and 4 > 1", "2 < 3 and 4 > 1"),
        ("%s of %1$s, %(name)s, %-5.2f, %lu", "@ of @, @, @, @"),
        ("{name} {0} {} {size:>4} ${HOME} $(ARG1) $[office] %PRODUCTNAME %1", "@ @ @ @ @ @ @ @ @"),
        ("100 %, 50% der 100%ige a{b}", "100 %, 50% der 100%ige a{b}"),
    ],
)
def test_a_text_has_plain_signs_and_one_sign_for_placeholders(text, normal):
    assert normal_text(text) == normal


@pytest.mark.parametrize(
    ("paragraph", "parts"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He says "Yes." Then he goes.', ['He says "Yes."', "Then he goes."]),
        ("Vom 3. Mai bis Nr. 5 usw. Ende z.B. A. Meier", ["Vom 3. Mai bis Nr. 5 usw. Ende z.B. A. Meier"]),
        ("version 1.5 is out. it works", ["version 1.5 is out. it works"]),
        ("Does it work in 3? Yes.", ["Does it work in 3?", "Yes."]),
        ("", [""]),
    ],
)
def test_a_paragraph_has_sentences(paragraph, parts):
    assert sentences(paragraph) == parts


def test_paragraphs_with_other_numbers_of_sentences_are_one_pair():
    assert list(sentence_pairs("Eins. Zwei.", "One. Two.", "p")) == [
        Pair("Eins.", "One.", "p"),
        Pair("Zwei.", "Two.", "p"),
    ]
    assert list(sentence_pairs("Eins. Zwei.", "One and two.", "p")) == [
        Pair("Eins. Zwei.", "One and two.", "p")
    ]


def test_kept_pairs_are_distinct_translated_sentences_of_3_to_16_words():
    good = Pair("Das ist gut.", "This is good.", "a")
    longest = Pair(" ".join(["Wort"] * 16), " ".join(["word"] * 16), "a")
    others = {
        "under 3 words": Pair("Sehr gut.", "This is good.", "a"),
        "over 16 words": Pair("Das ist gut.", " ".join(["word"] * 17), "a"),
        "not translated": Pair("Save the File", "save the file", "a"),
        "formulas and numbers": Pair("=A1+B2 ist 5,25", "=A1+B2 equals 5.25", "a"),
        "repeated": Pair("Das IST gut.", "This is GOOD.", "b"),
    }
    kept, reasons = keep_pairs([good, longest, *others.values()])
    assert kept == [good, longest]
    assert reasons == dict.fromkeys(others, 1)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["%0", "0", "%-", "{a", "<a ", "$(a", "%(a", "a.", ".'", " ", "é"])
def test_a_long_text_takes_a_linear_time(piece):
    text = "%" + piece * 100_000
    assert list(sentence_pairs(text, text, "group"))
