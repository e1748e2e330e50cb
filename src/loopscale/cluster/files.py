"""The settings of a cluster, read from its file `cluster/NAME.yaml`."""

import os
import re
from pathlib import Path

from pydantic import ValidationError

from loopscale.cluster.base import Cluster
from loopscale.cluster.former_names import with_present_names
from loopscale.notation.files import YamlTree, read_yaml
from loopscale.notation.mistakes import Fault, Mistake, Mistakes, one_of
from loopscale.notation.plugins import PLUGINS_KEY, load_plugins
from loopscale.notation.settings import coercions, validation_faults, with_kind

CLUSTER_FOLDER, CLUSTER_SUFFIXES = "cluster", (".yaml", ".yml")
CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
LOCAL = "local"
"""The cluster that needs no file: this machine."""


def load_cluster(name_or_path: str | None = None) -> tuple[str, Cluster]:
    """A cluster's name and settings, given its name below `cluster/` or its file. Raises Mistakes."""
    text = name_or_path or os.environ.get("LOOPSCALE_CLUSTER") or LOCAL
    path = Path(text)
    if path.suffix not in CLUSTER_SUFFIXES:
        if not CLUSTER_NAME.fullmatch(text):
            raise _mistake(repr(text)[:80], "cannot be a cluster's name", "use letters, digits, _ . and -")
        file = _file_of(text)
        if file is None:
            return text, Cluster.model_validate({"kind": LOCAL})
        path = file
    if not path.is_file():
        raise _mistake(text, "there is no such file", f"name a cluster, {_known(nearest_cluster_folder())}")
    if not CLUSTER_NAME.fullmatch(path.stem):
        raise _mistake(text, f"{path.stem!r} cannot be a cluster's name", "use letters, digits, _ . and -")
    source = read_yaml(path, text if path.suffix == Path(text).suffix else str(path))
    return path.stem, _parse(source, path.parent)


def cluster_names() -> list[str]:
    """The clusters that can be named: `local`, and those with a file in the nearest `cluster/`."""
    return list(dict.fromkeys([LOCAL, *_names(nearest_cluster_folder())]))


def nearest_cluster_folder() -> Path | None:
    """The `cluster/` in the working directory, or in the nearest folder above."""
    start = Path.cwd().resolve()
    folders = (folder / CLUSTER_FOLDER for folder in (start, *start.parents))
    return next((folder for folder in folders if folder.is_dir()), None)


def _names(folder: Path | None) -> list[str]:
    files = sorted(file for file in folder.iterdir() if file.suffix in CLUSTER_SUFFIXES) if folder else []
    return [file.stem for file in files if CLUSTER_NAME.fullmatch(file.stem)]


def _file_of(name: str) -> Path | None:
    """The cluster's file; None for `local` without a file. Raises Mistakes."""
    folder = nearest_cluster_folder()
    for suffix in CLUSTER_SUFFIXES if folder else ():
        if (file := Path(f"{folder}/{name}{suffix}")).is_file():
            return file
    if name == LOCAL:
        return None
    raise _mistake(name, f"there is no such cluster below {CLUSTER_FOLDER}/", _known(folder))


def _known(folder: Path | None) -> str:
    return one_of("", dict.fromkeys([LOCAL, *_names(folder)]))


def _parse(source: YamlTree, folder: Path) -> Cluster:
    """The cluster of a file in `folder`, which may name plugins as a study does."""
    tree = source.tree
    load_plugins(source, folder)
    tree.pop(PLUGINS_KEY, None)
    try:
        with_kind(Cluster, tree)
    except ValueError as problem:
        what, _, remedy = str(problem).partition("; ")
        place = ("kind",) if "kind" in tree else ()
        raise Mistakes([source.mistake(Fault(place, what, remedy))]) from None
    kind = Cluster.choices()[tree["kind"]]
    source = with_present_names(source, kind)
    tree = source.tree
    settings = {name: value for name, value in tree.items() if name != "kind"}
    try:
        cluster = Cluster.model_validate(tree)
    except ValidationError as problem:
        raise Mistakes(map(source.mistake, validation_faults(problem, kind, settings))) from None
    if ignored := list(coercions(settings, cluster)):
        raise Mistakes(map(source.mistake, ignored))
    return cluster


def _mistake(file: str, what: str, remedy: str) -> Mistakes:
    return Mistakes([Mistake(file, None, what, remedy)])
