"""The bibliography, and citations in texts: `[@gao2024, theorem 4.1]` cites the entry `gao2024` of references.bib."""

import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

CITED_KEY = re.compile(r"@([a-z]+\d{4}[a-z]*)")
_ENTRY = re.compile(r"^@\w+\{(\w+), (.*)\}$", re.MULTILINE)
_FIELD = re.compile(r"(\w+)=\{([^{}]*)\}")


@dataclass(frozen=True)
class Reference:
    """An entry of the bibliography."""

    authors: list[str]
    """Family names. The last can be "others"."""
    year: str
    """With a letter where another entry has the same authors and year: 2025a."""
    title: str
    published: str
    """Journal, conference, publisher or note; empty if the entry has none."""

    @property
    def label(self) -> str:
        """`Gao et al. 2024`."""
        many = len(self.authors) > 2 or "others" in self.authors
        authors = f"{self.authors[0]} et al." if many else " and ".join(self.authors)
        return f"{authors} {self.year}" + (" (slides)" if self.published.startswith("slides") else "")

    def __str__(self) -> str:
        return ", ".join(filter(None, [self.label, self.title, self.published]))


@cache
def bibliography() -> dict[str, Reference]:
    """The entries by key."""
    text = files("loopscale").joinpath("references.bib").read_text(encoding="utf-8")
    entries = {key: _parse_reference(dict(_FIELD.findall(fields))) for key, fields in _ENTRY.findall(text)}
    alike: dict[str, list[str]] = {}
    for key, entry in entries.items():
        alike.setdefault(entry.label, []).append(key)
    for keys in alike.values():
        for letter, key in zip("abc", keys if len(keys) > 1 else [], strict=False):
            entries[key] = replace(entries[key], year=entries[key].year + letter)
    return entries


def cited_keys(text: str) -> list[str]:
    """The keys that a text cites, in order and without repetition."""
    return list(dict.fromkeys(CITED_KEY.findall(text)))


def spell_citations(text: str) -> str:
    """The text for readers: `[@gao2024, eq. 2]` becomes `(Gao et al. 2024, eq. 2)`. Raises KeyError for an unknown
    key."""
    text = re.sub(rf"\[({CITED_KEY.pattern}[^\[\]]*)\]", r"(\1)", text)
    return CITED_KEY.sub(lambda match: bibliography()[match[1]].label, text)


def _parse_reference(fields: dict[str, str]) -> Reference:
    authors = [author.partition(",")[0] for author in fields["author"].split(" and ")]
    published = ", ".join(
        fields[name] for name in ("journal", "booktitle", "publisher", "note") if name in fields
    )
    return Reference(authors, fields["year"], fields["title"], published)
