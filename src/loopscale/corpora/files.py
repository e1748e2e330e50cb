"""The files of a corpus: `train.de` and `train.en`, likewise validation and test, one sentence a line.

Line n of both files of a part is a pair. Corpora from elsewhere, such as IWSLT, have the same form.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from loopscale.corpora.splitting import CORPUS_PARTS
from loopscale.errors import CorpusError

OTHER_NAMES = {"validation": ("validation", "valid")}
"""The names of a part's files, where the part has several."""
LONGEST_LINE = 10_000
"""Bytes of one line. A sentence is shorter, so a longer line is no sentence."""

TextPair = tuple[str, str]
"""A sentence and its translation."""


@dataclass(frozen=True)
class Corpus:
    """Pairs of sentences in three parts.

    Parameters
    ----------
    folder
        The folder of the files.
    source, target
        The endings of the files: languages, such as `de` and `en`.
    train, validation, test
        The pairs of each part, in the order of the lines.
    digest
        The SHA-256 hash of the six files. Corpora with the same bytes have the same digest.
    """

    folder: Path
    source: str
    target: str
    train: tuple[TextPair, ...]
    validation: tuple[TextPair, ...]
    test: tuple[TextPair, ...]
    digest: str


def read_corpus(folder: Path, source: str = "de", target: str = "en") -> Corpus:
    """Read a corpus.

    Raises
    ------
    CorpusError
        If a file is missing or cannot be read. If a line is no text in UTF-8, is empty, or is longer than
        `LONGEST_LINE`. If the two files of a part have different numbers of lines.
    """
    if source == target:
        raise CorpusError(f"source and target are both {source!r}; give two endings, such as de and en")
    if not os.path.isdir(folder):  # also of a name that is too long
        raise CorpusError(
            f"there is no folder {folder}; `loopscale corpus debian -o {folder}` makes a corpus"
        )
    files = _files_of(folder, source, target)
    content, parts = sha256(), dict[str, tuple[TextPair, ...]]()
    for part in CORPUS_PARTS:
        sides = list[list[str]]()
        for file in files[part]:
            data = _read_bytes(file)
            content.update(f"{part} {len(data)}\n".encode() + data)
            sides.append(_lines(file, data))
        if len(sides[0]) != len(sides[1]):
            counts = " and ".join(
                f"{file.name} has {len(lines):,} lines"
                for file, lines in zip(files[part], sides, strict=True)
            )
            raise CorpusError(
                f"{folder}: {counts}; give files in which line n of the one translates line n of the other"
            )
        parts[part] = tuple(zip(*sides, strict=True))
    return Corpus(folder, source, target, digest=content.hexdigest(), **parts)


def _files_of(folder: Path, source: str, target: str) -> dict[str, tuple[Path, Path]]:
    """The two files of each part. Raises CorpusError for missing files, and for a part with two names."""
    files, missing = dict[str, tuple[Path, Path]](), list[str]()
    for part in CORPUS_PARTS:
        names = OTHER_NAMES.get(part, (part,))
        found = [
            name for name in names if any((folder / f"{name}.{end}").exists() for end in (source, target))
        ]
        if len(found) > 1:
            both = " and ".join(f"{name}.*" for name in found)
            raise CorpusError(f"{folder} has files {both} of one part; remove one of the two names")
        name = found[0] if found else names[0]
        files[part] = folder / f"{name}.{source}", folder / f"{name}.{target}"
        missing += [file.name for file in files[part] if not file.is_file()]
    if missing:
        raise CorpusError(
            f"{folder} has no {', '.join(missing)}; a corpus has the files train, validation and test "
            f"with the endings .{source} and .{target}"
        )
    return files


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as problem:
        raise CorpusError(
            f"cannot read {file} ({problem.strerror}); correct the file's permissions"
        ) from problem


def _lines(file: Path, data: bytes) -> list[str]:
    """The lines of a file without spaces at their ends. Only a line feed ends a line, with or without a return.

    `str.splitlines` also ends lines at rare characters, such as U+2028 inside a sentence, and so would move the lines
    of one language only.
    """
    lines = list[str]()
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n") if data else [], start=1):
        if len(line) > LONGEST_LINE:
            raise CorpusError(
                f"{file}, line {number} has {len(line):,} bytes; a line is one sentence, with at most "
                f"{LONGEST_LINE:,} bytes"
            )
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            remedy = f"`iconv -f ENCODING -t UTF-8 {file.name}` converts the file"
            raise CorpusError(f"{file}, line {number} is no UTF-8; {remedy}") from None
        if "\x00" in text:
            raise CorpusError(f"{file}, line {number} has a null character; give text in UTF-8")
        if not text:
            raise CorpusError(
                f"{file}, line {number} is empty; remove the line from the files of both languages"
            )
        lines.append(text)
    if not lines:
        raise CorpusError(f"{file} is empty; give at least one sentence")
    return lines


def part_files(parts: Mapping[str, Sequence[TextPair]], source: str, target: str) -> dict[str, bytes]:
    """The content of each file of a corpus by the file's name."""
    return {
        f"{part}.{end}": "".join(f"{pair[side]}\n" for pair in pairs).encode()
        for part, pairs in parts.items()
        for side, end in enumerate((source, target))
    }
