import os
import sys
from dataclasses import replace
from pathlib import Path

import polib
import pytest

from loopscale.core.temporary import this_process
from loopscale.corpora.catalogues import build_gettext_corpus, catalogue_pairs
from loopscale.corpora.files import read_corpus
from loopscale.errors import CorpusError, UsageError
from tests.corpora.conftest import small_pairs


def catalogue(language: str = "de") -> polib.POFile:
    """A catalogue with the small pairs, four messages from each file of a program."""
    found = polib.POFile()
    found.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Language": language}
    for number, (source, target) in enumerate(small_pairs()):
        found.append(polib.POEntry(msgid=target, msgstr=source, occurrences=[(f"src/{number // 4}.c", "1")]))
    return found


def pairs_of(*entries: polib.POEntry) -> list[tuple[str, str]]:
    found = polib.POFile()
    found.extend(entries)
    return [(pair.source, pair.target) for pair in catalogue_pairs(found, "x.po")]


def test_messages_are_pairs_with_the_translation_first():
    assert pairs_of(
        polib.POEntry(msgid="_Open the\nfile %s", msgstr="Datei %s ö&ffnen"),
        polib.POEntry(msgid="not translated"),
        polib.POEntry(msgid="doubtful", msgstr="zweifelhaft", flags=["fuzzy"]),
        polib.POEntry(msgid="obsolete", msgstr="veraltet", obsolete=True),
        polib.POEntry(
            msgid="%d file", msgid_plural="%d files", msgstr_plural={0: "%d Datei", 1: "%d Dateien"}
        ),
        polib.POEntry(msgid="Save <b>&as</b> tea & cake", msgstr="Als ~Tee _speichern"),
    ) == [
        ("Datei @ ö&ffnen", "Open the file @"),
        ("@ Datei", "@ file"),
        ("@ Dateien", "@ files"),
        ("Als Tee speichern", "Save as tea & cake"),
    ]


def test_messages_of_one_file_are_one_group_and_others_are_alone():
    found = polib.POFile()
    found.append(polib.POEntry(msgid="one", msgstr="eins", occurrences=[("a.c", "1"), ("b.c", "2")]))
    found.append(polib.POEntry(msgid="two", msgstr="zwei", occurrences=[("a.c", "9")]))
    found.append(polib.POEntry(msgid="three", msgstr="drei", msgctxt="menu"))
    assert [pair.group for pair in catalogue_pairs(found, "x.po")] == [
        "x.po: a.c",
        "x.po: a.c",
        "x.po: menu|three",
    ]


@pytest.mark.parametrize("ending", ["po", "mo"])
def test_a_folder_of_catalogues_becomes_a_corpus(tmp_path, ending):
    folder = tmp_path / "texts" / "de" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    found = catalogue()
    found.save_as_mofile(str(folder / "app.mo")) if ending == "mo" else found.save(str(folder / "app.po"))
    catalogue("fr").save(str(folder / "french.po"))
    (folder / "notes.txt").write_text("no catalogue")
    datasheet = build_gettext_corpus(tmp_path / "corpus", [tmp_path / "texts"])
    corpus = read_corpus(tmp_path / "corpus")
    assert {*corpus.train, *corpus.validation, *corpus.test} == set(small_pairs())
    assert list(datasheet["origins"]) == [f"texts/de/LC_MESSAGES/app.{ending}"]
    build_gettext_corpus(tmp_path / "again", [tmp_path / "texts"])
    for file in (tmp_path / "corpus").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


@pytest.mark.parametrize(
    ("declared", "path", "language", "read"),
    [
        ("de_AT", "x.po", "de", True),
        ("de_AT", "x.po", "de_AT", True),
        ("fr", "de.po", "de", False),
        ("", "de.po", "de", True),
        ("", "po/de_DE.UTF-8/app.po", "de", True),
        ("", "de/fr.po", "de", False),
        ("pt_BR", "x.po", "pt", True),
    ],
)
def test_the_header_names_the_language_and_else_the_path(tmp_path, declared, path, language, read):
    file = tmp_path / "TEXTS" / path
    file.parent.mkdir(parents=True)
    catalogue(declared).save(str(file))
    if read:
        build_gettext_corpus(tmp_path / "corpus", [file], language)
        assert read_corpus(tmp_path / "corpus", language).train
    else:
        with pytest.raises(
            CorpusError, match=f"no catalogue of the language '{language}' is in .*; give a folder"
        ):
            build_gettext_corpus(tmp_path / "corpus", [file], language)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("de.po", b'msgid "a"\nnothing of the kind\n'),
        (
            "de.po",
            b'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "a"\nmsgstr "\xff"\n',
        ),
        ("de.mo", b"nothing of the kind"),
        ("de.mo", b"\xde\x12\x04\x95"),
        ("de.mo", b""),
    ],
    ids=["syntax", "bytes", "no mo", "short mo", "empty mo"],
)
def test_a_damaged_catalogue_is_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError) as caught:
        build_gettext_corpus(tmp_path / "corpus", [tmp_path / name])
    assert str(caught.value).startswith(f"cannot read the catalogue {tmp_path / name} (")
    assert str(caught.value).endswith("; `msgfmt --check` shows mistakes")
    assert "\n" not in str(caught.value)


def test_catalogues_of_one_name_stay_apart(tmp_path):
    for place in ("a", "b"):
        (tmp_path / place / "po").mkdir(parents=True)
        catalogue().save(str(tmp_path / place / "po" / "de.po"))
    datasheet = build_gettext_corpus(tmp_path / "corpus", [tmp_path / "a" / "po", tmp_path / "b" / "po"])
    assert list(datasheet["origins"]) == ["po/de.po", "po/de.po (2)"]
    assert datasheet["left_out"]["repeated"] == 32


def test_a_missing_place_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"there is no .*absent; give catalogues"):
        build_gettext_corpus(tmp_path / "corpus", [tmp_path / "absent"])


def test_without_polib_the_extra_is_named(tmp_path, monkeypatch):
    catalogue().save(str(tmp_path / "de.po"))
    monkeypatch.setitem(sys.modules, "polib", None)
    with pytest.raises(
        UsageError, match=r"needs polib, which is not installed; run pip install 'loopscale\[translation\]'"
    ):
        build_gettext_corpus(tmp_path / "corpus", [tmp_path])


def test_only_regular_files_of_a_folder_are_catalogues(tmp_path):
    """polib takes the name of a file that is not there for the text of a catalogue."""
    folder = tmp_path / "po"
    folder.mkdir()
    catalogue().save(str(folder / "de.po"))
    os.mkfifo(folder / "a.po")
    (folder / "b.po").symlink_to("/absent")
    (folder / "c.po").symlink_to("c.po")
    (folder / "d.po").symlink_to("/dev/zero")
    (folder / "e.po").mkdir()
    datasheet = build_gettext_corpus(tmp_path / "corpus", [folder])
    assert list(datasheet["origins"]) == ["po/de.po"]
    with pytest.raises(CorpusError, match=r"a\.po is neither a file nor a folder; give catalogues"):
        build_gettext_corpus(tmp_path / "other", [folder / "a.po"])


@pytest.mark.parametrize("odd", ["\0", "\x1b", "+2AA-"], ids=["null", "escape", "half of a character"])
def test_texts_that_no_corpus_can_hold_are_left_out(tmp_path, odd):
    """In UTF-7, the characters +2AA- are the first half of a character."""
    found = catalogue()
    target, source = f"Please open the {odd} file", f"Bitte die {odd} Datei öffnen".replace("ö", "oe")
    name = tmp_path / ("de.po" if odd != "+2AA-" else "de_AT.po")
    found.save(str(tmp_path / "de.po"))
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-7\\nLanguage: de\\n"\n'
    if name.name == "de.po":
        header = name.read_text(encoding="utf-8")
    name.write_text(f'{header}\nmsgid "{target}"\nmsgstr "{source}"\n', encoding="utf-8")
    datasheet = build_gettext_corpus(tmp_path / "corpus", [tmp_path])
    assert datasheet["left_out"]["characters that are no text"] == 1
    corpus = read_corpus(tmp_path / "corpus")
    assert {*corpus.train, *corpus.validation, *corpus.test} == {*small_pairs()}


def test_names_of_files_may_be_any_bytes(tmp_path):
    name = os.fsdecode(b"de_\xff.po")
    catalogue().save(str(tmp_path / name))
    datasheet = build_gettext_corpus(tmp_path / "corpus", [tmp_path / name])
    assert list(datasheet["origins"]) == [r"de_\xff.po"]


def test_a_killed_build_leaves_no_folder_to_the_next_build(tmp_path):
    """The process of the name has never lived: numbers of processes end at 4,194,304."""
    catalogue().save(str(tmp_path / "de.po"))
    owner = this_process()
    assert owner
    dead = tmp_path / f".loopscale-corpus-{replace(owner, process=2**23)}-abc"
    alive = tmp_path / f".loopscale-corpus-{owner}-abc"
    for folder in (dead, alive):
        folder.mkdir()
        (folder / "train.de").write_text("half of a corpus")
    build_gettext_corpus(tmp_path / "corpus", [tmp_path / "de.po"])
    assert {path.name for path in tmp_path.iterdir()} == {"de.po", "corpus", alive.name}


def test_a_corpus_never_replaces_a_link_or_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    monkeypatch.chdir(tmp_path / "empty")
    for place in (tmp_path / "link", Path(), tmp_path / "empty"):
        with pytest.raises(UsageError, match="exists already; give a new folder"):
            build_gettext_corpus(place, [tmp_path])
