"""A corpus German to English from three Debian packages, which are unpacked and never installed."""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from loopscale.core.temporary import temporary_folder
from loopscale.corpora.building import TextSource, check_new_folder, write_corpus
from loopscale.corpora.ding import DICTIONARY_FILE, ding_pairs
from loopscale.corpora.libreoffice_help import HELP_FOLDER, help_pairs
from loopscale.corpora.pairs import Pair
from loopscale.errors import CorpusError

CONTENTS = {
    "libreoffice-help-de": f"{HELP_FOLDER}/de",
    "libreoffice-help-en-us": f"{HELP_FOLDER}/en-US",
    "trans-de-en": DICTIONARY_FILE,
}
"""The packages, and the file or the folder of each that is read."""


@dataclass(frozen=True)
class _Package:
    """A package that has been unpacked."""

    name: str
    version: str
    sha256: str
    text: Path
    """The file or the folder that is read."""
    copyright: bytes


def build_debian_corpus(folder: Path, packages: Path | None = None) -> dict[str, Any]:
    """Write the corpus into a new folder, and return its datasheet.

    Parameters
    ----------
    packages
        A folder with the files `*.deb`. Without the folder, apt fetches the packages by name and checks their hashes.

    Raises
    ------
    CorpusError
        If a package cannot be fetched or read.
    UsageError
        If the folder has content, or cannot be written.
    """
    check_new_folder(folder)
    with temporary_folder("corpus") as place:
        if packages is None:
            _fetch(place)
        german, english, ding = _unpacked(packages or place, place)
        sources = {
            "LibreOffice help": _text_source(list(help_pairs(german.text, english.text)), (german, english)),
            "Ding": _text_source(list(ding_pairs(_lines(ding.text))), (ding,)),
        }
    return write_corpus(folder, "loopscale corpus debian", sources)


def _fetch(place: Path) -> None:
    """Fetch the packages into a folder. Raises CorpusError without apt, its lists or a network."""
    _run(
        [
            "apt-get",
            "--quiet",
            "--option=Acquire::http::Timeout=30",
            "--option=Acquire::Retries=1",
            "download",
            *CONTENTS,
        ],
        "give the packages with `--packages FOLDER`, or run `apt-get update` with a network",
        place,
    )


def _unpacked(folder: Path, place: Path) -> list[_Package]:
    """The packages in the order of `CONTENTS`, each unpacked below `place`. Raises CorpusError."""
    found = dict[str, tuple[Path, str]]()
    for file in sorted(file for file in folder.glob("*.deb") if os.path.isfile(file)):
        damaged = f"fetch {file.name} again"
        name, version = (
            _run(["dpkg-deb", "--field", str(file), key], damaged) for key in ("Package", "Version")
        )
        if name in found:
            raise CorpusError(f"{folder} has {name} twice; remove one of the two files")
        found[name] = file, version
    if missing := [name for name in CONTENTS if name not in found]:
        raise CorpusError(
            f"{folder} has no package {', '.join(missing)}; `apt-get download` fetches packages"
        )
    return [_unpack(name, *found[name], place / name) for name in CONTENTS]


def _unpack(name: str, file: Path, version: str, root: Path) -> _Package:
    _run(["dpkg-deb", "--extract", str(file), str(root)], f"fetch {file.name} again")
    text, terms = root / CONTENTS[name], root / "usr/share/doc" / name / "copyright"
    for needed in (text, terms):
        # A link may lead out of the package, to files of this machine.
        if not needed.exists() or not needed.resolve().is_relative_to(root.resolve()):
            inside = needed.relative_to(root)
            raise CorpusError(
                f"{name} {version} has no {inside}; give the version of Debian 12 or a later one"
            )
    return _Package(name, version, sha256(file.read_bytes()).hexdigest(), text, terms.read_bytes())


def _text_source(pairs: Sequence[Pair], packages: Sequence[_Package]) -> TextSource:
    origins = {
        package.name: {
            "version": package.version,
            "licence": _main_licence(package.copyright.decode(errors="replace")),
            "sha256": package.sha256,
        }
        for package in packages
    }
    return TextSource(pairs, origins, {package.name: package.copyright for package in packages})


def _main_licence(terms: str) -> str:
    """The licence of most files, in Debian's machine-readable form of copyrights."""
    found = re.search(r"^Files: \*$.*?^License: *(\S.*?)\s*$", terms, flags=re.MULTILINE | re.DOTALL)
    return found[1] if found else "see the text of copyright"


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8", errors="replace").split("\n")


def _run(command: Sequence[str], remedy: str, folder: Path | None = None) -> str:
    """The output of a program. Raises CorpusError with the last error that the program prints."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=os.environ | {"LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise CorpusError(f"this machine has no {command[0]}; build the corpus on Debian or Ubuntu") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        reason = next((line for line in reversed(lines) if line.startswith("E: ")), lines[-1]).removeprefix(
            "E: "
        )
        raise CorpusError(f"{command[0]} has failed ({reason.rstrip('.')}); {remedy}")
    return done.stdout.strip()
