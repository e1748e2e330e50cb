"""The cells of a study: its scientific values crossed, filtered, and each merged with the fixed settings."""

import copy
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from loopscale.core.config import Config, Family
from loopscale.studies.mistakes import Place
from loopscale.studies.settings import classes_at, get, has_setting, is_tree, member_class, put
from loopscale.studies.space import Axis
from loopscale.training.trial import Trial

MOST_CELLS = 10_000
Axes = Mapping[str, tuple[Any, ...]]
"""Dotted path -> the values to compare."""


@dataclass(frozen=True)
class Cell:
    """One combination of the scientific values. Each cell is tuned and answered separately."""

    key: str
    """Hash of the settings, without the tuned settings and the seed."""
    label: str
    """Name in tables and figures; unique within the study."""
    values: dict[str, Any]
    """Every scientific setting that applies in the cell, by dotted path; components are split into their settings."""
    written: dict[str, Any] = field(repr=False)
    """The values as the study has them, by axis."""


@dataclass(frozen=True)
class Combination:
    """One value of every axis over the fixed settings. The combination may not be a valid trial."""

    fixed: Mapping[str, Any]
    axes: Axes
    index: tuple[int, ...]

    @property
    def values(self) -> dict[str, Any]:
        return {path: self.axes[path][n] for path, n in zip(self.axes, self.index, strict=True)}

    def tree(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The written settings of a trial at `point`, without defaults."""
        return merged(self.fixed, self.values | dict(point))

    def origin(self, place: Place, tuned: Mapping[str, Axis]) -> Place:
        """The place in the study that sets the trial's setting at `place`."""
        if (path := ".".join(map(str, place))) in tuned:
            return ("nuisance", path)
        for path, n in reversed(list(zip(self.axes, self.index, strict=True))):
            at = tuple(path.split("."))
            rest, value = place[len(at) :], self.axes[path][n]
            if place[: len(at)] == at and (not rest or (isinstance(value, Mapping) and rest[0] in value)):
                return ("scientific", path, n, *rest)
        return ("fixed", *place)


def crossed(fixed: Mapping[str, Any], axes: Axes) -> Iterator[Combination]:
    for index in itertools.product(*(range(len(values)) for values in axes.values())):
        yield Combination(fixed, axes, index)


def crossed_size(axes: Axes) -> int:
    return math.prod(map(len, axes.values()))


def merged(fixed: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fixed settings with values put over them: whole components first, outer components before inner ones.

    A whole component takes the settings that it leaves out from `fixed`, if its kind has them. Raises
    NoComponentError for a path that leads through a value without settings.
    """
    tree = copy.deepcopy(dict(fixed))
    for path, value in sorted(
        values.items(), key=lambda item: (not _is_component(*item), item[0].count("."))
    ):
        if path.endswith(".kind"):
            path, value = path.removesuffix(".kind"), {"kind": value}
        put(tree, path, _over(tree, path, value) if is_tree(value) else value)
    return tree


def _is_component(path: str, value: Any) -> bool:
    return isinstance(value, Mapping) or path.endswith(".kind")


def _over(tree: dict[str, Any], path: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """The component `value` completed with the settings that the tree already has at `path`."""
    try:
        below = get(tree, path)
    except KeyError:
        below = {}
    whole = dict(below if is_tree(below) else {}) | copy.deepcopy(dict(value))
    place = tuple(path.split("."))
    classes = [
        member
        for each in classes_at(Trial, tree | {place[0]: whole}, place)
        if (member := member_class(each, whole))
    ]
    if not any(issubclass(each, Family) for each in classes):
        return whole
    return {
        name: each
        for name, each in whole.items()
        if name in value or name == "kind" or _has_field(classes, name)
    }


def _has_field(classes: list[type[Config]], name: str) -> bool:
    return any(name in each.model_fields for each in classes)


def applying(tree: Mapping[str, Any], space: Mapping[str, Axis]) -> dict[str, Axis]:
    """The ranges whose setting the kinds in the tree have."""
    return {path: axis for path, axis in space.items() if has_setting(tree, path)}


def labels(cells: list[dict[str, Any]], fallback: str) -> list[str]:
    """A short text for every cell: its kinds, and the settings that differ among cells of these kinds."""
    varying = _varying(cells)
    leaf = {path: path.rsplit(".", 1)[1] for path in varying}
    short = {path: name if list(leaf.values()).count(name) == 1 else path for path, name in leaf.items()}
    alike: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for cell in cells:
        alike[_kinds(cell)].append(cell)
    within = {kinds: _varying(group) for kinds, group in alike.items()}
    texts: list[str] = []
    for cell in cells:
        kinds = [str(cell[path]) for path in cell if path.endswith(".kind") and path in varying]
        settings = [f"{short[path]}={_text(cell[path])}" for path in cell if path in within[_kinds(cell)]]
        texts.append(", ".join(kinds + settings) or fallback)
    if len(set(texts)) == len(texts):
        return texts
    return [", ".join(f"{path}={_text(value)}" for path, value in cell.items()) or fallback for cell in cells]


def _varying(cells: list[dict[str, Any]]) -> set[str]:
    """The paths that some cells lack, or that have different values in different cells."""
    values: dict[str, set[str]] = defaultdict(set)
    for cell in cells:
        for path, value in cell.items():
            values[path].add(repr(value))
    shared = set[str].intersection(*map(set, cells)) if cells else set[str]()
    return {path for path, different in values.items() if len(different) > 1 or path not in shared}


def _kinds(cell: Mapping[str, Any]) -> str:
    return repr({path: value for path, value in cell.items() if path.endswith(".kind")})


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
