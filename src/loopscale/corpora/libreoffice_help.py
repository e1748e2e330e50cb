"""Pairs of sentences from the help of LibreOffice: pages of two languages whose paragraphs have the same ids."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

from loopscale.corpora.pairs import Pair, sentence_pairs

HELP_FOLDER = "usr/share/libreoffice/help"
"""The folder of the help in a Debian package."""
_PARAGRAPH = re.compile(r'<(p|h[1-6])\b(?=[^<>]*\bid="([^"<>]+)")([^<>]*)>([^<]*(?:<(?!/?\1\b)[^<]*)*)</\1>')
"""A paragraph up to its end. A paragraph without an end ends no search beyond the next paragraph."""
_CODE = re.compile(r'\bclass="[^"]*(?:code|literal)')
"""The class of a paragraph that is no language."""


def paragraphs(page: str) -> dict[str, str]:
    """The text of each paragraph of a page by the paragraph's id. A program wrote the pages, so they have one form.

    Of several paragraphs with one id the first counts.
    """
    found = dict[str, str]()
    for _, name, attributes, content in _PARAGRAPH.findall(page):
        if not _CODE.search(attributes):
            text = re.sub(r"<[^>]*>", "", re.sub(r"<br\b[^>]*>", " ", content))
            found.setdefault(name, html.unescape(text))
    return found


def help_pairs(source: Path, target: Path) -> Iterator[Pair]:
    """The pairs of all pages that both folders have, in the order of the pages' names.

    Parameters
    ----------
    source, target
        Folders of pages in one language, such as `help/de` and `help/en-US`.
    """
    for page in sorted(file.relative_to(source).as_posix() for file in source.rglob("*.html")):
        if (source / page).is_file() and (target / page).is_file():
            texts, translations = (paragraphs(_read(folder / page)) for folder in (source, target))
            for name in filter(translations.__contains__, texts):
                yield from sentence_pairs(texts[name], translations[name], page)


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")
