"""The pictures of README.md show the newest records."""

import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@cache
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "site" / "pictures.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("picture", sorted(pictures().PICTURES))
def test_a_picture_is_drawn_from_the_records_of_today(picture: str):
    drawn_from = json.loads(pictures().DRAWN_FROM.read_text(encoding="utf-8"))
    assert (ROOT / picture).is_file()
    assert drawn_from[picture] == pictures().records_hash(pictures().PICTURES[picture]), "run `make pictures`"


def test_another_record_gives_another_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pictures(), "DATA", tmp_path)
    (tmp_path / "study").mkdir()
    hashes = set[str]()
    for name, text in [("a", "1"), ("a", "2"), ("b", "2")]:
        (tmp_path / "study" / name).write_text(text)
        hashes.add(pictures().records_hash("study"))
    assert len(hashes) == 3


def test_the_readme_shows_the_pictures():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [picture for picture in pictures().PICTURES if f"]({picture})" not in readme] == []
