"""Where a cluster's file is, and what it says: `cluster/NAME.yaml`, settings only."""

import os
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loopscale.cluster.base import Cluster
from loopscale.studies.mistakes import Fault, Mistake, Mistakes, one_of
from loopscale.studies.settings import member_class
from loopscale.studies.validation import coercions, validation_faults, with_kind
from loopscale.studies.yaml_tree import YamlTree, read_yaml

FOLDER, SUFFIXES = "cluster", (".yaml", ".yml")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
HERE = "local"
"""The cluster that needs no file: this machine."""


def default() -> str:
    """The cluster that is meant where none is named."""
    return os.environ.get("LOOPSCALE_CLUSTER") or HERE


def find(name_or_path: str | None = None) -> tuple[str, Cluster]:
    """A cluster's name and settings, given its name below `cluster/` or its file. Raises Mistakes."""
    text = name_or_path or default()
    path = Path(text)
    if path.suffix not in SUFFIXES:
        if not NAME.fullmatch(text):
            raise _wrong(repr(text)[:80], "cannot be a cluster's name", "use letters, digits, _ . and -")
        found = _below(text)
        if found is None:
            return text, Cluster.model_validate({"kind": HERE})
        path = found
    if not path.is_file():
        raise _wrong(text, "there is no such file", f"name a cluster, {_there(nearest_folder())}")
    if not NAME.fullmatch(path.stem):
        raise _wrong(text, f"{path.stem!r} cannot be a cluster's name", "use letters, digits, _ . and -")
    return path.stem, _parse(read_yaml(path, text if path.suffix == Path(text).suffix else str(path)))


def names(folder: Path | None) -> list[str]:
    """The clusters that have a file in the folder."""
    files = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES) if folder else []
    return [file.stem for file in files if NAME.fullmatch(file.stem)]


def nearest_folder(start: Path | None = None) -> Path | None:
    """The `cluster/` here or in the nearest folder above."""
    here = (start or Path.cwd()).resolve()
    return next((folder / FOLDER for folder in (here, *here.parents) if (folder / FOLDER).is_dir()), None)


def _below(name: str) -> Path | None:
    """The cluster's file; None for the one that needs none."""
    folder = nearest_folder()
    for suffix in SUFFIXES if folder else ():
        if (file := Path(f"{folder}/{name}{suffix}")).is_file():
            return file
    if name == HERE:
        return None
    raise _wrong(name, f"there is no such cluster below {FOLDER}/", _there(folder))


def _there(folder: Path | None) -> str:
    return one_of("", [HERE, *(name for name in names(folder) if name != HERE)])


def _parse(source: YamlTree) -> Cluster:
    tree: dict[str, Any] = source.tree
    try:
        with_kind(Cluster, tree)
    except ValueError as problem:
        what, _, remedy = str(problem).partition("; ")
        place = ("kind",) if "kind" in tree else ()
        raise Mistakes([source.mistake(Fault(place, what, remedy))]) from None
    kind = member_class(Cluster, tree)
    assert kind
    try:
        cluster = Cluster.model_validate(tree)
    except ValidationError as problem:
        settings = {name: value for name, value in tree.items() if name != "kind"}
        raise Mistakes(map(source.mistake, validation_faults(problem, kind, settings))) from None
    if found := list(coercions({k: v for k, v in tree.items() if k != "kind"}, cluster)):
        raise Mistakes(map(source.mistake, found))
    return cluster


def _wrong(file: str, what: str, remedy: str) -> Mistakes:
    return Mistakes([Mistake(file, None, what, remedy)])
