"""One bibliography: every citation in the package has an entry, every entry is cited, and no text cites otherwise."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import loopscale
from loopscale.core.bibliography import CITED_KEY, bibliography, cited_keys, spell_citations
from loopscale.theory.bounds.base import Bound
from loopscale.theory.constructions.base import Construction

ROOT = Path(loopscale.__file__).parent
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "core/bibliography.py"]
OTHERWISE = re.compile(
    r"""\bet\ al\b                        # names without a key
    | \barXiv\b
    | \([^()@]*\b(?:18|19|20)\d\d[a-z]?\)  # (Holm 1979), (1979)
    | [A-Z]\w+,?\ (?:18|19|20)\d\d\b     # Holm 1979
    | AlgoFormer(?:'s)?,?\ (?:eq|theorem|lemma|section|figure)
    | \b[Ss]lides\ on\b""",
    re.VERBOSE,
)


def prose(path: Path) -> Iterator[str]:
    """The docstrings of a file, also those of attributes, on one line each, and the texts of its sources."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).lower() == "source":
            text = ast.unparse(node.value)
        else:
            continue
        if isinstance(text, str):
            yield " ".join(text.split())


def test_every_cited_key_has_an_entry_and_every_entry_is_cited():
    cited = {key for path in FILES for text in prose(path) for key in cited_keys(text)}
    assert cited == set(bibliography())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_texts_cite_by_key_only(path: Path):
    otherwise = [text for text in prose(path) if OTHERWISE.search(text)]
    assert not otherwise, otherwise


@pytest.mark.parametrize(
    "text",
    [
        "as in Fu et al.",
        "(Holm 1979)",
        "Fisher's design (1935)",
        "arXiv:2310.17086",
        "Ndaoud 2018 shows",
        "AlgoFormer, lemma A.2",
    ],
)
def test_another_form_of_citation_is_found(text: str):
    assert OTHERWISE.search(text)


def test_every_entry_of_the_file_is_read_with_its_fields():
    text = (ROOT / "references.bib").read_text(encoding="utf-8")
    assert len(re.findall(r"^@", text, re.MULTILINE)) == len(bibliography())
    for key, entry in bibliography().items():
        assert CITED_KEY.fullmatch(f"@{key}"), key
        assert entry.year[:4] in key
        assert entry.title
        assert all(entry.authors)


@pytest.mark.parametrize("family", [Bound, Construction])
def test_a_source_cites_a_key_or_says_where_the_statement_comes_from(family):
    for kind, member in family.choices().items():
        origin = member.source.startswith(("derived", "textbook", "definition", "binomial"))
        assert cited_keys(member.source) or origin, kind


def test_two_entries_never_share_a_label():
    labels = [entry.label for entry in bibliography().values()]
    assert len(set(labels)) == len(labels)
    assert {bibliography()[key].label for key in ("he2025em", "he2025spectral")} == {
        "He et al. 2025a",
        "He et al. 2025b",
    }


def test_citations_are_spelled_for_readers():
    spelled = spell_citations("Newton's iteration [@schulz1933; @gao2024, eq. 4] as in @bishop2006.")
    assert spelled == "Newton's iteration (Schulz 1933; Gao et al. 2024, eq. 4) as in Bishop 2006."
    assert spell_citations("[@golub1973]") == "(Golub and Pereyra 1973)"
    with pytest.raises(KeyError):
        spell_citations("@nobody1900")
