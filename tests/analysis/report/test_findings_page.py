"""`make findings` would change neither FINDINGS.md nor the findings of README.md."""

from functools import cache
from pathlib import Path

import pytest

from loopscale.analysis.answers.summary import summary
from loopscale.analysis.report.findings_page import (
    BEGIN,
    END,
    HEADER,
    READING,
    UNRUN,
    overview,
    price_of,
    price_row,
    readme_total,
    section_lines,
    unrun_studies,
    with_section,
)
from loopscale.analysis.report.headlines import HEADLINES_FILE, INTRODUCTION, headline_item, read_headlines
from loopscale.analysis.report.sections import Section, section_of, study_files
from loopscale.foresight.plan import ENOUGH_VALUES
from loopscale.notation.files import read_study
from loopscale.questions.claim import CLAIM_VERDICTS
from loopscale.tasks.sentence_pairs import CORPORA_FOLDER, find_corpus

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "FINDINGS.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
STUDIES = study_files(ROOT)
FIRST_PAGES = (
    "Ten findings",
    "How to read the tables",
    "All studies",
    "What the studies that were not run cost",
)
AMONG = " among learnt runs"
"""What a verdict adds if some runs have not learnt."""
REMEDY = "`make findings` writes it again"
HEADLINES = read_headlines(ROOT / HEADLINES_FILE)
UNRUN_STUDIES = unrun_studies(ROOT, list(STUDIES))
every_study = pytest.mark.parametrize("name", STUDIES)


@pytest.fixture(autouse=True)
def no_corpus(monkeypatch: pytest.MonkeyPatch):
    """The page is written without a corpus, on any machine."""
    monkeypatch.delenv(CORPORA_FOLDER)
    find_corpus.cache_clear()
    yield
    find_corpus.cache_clear()


@cache
def section(name: str) -> Section:
    return section_of(STUDIES[name], ROOT / "studies" / f"{name}.yaml")


def page_sections() -> dict[str, str]:
    """The sections of FINDINGS.md by study."""
    parts = PAGE.split("\n## ")[1:]
    named = {part.partition("\n")[0]: f"## {part.strip()}" for part in parts}
    return {name: text for name, text in named.items() if name not in FIRST_PAGES}


@pytest.mark.quick_cases(3)
@every_study
def test_the_page_agrees_with_the_records(name: str):
    written = "\n".join(section_lines(section(name), ROOT)).strip()
    assert page_sections()[name] == written, REMEDY
    assert overview([section(name)])[-1] in PAGE.splitlines(), REMEDY


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("number", range(1, len(HEADLINES) + 1))
def test_the_first_page_has_ten_findings_of_the_records(number: int):
    headline = HEADLINES[number - 1]
    lines = headline_item(number, headline, section(headline.study))
    assert "\n".join(lines) in PAGE, REMEDY


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", UNRUN_STUDIES)
def test_the_page_has_the_price_of_a_study_that_was_not_run(name: str):
    assert price_row(name, price_of(ROOT, name)) in PAGE.splitlines(), REMEDY


@pytest.mark.parametrize("name", UNRUN_STUDIES)
def test_a_study_that_was_not_run_has_no_law_that_can_never_have_a_verdict(name: str):
    tree = read_study(ROOT / "studies" / f"{name}.yaml").tree
    axes = [law["along"] for law in tree.get("laws", []) if law["along"] in tree["scientific"]]
    few = [axis for axis in axes if len(tree["scientific"][axis]) < ENOUGH_VALUES]
    assert not few, "a verdict needs more values along this axis"


def test_the_page_has_the_price_of_every_study_that_was_not_run():
    prices = PAGE.partition("hours on one GPU |")[2].partition("\n\n")[0]
    named = [line.split(" | ")[0].removeprefix("| ") for line in prices.splitlines()[2:]]
    assert named == [*UNRUN_STUDIES, "all"], REMEDY


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
    assert all(text in PAGE for text in (INTRODUCTION, READING, UNRUN)), REMEDY
    headings = [line.removeprefix("## ") for line in PAGE.splitlines() if line.startswith("## ")]
    assert tuple(headings[: len(FIRST_PAGES)]) == FIRST_PAGES, REMEDY
    rows = [line for line in PAGE.splitlines() if line.startswith("| [")]
    assert len(rows) == len(STUDIES), REMEDY


def test_the_readme_counts_the_verdicts_of_the_page():
    verdicts = [
        line.split(" | ")[1] for line in PAGE.splitlines() if line.startswith("| ") and " | **" in line
    ]
    found = [verdict.strip("*").removesuffix(AMONG) for verdict in verdicts]
    words = [word for word in found if word in CLAIM_VERDICTS]
    studies = sum("| claim |" in text for text in page_sections().values())
    assert readme_total(words, studies) in README, REMEDY


def test_a_readme_without_markers_is_refused():
    assert with_section(f"a {BEGIN} old {END} b", "new") == "a new b"
    with pytest.raises(ValueError, match="has no section of findings"):
        with_section("a b", "new")
