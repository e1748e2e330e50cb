"""Where a study's file is, and what the study is called: its path below the nearest `studies/`."""

import os
import re
from pathlib import Path

from loopscale.studies.mistakes import Mistake, Mistakes, one_of

SUFFIXES = (".yaml", ".yml")
FOLDER = "studies"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*")


def find(name_or_path: str | Path) -> Path:
    """The file of a study, given its path or its name. Raises Mistakes."""
    path, folder = Path(name_or_path), nearest_folder()
    if not str(name_or_path).strip():
        raise _wrong("STUDY", "the name is empty", "give a study's file, or its name below studies/")
    if path.suffix in SUFFIXES:
        if os.path.exists(path):
            return path
        raise _wrong(path, "there is no such file", _nearest(path, folder))
    for suffix in SUFFIXES if folder and NAME.fullmatch(path.as_posix()) else ():
        if os.path.isfile(file := Path(f"{folder}/{path}{suffix}")):
            if folder and not file.resolve().is_relative_to(folder.resolve()):
                raise _wrong(file, f"this leads out of {FOLDER}/, to another place", "name that file itself")
            return file
    for file in (path, *(Path(f"{path}{suffix}") for suffix in SUFFIXES)):
        if os.path.exists(file):
            return file
    if folder is None:
        raise _wrong(
            path,
            f"there is no such file, and no {FOLDER}/ here or above",
            "name a file, or go where studies/ is",
        )
    raise _wrong(path, f"there is no such study below {FOLDER}/", one_of(name_or_path, names(folder)))


def names(folder: Path) -> list[str]:
    """The names of all studies in a `studies/` folder that have one."""
    files = sorted(file for suffix in SUFFIXES for file in folder.rglob(f"*{suffix}"))
    found = [file.relative_to(folder).with_suffix("").as_posix() for file in files if file.is_file()]
    return [name for name in found if NAME.fullmatch(name)]


def nearest_folder(start: Path | None = None) -> Path | None:
    """The `studies/` here or in the nearest folder above."""
    here = (start or Path.cwd()).resolve()
    around = [here, *here.parents]
    if here.name == FOLDER:
        return here
    return next((folder / FOLDER for folder in around if (folder / FOLDER).is_dir()), None)


def name_of(path: Path) -> str:
    """The study's name: below the nearest `studies/`, without suffix, else the stem. Raises Mistakes."""
    whole = path.resolve().with_suffix("")
    depth = next((n for n, part in reversed(list(enumerate(whole.parts[:-1]))) if part == FOLDER), None)
    name = whole.name if depth is None else "/".join(whole.parts[depth + 1 :])
    if not NAME.fullmatch(name):
        raise _wrong(path, f"{name!r} cannot be a study's name", "rename it, to letters, digits, _ . and -")
    return name


def recorded_name(study: str) -> str:
    """A study's name in the records, given its file or that name. The file need not be there any more.

    Raises Mistakes for an empty text, and for a file whose name no study can have.
    """
    if not study.strip():
        raise _wrong("STUDY", "the name is empty", f"give a study's file, or its name below {FOLDER}/")
    path = Path(study)
    try:
        path = find(study)
    except Mistakes:
        return name_of(path) if path.suffix in SUFFIXES else study
    return study if path.is_dir() else name_of(path)


def _nearest(path: Path, studies: Path | None) -> str:
    """The remedy for a file that is not there: it may lie below studies/, or beside where it was sought."""
    if studies and os.path.isfile(studies / path):
        return f"name the study, {path.with_suffix('')}"
    try:
        near = [
            str(file) for file in sorted(path.parent.iterdir()) if file.suffix in SUFFIXES and file.is_file()
        ]
    except OSError:
        near = []
    return one_of(path, near) if near else f"name a file that is there, {path.parent} has no studies"


def _wrong(path: Path | str, what: str, remedy: str) -> Mistakes:
    return Mistakes([Mistake(str(path), None, what, remedy)])
