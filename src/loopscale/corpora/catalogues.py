"""Pairs of sentences from the catalogues of gettext: messages of a program, and their translations."""

import os
import re
import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from loopscale.corpora.building import TextSource, check_new_folder, write_corpus
from loopscale.corpora.extra import extra_packages, polib
from loopscale.corpora.pairs import Pair, sentence_pairs
from loopscale.errors import CorpusError

ENDINGS = (".po", ".mo")
"""The files of catalogues: written by people, and compiled."""
_ACCELERATOR = re.compile(r"(?<!\w)[_&~](?=\w)")
"""The sign before the underlined letter of a menu."""
_LANGUAGE = re.compile(r"([a-z]{2})(?:[_-][A-Za-z]{2,4})?(?:[@.].*)?")
"""Names of languages, such as `de`, `de_AT` and `de_DE.UTF-8`. Folders have many names of three letters."""


def build_gettext_corpus(
    folder: Path, places: Sequence[Path], language: str = "de", of_messages: str = "en"
) -> dict[str, Any]:
    """Write a corpus from catalogues into a new folder, and return its datasheet.

    Parameters
    ----------
    places
        Catalogues, and folders that are searched for catalogues `*.po` and `*.mo`.
    language
        The language of the translations, which are the source of the pairs. Catalogues of other languages do not count.
    of_messages
        The language of the messages in the programs.

    Raises
    ------
    CorpusError
        If no catalogue of the language is found, or a catalogue cannot be read.
    UsageError
        If the folder has content or cannot be written, or if polib is missing.
    """
    check_new_folder(folder)
    pairs, origins = list[Pair](), dict[str, dict[str, str]]()
    for name, file in _catalogue_files(places):
        catalogue = _read(file)
        if not _is_of(language, catalogue, file):
            continue
        origins[name] = {"sha256": sha256(file.read_bytes()).hexdigest()}
        pairs += catalogue_pairs(catalogue, name)
    if not origins:
        where = ", ".join(map(str, places))
        raise CorpusError(
            f"no catalogue of the language {language!r} is in {where}; give a folder with *.po or *.mo"
        )
    command = "loopscale corpus gettext"
    return write_corpus(folder, command, {"catalogues": TextSource(pairs, origins)}, (language, of_messages))


def catalogue_pairs(catalogue: "polib.POFile | polib.MOFile", name: str) -> Iterator[Pair]:
    """The pairs of a catalogue: translation first, message second. Doubtful and obsolete translations do not count.

    Messages of one file of the program are one group. A message without a file is a group by itself.
    """
    for entry in catalogue.translated_entries():
        place = entry.occurrences[0][0] if entry.occurrences else f"{entry.msgctxt or ''}|{entry.msgid}"
        texts = [(entry.msgid, entry.msgstr)]
        if entry.msgid_plural:
            texts = [
                (message, entry.msgstr_plural.get(form, ""))
                for form, message in enumerate((entry.msgid, entry.msgid_plural))
            ]
        for message, translation in texts:
            if message and translation:
                source, target = (_ACCELERATOR.sub("", text) for text in (translation, message))
                yield from sentence_pairs(source, target, f"{name}: {place}")


def _catalogue_files(places: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """The names and paths of all catalogues. No name has a path of this machine. Raises CorpusError."""
    names = dict[str, int]()
    for place in places:
        if not os.path.exists(place):  # also of a name that is too long
            raise CorpusError(f"there is no {place}; give catalogues, or folders of catalogues")
        if not (place.is_file() or place.is_dir()):
            raise CorpusError(
                f"{place} is neither a file nor a folder; give catalogues, or folders of catalogues"
            )
        # Neither broken links nor pipes are catalogues. polib takes the name of a missing file for a catalogue's text.
        found = [place] if place.is_file() else [file for file in place.rglob("*") if _may_be_catalogue(file)]
        for file in sorted(found, key=lambda file: file.relative_to(place).as_posix()):
            name = (Path(place.resolve().name) / file.relative_to(place)).as_posix()
            name = os.fsencode(name).decode(errors="backslashreplace")  # names of files are bytes
            names[name] = names.get(name, 0) + 1
            yield (name if names[name] == 1 else f"{name} ({names[name]})"), file


def _may_be_catalogue(file: Path) -> bool:
    return file.suffix in ENDINGS and os.path.isfile(file)


def _read(file: Path) -> "polib.POFile | polib.MOFile":
    try:
        with extra_packages():
            return polib.mofile(str(file)) if file.suffix == ".mo" else polib.pofile(str(file))
    except (OSError, ValueError, LookupError, struct.error) as problem:
        reason = " ".join(str(getattr(problem, "strerror", None) or problem).split())
        raise CorpusError(
            f"cannot read the catalogue {file} ({reason}); `msgfmt --check` shows mistakes"
        ) from problem


def _is_of(language: str, catalogue: "polib.POFile | polib.MOFile", file: Path) -> bool:
    """Whether the header of a catalogue names the language, or else the path does, as in `po/de.po`."""
    named = [catalogue.metadata.get("Language", ""), file.stem, *(folder.name for folder in file.parents)]
    found = [name for name in named if name == language or _LANGUAGE.fullmatch(name)][:1]
    return any(language in (name, _LANGUAGE.sub(r"\1", name)) for name in found)
