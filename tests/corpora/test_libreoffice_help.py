import os

import pytest

from loopscale.corpora.libreoffice_help import help_pairs, paragraphs

PAGE = """<html><head><title>No paragraph</title></head><body>
<h1 id="hd_1" dir="auto"><a name="h1"></a>Date &amp; time</h1>
<p id="par_1" class="paragraph">Choose <span class="emph">Insert</span><br/>now, <img alt="note">please.</p>
<p class="embedded">without id</p><pre id="par_9">no paragraph</pre>
<p id="par_2" class="bascode">x = 1</p>
<p id="par_1">the same id again</p>
</body></html>"""


def test_a_page_has_paragraphs_by_id_without_code():
    assert paragraphs(PAGE) == {"hd_1": "Date & time", "par_1": "Choose Insert now, please."}


def test_pages_and_paragraphs_of_both_languages_are_pairs(tmp_path):
    pages = {
        "de/b/one.html": '<p id="x">Eins ist da. Zwei ist da.</p><p id="y">nur hier</p>',
        "en/b/one.html": '<p id="z">here only</p><p id="x">One is there. Two is there.</p>',
        "de/a.html": '<h2 id="x">Titel</h2>',
        "en/a.html": '<h2 id="x">Title</h2>',
        "de/alone.html": '<p id="x">Allein</p>',
    }
    for name, text in pages.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = [(pair.source, pair.target, pair.group) for pair in help_pairs(tmp_path / "de", tmp_path / "en")]
    assert found == [
        ("Titel", "Title", "a.html"),
        ("Eins ist da.", "One is there.", "b/one.html"),
        ("Zwei ist da.", "Two is there.", "b/one.html"),
    ]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ['<p id="x">', "<p ", '<p id="', '<p id="x"'])
def test_a_page_of_paragraphs_without_an_end_takes_a_linear_time(piece):
    assert paragraphs(piece * 100_000 + '<p id="y">there</p>').get("y", "there") == "there"


def test_a_paragraph_without_an_end_takes_no_text_of_the_next(tmp_path):
    assert paragraphs('<p id="x">one<p id="y">two <b>words</b></p>') == {"y": "two words"}


def test_a_pipe_is_no_page(tmp_path):
    for folder in ("de", "en"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.html").write_text('<p id="x">Zwei gute Worte</p>')
    os.mkfifo(tmp_path / "de" / "b.html")
    (tmp_path / "en" / "b.html").write_text("")
    assert [pair.group for pair in help_pairs(tmp_path / "de", tmp_path / "en")] == ["a.html"]
