"""`loopscale corpus`."""

import pytest

from tests.corpora.conftest import DICTIONARY, build_package, small_contents, small_pairs


@pytest.fixture
def packages(tmp_path):
    folder = tmp_path / "packages"
    folder.mkdir()
    for name, files in small_contents().items():
        build_package(name, files, folder, tmp_path / "work")
    return folder


def test_a_corpus_from_packages_is_told_in_five_lines(loopscale, elsewhere, packages):
    answer = loopscale("corpus", "debian", "-o", "corpus", "--packages", packages)
    assert (answer.code, answer.err) == (0, "")
    read, ding, left, kept, wrote = answer.out.splitlines()
    assert (read, ding) == ("LibreOffice help: 32 pairs of sentences", "Ding: 3 pairs of sentences")
    assert left == "left out: none"
    assert wrote == "wrote corpus; datasheet.yaml names versions, licences and hashes"
    lines = [
        len((elsewhere / "corpus" / f"{part}.en").read_text().splitlines())
        for part in ("train", "validation", "test")
    ]
    assert kept == f"kept: {lines[0]} train, {lines[1]} validation, {lines[2]} test"
    assert sum(lines) == len(small_pairs()) + len(DICTIONARY)


def test_a_corpus_from_catalogues_is_told_as_json(loopscale, elsewhere):
    (elsewhere / "po").mkdir()
    entries = "".join(f'msgid "{target}"\nmsgstr "{source}"\n\n' for source, target in small_pairs())
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    (elsewhere / "po" / "de.po").write_text(header + entries, encoding="utf-8")
    answer = loopscale("corpus", "gettext", "po", "-o", "corpus", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.json["read"] == {"catalogues": 32}
    assert sum(answer.json["pairs"].values()) == 32
    assert (
        loopscale("corpus", "gettext", "po", "-o", "corpus").err
        == "corpus exists already; give a new folder\n"
    )
