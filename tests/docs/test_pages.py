"""Tables of the site and of the pages that readers see on a code host."""

import importlib.util
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
WRITTEN = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[!.]*/README.md")]


@cache
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "site" / "generated_pages.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def broken_tables(text: str) -> list[str]:
    """The headers of tables whose rows have other numbers of cells. No reader draws these tables."""
    lines, broken = text.splitlines(), list[str]()
    for header, line in pairwise(lines):
        if re.fullmatch(r"\|(\s*:?-{3,}:?\s*\|)+", line) and cells(header) != cells(line):
            broken.append(header)
    return broken


def cells(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row)) - 1


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_header_and_the_rule_of_a_table_have_as_many_cells(page: Path):
    assert broken_tables(page.read_text(encoding="utf-8")) == []


def test_a_table_with_a_short_rule_is_found():
    assert broken_tables("| a | b |\n|---|---|---|\n| 1 | 2 |") == ["| a | b |"]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_on_a_code_host(page: Path):
    targets = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    relative = [target for target in targets if not re.match(r"\w+:", target)]
    assert [target for target in relative if not (page.parent / target).exists()] == []


def test_a_link_to_a_file_of_the_project_leads_to_its_page_on_the_site():
    source, page = ROOT / "docs" / "tutorials" / "some.md", "tutorials/some.md"
    text = "[Clusters](../../cluster/README.md#slurm), [live](../guides/live.md), [make](../../Makefile)"
    assert generator().linked(text, source, page) == (
        "[Clusters](../reference/clusters.md#slurm), [live](../guides/live.md), `make`"
    )


def test_copied_pages_have_links_to_pages_of_the_site_only():
    copies = generator().COPIES
    pages = {page.resolve() for page in (ROOT / "docs").rglob("*.md")}
    pages |= {(ROOT / "docs" / name).resolve() for name in copies}
    for name, file in copies.items():
        text = generator().copied(ROOT / file, name)
        targets = [target for target in re.findall(r"\]\(([^)\s#]+)", text) if not re.match(r"\w+:", target)]
        assert [
            target
            for target in targets
            if (ROOT / "docs" / name).parent.joinpath(target).resolve() not in pages
        ] == []


def test_generated_pages_have_sound_tables_and_defaults_as_a_study_has_them():
    texts = [generator().study_file(), generator().tables(), generator().members("bounds", "A bound.")]
    for text in texts:
        assert broken_tables(text) == []
        assert not re.search(r"^- [\w ]+: (None|False|True)$", text, flags=re.M)
        assert "{'" not in text
    assert "{kind: tpe, trials: 8, seeds: 1, objectives: [error]}" in texts[0]


def test_the_navigation_names_every_page_of_the_site_once():
    written = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    generated = [*generator().COPIES, *(f"reference/{family}.md" for family in generator().FAMILIES)]
    generated += [f"reference/{name}.md" for name in ("command_line", "study_file", "tables")]
    navigation = (ROOT / ".mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    assert sorted(re.findall(r": (\S+\.md)$", navigation, flags=re.M)) == sorted(written + generated)
