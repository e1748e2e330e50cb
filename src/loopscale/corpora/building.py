"""Write a corpus with its datasheet: what was read, what was kept, and under which licences."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from loopscale.core.output_files import file_mode, write_output
from loopscale.core.temporary import leftovers, make_folder
from loopscale.corpora.files import part_files
from loopscale.corpora.pairs import LONGEST_PAIR, SHORTEST_PAIR, Pair, keep_pairs
from loopscale.corpora.splitting import SHARE_HELD_OUT, SIMILAR, WORDS_IN_SHINGLE, split_pairs
from loopscale.errors import CorpusError, UsageError

DATASHEET = "datasheet.yaml"
"""The file that says what a corpus is made of."""


@dataclass(frozen=True)
class TextSource:
    """Pairs from one package or from one set of files.

    Parameters
    ----------
    pairs
        The pairs before any leaves.
    origins
        What the pairs come from, by name: version, licence, SHA-256 hash.
    copyrights
        Texts of copyright by name. The corpus carries the texts.
    """

    pairs: Sequence[Pair]
    origins: Mapping[str, Mapping[str, str]]
    copyrights: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


def check_new_folder(folder: Path) -> None:
    """Raises UsageError for a file, a link, the current folder and a folder with content. Nothing is fetched before."""
    try:
        taken = folder.is_symlink() or (
            folder.exists()
            and not (folder.is_dir() and not any(folder.iterdir()) and folder.absolute() != Path.cwd())
        )
    except OSError as problem:
        raise UsageError(f"cannot use {folder} ({problem.strerror}); choose another folder") from problem
    if taken:
        raise UsageError(f"{folder} exists already; give a new folder")
    if not folder.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {folder.absolute().parent}; make the folder first")


def write_corpus(
    folder: Path, command: str, sources: Mapping[str, TextSource], ends: tuple[str, str] = ("de", "en")
) -> dict[str, Any]:
    """Write a corpus into a new folder, whole or not at all. Return its datasheet.

    The files have no date and no path, so that the same sources give the same bytes.

    Raises
    ------
    CorpusError
        If too few pairs are left for three parts.
    UsageError
        If the folder has content, or cannot be written.
    """
    check_new_folder(folder)
    kept, reasons = keep_pairs(pair for source in sources.values() for pair in source.pairs)
    if not kept:
        raise CorpusError(f"no pair has {SHORTEST_PAIR} to {LONGEST_PAIR} words; give more texts")
    parts, near = split_pairs(kept)
    in_parts = {pair for pairs in parts.values() for pair in pairs}
    texts = {part: [(pair.source, pair.target) for pair in pairs] for part, pairs in parts.items()}
    files = part_files(texts, *ends)
    datasheet = {
        "languages": {"source": ends[0], "target": ends[1]},
        "made_by": command,
        "words": [SHORTEST_PAIR, LONGEST_PAIR],
        "pairs": {part: len(pairs) for part, pairs in parts.items()},
        "groups": {part: len({pair.group for pair in pairs}) for part, pairs in parts.items()},
        "read": {name: len(source.pairs) for name, source in sources.items()},
        "kept": {name: len(in_parts.intersection(source.pairs)) for name, source in sources.items()},
        "left_out": dict(sorted(reasons.items())) | {"near-duplicates of another part": near},
        "split": {
            "by": "group",
            "held_out": SHARE_HELD_OUT,
            "words_in_shingle": WORDS_IN_SHINGLE,
            "similar": SIMILAR,
        },
        "origins": {name: dict(each) for source in sources.values() for name, each in source.origins.items()},
        "sha256": {name: sha256(content).hexdigest() for name, content in files.items()},
    }
    text = yaml.safe_dump(datasheet, sort_keys=False, allow_unicode=True)
    files[DATASHEET] = text.encode()
    for source in sources.values():
        files |= {f"copyright/{name}.txt": text for name, text in source.copyrights.items()}
    try:
        _write_folder(folder, files)
    except OSError as problem:
        raise UsageError(f"cannot write {folder} ({problem.strerror}); choose another folder") from problem
    return datasheet


def _write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write beside the folder and rename, so that no reader sees a part of a corpus, also after a power cut."""
    place = folder.absolute().parent
    for left in leftovers(place):
        shutil.rmtree(left, ignore_errors=True)
    unfinished = make_folder("corpus", place)
    try:
        for name, content in files.items():
            file = unfinished / name
            file.parent.mkdir(parents=True, exist_ok=True)
            write_output(file, content)
        unfinished.chmod(file_mode(0o777))
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
