import re
from pathlib import Path

import pytest

from loopscale.corpora.files import LONGEST_LINE, part_files, read_corpus
from loopscale.errors import CorpusError


def refused(folder: Path, *languages: str) -> str:
    """The one line that the loader answers, without the folder."""
    with pytest.raises(CorpusError) as caught:
        read_corpus(folder, *languages)
    message = str(caught.value)
    assert message.count("\n") == 0
    assert "; " in message
    return message.replace(f"{folder}/", "").replace(str(folder), "FOLDER")


def write(folder: Path, name: str, lines: list[str] | bytes) -> None:
    content = lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode()
    (folder / name).write_bytes(content)


def test_a_corpus_in_the_form_of_iwslt_is_read(corpus_folder):
    corpus = read_corpus(corpus_folder)
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [24, 4, 4]
    assert corpus.train[0] == (
        "Der alte Hund von Anna schläft heute lange.",
        "The old dog of Anna sleeps late today.",
    )
    turned = read_corpus(corpus_folder, "en", "de")
    assert turned.test == tuple((other, one) for one, other in corpus.test)


@pytest.mark.parametrize("name", ["valid", "validation"])
def test_the_validation_part_has_either_name(corpus_folder, name):
    for end in ("de", "en"):
        (corpus_folder / f"valid.{end}").rename(corpus_folder / f"{name}.{end}")
    assert len(read_corpus(corpus_folder).validation) == 4


def test_a_part_with_two_names_is_refused(corpus_folder):
    write(corpus_folder, "validation.de", ["x"])
    assert (
        refused(corpus_folder)
        == "FOLDER has files validation.* and valid.* of one part; remove one of the two names"
    )


def test_the_digest_is_that_of_the_bytes(corpus_folder, tmp_path):
    digest = read_corpus(corpus_folder).digest
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in corpus_folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    assert read_corpus(copy).digest == digest
    (copy / "notes.txt").write_text("another file")
    assert read_corpus(copy).digest == digest
    text = (copy / "test.en").read_text().replace("street", "bridge", 1)
    (copy / "test.en").write_text(text)
    assert read_corpus(copy).digest != digest


def test_only_a_line_feed_ends_a_line(corpus_folder):
    odd = "one\u2028two\u0085three\x0bfour"
    write(corpus_folder, "test.de", f"\ufeff{odd}\r\n  end ".encode())
    write(corpus_folder, "test.en", ["first", "second"])
    assert read_corpus(corpus_folder).test == ((odd, "first"), ("end", "second"))


def test_written_files_are_read_back(tmp_path):
    parts = {
        part: [(f"{part} eins", f"{part} one"), ("zwei", "two")] for part in ("train", "validation", "test")
    }
    for name, content in part_files(parts, "de", "en").items():
        write(tmp_path, name, content)
    corpus = read_corpus(tmp_path)
    assert {"train": [*corpus.train], "validation": [*corpus.validation], "test": [*corpus.test]} == parts


def test_missing_files_are_named(corpus_folder, tmp_path):
    for name in ("test.en", "valid.de"):
        (corpus_folder / name).unlink()
    assert refused(corpus_folder).startswith("FOLDER has no valid.de, test.en; a corpus has the files train,")
    assert refused(corpus_folder, "de", "fr").startswith(
        "FOLDER has no train.fr, validation.de, validation.fr, test.fr;"
    )
    assert (
        refused(tmp_path / "absent")
        == "there is no folder FOLDER; `loopscale corpus debian -o FOLDER` makes a corpus"
    )
    assert refused(tmp_path / ("x" * 300)).startswith("there is no folder FOLDER; ")
    assert refused(corpus_folder, "de", "de").startswith("source and target are both 'de';")


def test_files_with_other_numbers_of_lines_are_named(corpus_folder):
    write(corpus_folder, "test.en", ["one", "two"])
    assert refused(corpus_folder).startswith(
        "FOLDER: test.de has 4 lines and test.en has 2 lines; give files in which"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("eins\nfür\n".encode("latin-1"), "train.de, line 2 is no UTF-8; `iconv -f ENCODING"),
        ("eins\nzwei\n".encode("utf-16"), "train.de, line 1 is no UTF-8; `iconv -f ENCODING"),
        ("eins\n".encode("utf-16-le"), "train.de, line 1 has a null character; give text in UTF-8"),
        (b"eins\n \t\nzwei\n", "train.de, line 2 is empty; remove the line from the files of both languages"),
        (b"eins\n\n", "train.de, line 2 is empty; remove the line from the files of both languages"),
        (b"", "train.de is empty; give at least one sentence"),
        (
            b"eins\n" + b"x" * 2**20 + b"\n",
            "train.de, line 2 has 1,048,576 bytes; a line is one sentence, with at most",
        ),
    ],
    ids=["latin-1", "utf-16", "utf-16 without mark", "blank", "empty last", "empty file", "megabyte"],
)
def test_a_line_that_is_no_sentence_is_named(corpus_folder, content, message):
    write(corpus_folder, "train.de", content)
    assert refused(corpus_folder).startswith(message)


def test_a_line_may_have_the_longest_length(corpus_folder):
    for end in ("de", "en"):
        write(corpus_folder, f"test.{end}", ["x" * LONGEST_LINE])
    assert len(read_corpus(corpus_folder).test[0][0]) == LONGEST_LINE
    write(corpus_folder, "test.de", ["x" * (LONGEST_LINE + 1)])
    assert re.match(r"test.de, line 1 has 10,001 bytes; .* at most 10,000 bytes", refused(corpus_folder))


def test_a_folder_in_the_place_of_a_file_is_missing(corpus_folder):
    (corpus_folder / "test.de").unlink()
    (corpus_folder / "test.de").mkdir()
    assert refused(corpus_folder).startswith("FOLDER has no test.de;")
