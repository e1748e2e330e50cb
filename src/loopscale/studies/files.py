"""Where the file of a study is, and the name of the study: its path below the nearest `studies/`."""

import os
import re
from pathlib import Path

from loopscale.studies.mistakes import Mistakes, one_of

SUFFIXES = (".yaml", ".yml")
FOLDER = "studies"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*")


def find_study(name_or_path: str | Path) -> Path:
    """The file of a study, given its path or its name. Raises Mistakes."""
    path, folder = Path(name_or_path), studies_folder()
    if not str(name_or_path).strip():
        raise _empty_name()
    if path.suffix in SUFFIXES:
        if os.path.exists(path):
            return path
        raise Mistakes.one(str(path), "there is no such file", _nearest_file(path, folder))
    for suffix in SUFFIXES if folder and NAME.fullmatch(path.as_posix()) else ():
        if os.path.isfile(file := Path(f"{folder}/{path}{suffix}")):
            if folder and not file.resolve().is_relative_to(folder.resolve()):
                what = f"this link leads out of {FOLDER}/"
                raise Mistakes.one(str(file), what, "name the file that the link points to")
            return file
    for file in (path, *(Path(f"{path}{suffix}") for suffix in SUFFIXES)):
        if os.path.exists(file):
            return file
    if folder is None:
        what = f"there is no such file, and no {FOLDER}/ here or above"
        raise Mistakes.one(str(path), what, f"name a file, or change to a folder with {FOLDER}/")
    what = f"there is no such study below {FOLDER}/"
    raise Mistakes.one(str(path), what, one_of(name_or_path, study_names(folder)))


def study_names(folder: Path) -> list[str]:
    """The names of all studies in a `studies/` folder."""
    files = sorted(file for suffix in SUFFIXES for file in folder.rglob(f"*{suffix}"))
    names = [file.relative_to(folder).with_suffix("").as_posix() for file in files if file.is_file()]
    return [name for name in names if NAME.fullmatch(name)]


def studies_folder(start: Path | None = None) -> Path | None:
    """The `studies/` folder in the current folder or in the nearest folder above."""
    current = (start or Path.cwd()).resolve()
    if current.name == FOLDER:
        return current
    above = (current, *current.parents)
    return next((folder / FOLDER for folder in above if (folder / FOLDER).is_dir()), None)


def study_name(path: Path) -> str:
    """The path below the nearest `studies/`, without suffix, or else the stem. Raises Mistakes."""
    whole = path.resolve().with_suffix("")
    depth = next((n for n, part in reversed(list(enumerate(whole.parts[:-1]))) if part == FOLDER), None)
    name = whole.name if depth is None else "/".join(whole.parts[depth + 1 :])
    if not NAME.fullmatch(name):
        what = f"{name!r} cannot be a study's name"
        raise Mistakes.one(str(path), what, "rename the file, with letters, digits, _ . and - only")
    return name


def recorded_name(study: str) -> str:
    """The name of a study in the records, given its file or its name. The file may be gone.

    Raises Mistakes for an empty text, and for a file whose name no study can have.
    """
    if not study.strip():
        raise _empty_name()
    path = Path(study)
    try:
        path = find_study(study)
    except Mistakes:
        return study_name(path) if path.suffix in SUFFIXES else study
    return study if path.is_dir() else study_name(path)


def _empty_name() -> Mistakes:
    return Mistakes.one("STUDY", "the name is empty", f"give a study's file, or its name below {FOLDER}/")


def _nearest_file(path: Path, studies: Path | None) -> str:
    """The remedy for a missing file: the study of that name below studies/, or a file in the same folder."""
    if studies and os.path.isfile(studies / path):
        return f"name the study, {path.with_suffix('')}"
    try:
        files = [file for file in sorted(path.parent.iterdir()) if file.suffix in SUFFIXES and file.is_file()]
    except OSError:
        files = []
    return one_of(path, files) if files else f"name a file that exists; {path.parent} has no studies"
