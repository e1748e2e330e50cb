"""Small packages, a small corpus and a package server of apt, made on the spot."""

import itertools
import os
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from loopscale.corpora.debian import CONTENTS

GERMAN = (
    "der alte Hund von Anna",
    "die graue Katze am Fenster",
    "das junge Pferd meines Onkels",
    "der bunte Vogel aus Brasilien",
    "die kleine Maus im Keller",
    "der stumme Fisch ohne Namen",
    "die braune Kuh vom Nachbarn",
    "das schwarze Schaf der Familie",
)
ENGLISH = (
    "the old dog of Anna",
    "the grey cat at the window",
    "the young horse of my uncle",
    "the colourful bird from Brazil",
    "the little mouse under our house",
    "the silent fish without name",
    "the brown cow next door",
    "the black sheep of this family",
)
GERMAN_ACTS = ("schläft heute lange", "frisst gern Brot", "sieht den Mond", "läuft über die Straße")
ENGLISH_ACTS = ("sleeps late today", "likes eating bread", "sees a moon", "runs across every street")
DICTIONARY = [
    ("Sie wohnt seit Jahren dort.", "She has lived there for years."),
    ("Kannst du mir helfen?", "Could you help me?"),
    ("Wir treffen uns um acht!", "Let's meet at eight!"),
]
TERMS = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nCopyright: nobody\n"


def small_pairs() -> list[tuple[str, str]]:
    """32 sentences and their translations."""
    germans = [f"{who} {act}" for who, act in itertools.product(GERMAN, GERMAN_ACTS)]
    englishs = [f"{who} {act}" for who, act in itertools.product(ENGLISH, ENGLISH_ACTS)]
    return [
        (f"{one[0].upper()}{one[1:]}.", f"{other[0].upper()}{other[1:]}.")
        for one, other in zip(germans, englishs, strict=True)
    ]


def small_contents() -> dict[str, dict[str, str]]:
    """The files of three packages: one page of help for each animal, and a dictionary with other sentences."""
    pages = {"libreoffice-help-de": 0, "libreoffice-help-en-us": 1}
    contents: dict[str, dict[str, str]] = {}
    for name, side in pages.items():
        contents[name] = {}
        for number in range(len(GERMAN)):
            paragraphs = "".join(
                f'<p id="par_{n}" class="paragraph" dir="auto">{pair[side]}</p>\n'
                for n, pair in enumerate(small_pairs()[4 * number : 4 * number + 4])
            )
            contents[name][f"{CONTENTS[name]}/text/page{number}.html"] = (
                f"<html><body>{paragraphs}</body></html>"
            )
    entries = [
        f"Wort{n} {{m}} | {source} :: word{n} | {target}" for n, (source, target) in enumerate(DICTIONARY)
    ]
    contents["trans-de-en"] = {CONTENTS["trans-de-en"]: "# Version :: 1\n" + "\n".join(entries) + "\n"}
    return contents


def build_package(
    name: str, files: dict[str, str], target: Path, work: Path, licence: str = "MPL-2.0"
) -> Path:
    """A Debian package with the files, and with its text of copyright."""
    root = work / f"{name}-root"
    control = f"Package: {name}\nVersion: 1.2-3\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\n"
    terms = {f"usr/share/doc/{name}/copyright": f"{TERMS}License: {licence}\n"} if licence else {}
    for path, text in {"DEBIAN/control": f"{control}Description: small\n", **files, **terms}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    file = target / f"{name}_1.2-3_all.deb"
    command = ["dpkg-deb", "--root-owner-group", "--build", str(root), str(file)]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"SOURCE_DATE_EPOCH": "0"})
    return file


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the three packages."""
    folder, work = tmp_path_factory.mktemp("packages"), tmp_path_factory.mktemp("work")
    for name, files in small_contents().items():
        build_package(name, files, folder, work, "GPL-2+" if name == "trans-de-en" else "MPL-2.0")
    return folder


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes apt read the packages of one folder, and nothing else on this machine or in a network."""
    place = tmp_path / "apt"

    def use(folder: Path) -> None:
        (place / "lists" / "partial").mkdir(parents=True)
        index = ""
        for file in sorted(folder.glob("*.deb")):
            control = subprocess.run(
                ["dpkg-deb", "-f", str(file)], check=True, capture_output=True, text=True
            ).stdout
            digest = sha256(file.read_bytes()).hexdigest()
            index += f"{control}Filename: ./{file.name}\nSize: {file.stat().st_size}\nSHA256: {digest}\n\n"
        served = place / "served"
        served.mkdir()
        for file in folder.glob("*.deb"):
            (served / file.name).write_bytes(file.read_bytes())
        (served / "Packages").write_text(index)
        (place / "sources.list").write_text(f"deb [trusted=yes] file:{served} ./\n")
        settings = {
            "Dir::State": place,
            "Dir::State::lists": place / "lists",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": place,
            "Dir::Etc::sourcelist": place / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
        }
        (place / "apt.conf").write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
        monkeypatch.setenv("APT_CONFIG", str(place / "apt.conf"))
        subprocess.run(["apt-get", "update"], check=True, capture_output=True)

    return use


@pytest.fixture
def corpus_folder(tmp_path: Path) -> Path:
    """A corpus in the form of IWSLT: 24 pairs to train, 4 for validation, 4 to test."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    pairs = small_pairs()
    for part, chosen in {"train": pairs[:24], "valid": pairs[24:28], "test": pairs[28:]}.items():
        for side, end in enumerate(("de", "en")):
            (folder / f"{part}.{end}").write_text(
                "".join(f"{pair[side]}\n" for pair in chosen), encoding="utf-8"
            )
    return folder
