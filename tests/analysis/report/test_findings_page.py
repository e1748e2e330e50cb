"""FINDINGS.md and the findings of README.md are those that `make findings` would write."""

from functools import cache
from pathlib import Path

import pytest

from loopscale.analysis.answers.claims import WORDS
from loopscale.analysis.report.findings_page import (
    BEGIN,
    END,
    HEADER,
    Section,
    readme_table,
    readme_total,
    section_lines,
    section_of,
    study_files,
    with_section,
)

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "FINDINGS.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
STUDIES = study_files(ROOT)
REMEDY = "`make findings` writes it again"
every_study = pytest.mark.parametrize("name", STUDIES)


@cache
def section(name: str) -> Section:
    return section_of(STUDIES[name], ROOT / "studies" / f"{name}.yaml")


def page_sections() -> dict[str, str]:
    """The sections of FINDINGS.md by study."""
    parts = PAGE.split("\n## ")
    return {part.partition("\n")[0]: f"## {part.strip()}" for part in parts[1:]}


@every_study
def test_the_page_and_the_readme_say_what_the_records_say(name: str):
    written = "\n".join(section_lines(section(name), ROOT)).strip()
    assert page_sections()[name] == written, REMEDY
    assert readme_table([section(name)])[-1] in README.splitlines(), REMEDY


def test_the_page_has_every_study_once_and_nothing_else():
    assert list(page_sections()) == list(STUDIES), REMEDY
    assert PAGE.startswith(HEADER), REMEDY
    between = README[README.index(BEGIN) : README.index(END)]
    rows = [line for line in between.splitlines() if line.startswith("| [")]
    assert len(rows) == len(STUDIES), REMEDY


def test_the_readme_counts_the_verdicts_of_the_page():
    verdicts = [
        line.split(" | ")[1] for line in PAGE.splitlines() if line.startswith("| ") and " | **" in line
    ]
    words = [word for word in WORDS for verdict in verdicts if verdict == f"**{word}**"]
    studies = sum("| claim |" in text for text in page_sections().values())
    assert readme_total(words, studies) in README, REMEDY


def test_a_readme_without_markers_is_refused():
    assert with_section(f"a {BEGIN} old {END} b", "new") == "a new b"
    with pytest.raises(ValueError, match="has no section of findings"):
        with_section("a b", "new")
