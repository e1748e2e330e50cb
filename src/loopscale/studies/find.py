"""Where a study's file is, and what the study is called: its path below the nearest `studies/`."""

import re
from pathlib import Path

from loopscale.studies.mistakes import Mistake, Mistakes, one_of

SUFFIXES = (".yaml", ".yml")
FOLDER = "studies"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*")


def find(name_or_path: str | Path) -> Path:
    """The file of a study, given its path or its name. Raises Mistakes."""
    path = Path(name_or_path)
    if path.suffix in SUFFIXES or path.is_file() or path.is_dir():
        if path.exists():
            return path
        raise _wrong(path, "there is no such file", _nearest(str(path), path.parent))
    folder = nearest_folder()
    if folder is None:
        raise _wrong(
            path,
            f"there is no such file, and no {FOLDER}/ here or above",
            "name a file, or go where studies/ is",
        )
    if NAME.fullmatch(str(name_or_path)):
        for suffix in SUFFIXES:
            if (file := folder / f"{name_or_path}{suffix}").is_file():
                return file
    raise _wrong(path, f"there is no such study below {FOLDER}/", one_of(name_or_path, names(folder)))


def names(folder: Path) -> list[str]:
    """The names of all studies in a `studies/` folder."""
    files = sorted(file for suffix in SUFFIXES for file in folder.rglob(f"*{suffix}"))
    return [file.relative_to(folder).with_suffix("").as_posix() for file in files]


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


def _nearest(path: str, folder: Path) -> str:
    near = (
        [str(file) for suffix in SUFFIXES for file in sorted(folder.glob(f"*{suffix}"))]
        if folder.is_dir()
        else []
    )
    return one_of(path, near) if near else f"{folder} has no studies; name a file that is there"


def _wrong(path: Path, what: str, remedy: str) -> Mistakes:
    return Mistakes([Mistake(str(path), None, what, remedy)])
