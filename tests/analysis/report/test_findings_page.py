"""`make findings` would change neither FINDINGS.md nor the findings of README.md."""

from functools import cache
from pathlib import Path

import pytest

from loopscale.analysis.answers.summary import summary
from loopscale.analysis.report.findings_page import (
    BEGIN,
    END,
    HEADER,
    Section,
    overview,
    readme_total,
    section_lines,
    section_of,
    study_files,
    with_section,
)
from loopscale.questions.claim import WORDS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "FINDINGS.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
STUDIES = study_files(ROOT)
AMONG = " among learnt runs"
"""What a verdict adds if some runs have not learnt."""
REMEDY = "`make findings` writes it again"
every_study = pytest.mark.parametrize("name", STUDIES)


@cache
def section(name: str) -> Section:
    return section_of(STUDIES[name], ROOT / "studies" / f"{name}.yaml")


def page_sections() -> dict[str, str]:
    """The sections of FINDINGS.md by study."""
    parts = PAGE.split("\n## ")
    return {part.partition("\n")[0]: f"## {part.strip()}" for part in parts[1:]}


@pytest.mark.quick_cases(3)
@every_study
def test_the_page_agrees_with_the_records(name: str):
    written = "\n".join(section_lines(section(name), ROOT)).strip()
    assert page_sections()[name] == written, REMEDY
    assert overview([section(name)])[-1] in PAGE.splitlines(), REMEDY


@pytest.mark.quick_cases(3)
@every_study
def test_the_answer_of_a_report_has_at_most_four_sentences_without_names_of_theorems(name: str):
    findings = section(name).findings
    sentences = summary(findings)
    assert 1 <= len(sentences) <= 4
    theorems = {law.theory for law in findings.laws if law.theory}
    assert not any(theorem in sentence for theorem in theorems for sentence in sentences)


def test_the_page_has_every_study_once_and_nothing_else():
    assert list(page_sections()) == list(STUDIES), REMEDY
    assert PAGE.startswith(HEADER), REMEDY
    rows = [line for line in PAGE.splitlines() if line.startswith("| [")]
    assert len(rows) == len(STUDIES), REMEDY


def test_the_readme_counts_the_verdicts_of_the_page():
    verdicts = [
        line.split(" | ")[1] for line in PAGE.splitlines() if line.startswith("| ") and " | **" in line
    ]
    found = [verdict.strip("*").removesuffix(AMONG) for verdict in verdicts]
    words = [word for word in found if word in WORDS]
    studies = sum("| claim |" in text for text in page_sections().values())
    assert readme_total(words, studies) in README, REMEDY


def test_a_readme_without_markers_is_refused():
    assert with_section(f"a {BEGIN} old {END} b", "new") == "a new b"
    with pytest.raises(ValueError, match="has no section of findings"):
        with_section("a b", "new")
