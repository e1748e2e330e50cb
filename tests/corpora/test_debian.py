import itertools
import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from loopscale.corpora.debian import CONTENTS, build_debian_corpus
from loopscale.corpora.files import read_corpus
from loopscale.corpora.scores import score_copying
from loopscale.corpora.subwords import train_subwords
from loopscale.errors import CorpusError, UsageError
from tests.corpora.conftest import DICTIONARY, build_package, small_contents, small_pairs
from tests.corpora.test_splitting import two_words


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()
    }


def refused(*arguments: Path) -> str:
    with pytest.raises(CorpusError) as caught:
        build_debian_corpus(*arguments)
    assert str(caught.value).count("\n") == 0
    return str(caught.value)


def test_packages_become_a_corpus(packages, tmp_path):
    folder = tmp_path / "corpus"
    datasheet = build_debian_corpus(folder, packages)
    corpus = read_corpus(folder)
    pairs = {*corpus.train, *corpus.validation, *corpus.test}
    assert pairs == {*small_pairs(), *DICTIONARY}
    assert datasheet["pairs"] == {
        "train": len(corpus.train),
        "validation": len(corpus.validation),
        "test": len(corpus.test),
    }


def test_the_datasheet_says_where_the_corpus_is_from(packages, tmp_path):
    folder = tmp_path / "corpus"
    datasheet = build_debian_corpus(folder, packages)
    files = files_of(folder)
    assert yaml.safe_load(files.pop("datasheet.yaml")) == datasheet
    assert datasheet["read"] == datasheet["kept"] == {"LibreOffice help": 32, "Ding": 3}
    assert {name: each["licence"] for name, each in datasheet["origins"].items()} == {
        "libreoffice-help-de": "MPL-2.0",
        "libreoffice-help-en-us": "MPL-2.0",
        "trans-de-en": "GPL-2+",
    }
    assert {each["version"] for each in datasheet["origins"].values()} == {"1.2-3"}
    texts = {name: content for name, content in files.items() if not name.startswith("copyright/")}
    assert datasheet["sha256"] == {name: sha256(content).hexdigest() for name, content in texts.items()}
    assert {f"copyright/{name}.txt" for name in CONTENTS} == files.keys() - texts.keys()
    assert str(tmp_path) not in str(datasheet)


def test_the_same_packages_give_the_same_bytes(packages, tmp_path):
    build_debian_corpus(tmp_path / "one", packages)
    build_debian_corpus(tmp_path / "two", packages)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    assert {file.name for file in tmp_path.iterdir()} == {"one", "two"}


def test_apt_fetches_the_packages_by_name(packages, tmp_path, apt):
    apt(packages)
    build_debian_corpus(tmp_path / "fetched")
    build_debian_corpus(tmp_path / "given", packages)
    assert files_of(tmp_path / "fetched") == files_of(tmp_path / "given")


def test_a_package_that_apt_does_not_know_is_one_line(tmp_path, apt):
    (tmp_path / "nothing").mkdir()
    apt(tmp_path / "nothing")
    assert refused(tmp_path / "corpus") == (
        "apt-get has failed (Unable to locate package trans-de-en); give the packages with `--packages FOLDER`, "
        "or run `apt-get update` with a network"
    )
    assert not (tmp_path / "corpus").exists()


def test_a_package_that_the_server_has_no_more_is_one_line(packages, tmp_path, apt):
    apt(packages)
    shutil.rmtree(tmp_path / "apt" / "served")
    assert refused(tmp_path / "corpus").startswith("apt-get has failed (")


def test_a_machine_without_apt_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(tmp_path / "corpus") == "this machine has no apt-get; build the corpus on Debian or Ubuntu"


def test_faulty_packages_are_named(packages, tmp_path):
    folder = tmp_path / "packages"
    shutil.copytree(packages, folder)
    ding = folder / "trans-de-en_1.2-3_all.deb"
    shutil.copy(ding, folder / "again.deb")
    assert (
        refused(tmp_path / "corpus", folder) == f"{folder} has trans-de-en twice; remove one of the two files"
    )
    (folder / "again.deb").unlink()
    ding.write_bytes(ding.read_bytes()[:100])
    assert "; fetch trans-de-en_1.2-3_all.deb again" in refused(tmp_path / "corpus", folder)
    ding.unlink()
    assert refused(tmp_path / "corpus", folder).startswith(f"{folder} has no package trans-de-en; ")
    build_package("trans-de-en", {"usr/share/other": "x"}, folder, tmp_path)
    assert refused(tmp_path / "corpus", folder).startswith("trans-de-en 1.2-3 has no usr/share/trans/de-en; ")


def test_no_package_is_a_pipe_and_no_text_is_outside_the_package(packages, tmp_path):
    folder = tmp_path / "packages"
    shutil.copytree(packages, folder)
    os.mkfifo(folder / "a.deb")
    (folder / "b.deb").mkdir()
    build_debian_corpus(tmp_path / "corpus", folder)
    (tmp_path / "de-en").write_text("secret :: secret")
    root = tmp_path / "trans-de-en-root" / CONTENTS["trans-de-en"]
    root.parent.mkdir(parents=True)
    root.symlink_to(tmp_path / "de-en")
    build_package("trans-de-en", {}, folder, tmp_path)
    assert refused(tmp_path / "other", folder).startswith("trans-de-en 1.2-3 has no usr/share/trans/de-en; ")


def test_a_text_of_copyright_without_a_form_is_no_licence(packages, tmp_path):
    folder = tmp_path / "packages"
    shutil.copytree(packages, folder)
    terms = {"usr/share/doc/trans-de-en/copyright": "Free to use."}
    (folder / "trans-de-en_1.2-3_all.deb").unlink()
    build_package("trans-de-en", small_contents()["trans-de-en"] | terms, folder, tmp_path, licence="")
    datasheet = build_debian_corpus(tmp_path / "corpus", folder)
    assert datasheet["origins"]["trans-de-en"]["licence"] == "see the text of copyright"


def test_a_folder_with_content_stays_as_it_is(packages, tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(UsageError, match="exists already; give a new folder"):
        build_debian_corpus(tmp_path, packages)
    with pytest.raises(UsageError, match=r"there is no folder .*absent; make the folder first"):
        build_debian_corpus(tmp_path / "absent" / "corpus", packages)
    with pytest.raises(UsageError, match="exists already"):
        build_debian_corpus(tmp_path / "note.txt", packages)
    assert files_of(tmp_path) == {"note.txt": b"mine"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_real_packages_are_a_corpus_of_40_000_pairs(tmp_path):
    """Fetches three packages of Debian: 11 MB."""
    datasheet = build_debian_corpus(tmp_path / "one")
    corpus = read_corpus(tmp_path / "one")
    assert datasheet["read"]["LibreOffice help"] > 70_000
    assert datasheet["read"]["Ding"] > 15_000
    assert len(corpus.train) > 35_000
    assert sum(datasheet["kept"].values()) == sum(datasheet["pairs"].values())
    assert min(len(corpus.validation), len(corpus.test)) > 1_500
    assert {each["licence"] for each in datasheet["origins"].values()} == {"MPL-2.0", "GPL-2+"}
    for pair in itertools.chain(corpus.train, corpus.validation, corpus.test):
        assert all(3 <= len(text.split()) <= 16 for text in pair)
    for side in (0, 1):
        parts = [
            [two_words(pair[side]) for pair in part]
            for part in (corpus.train, corpus.validation, corpus.test)
        ]
        assert_no_near_duplicates(parts[0], parts[1])
        assert_no_near_duplicates([*parts[0], *parts[1]], parts[2])
    subwords = train_subwords(corpus.train, 4_000)
    decoded = [subwords.decode(sequence.targets) for sequence in subwords.sequences(corpus.test)]
    assert decoded == [target for _, target in corpus.test]
    assert 1 < score_copying(corpus.test).bleu < 10


def assert_no_near_duplicates(before: list[set[str]], part: list[set[str]]) -> None:
    """Counts the common runs of words of each sentence with all sentences before."""
    places: dict[str, list[int]] = {}
    for number, words in enumerate(before):
        for each in words:
            places.setdefault(each, []).append(number)
    for words in part:
        common: dict[int, int] = {}
        for each in words:
            for number in places.get(each, ()):
                common[number] = common.get(number, 0) + 1
        for number, count in common.items():
            assert 2 * count < len(words) + len(before[number]) - count, (words, before[number])
