"""The cells of a study: its scientific values crossed, filtered, and each merged with what is fixed."""

import copy
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from loopscale.core.config import Config, Family
from loopscale.studies.mistakes import Place
from loopscale.studies.settings import chosen, classes_at, has
from loopscale.studies.space import Axis, get, put
from loopscale.training.trial import Trial

MOST_CELLS = 10_000


@dataclass(frozen=True)
class Cell:
    """One combination of the scientific values: it is tuned, and answered, on its own."""

    key: str
    """The hash of its settings, leaving out what is tuned and the seed."""
    label: str
    """What it is called in tables and figures; unique in its study."""
    values: dict[str, Any]
    """Every scientific setting that applies in it, by dotted path, components taken apart."""
    written: dict[str, Any] = field(repr=False)
    """The values as the study has them, each under its axis."""


@dataclass(frozen=True)
class Combination:
    """One value of every axis, over what is fixed. Nobody knows yet whether it is a trial."""

    fixed: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]
    index: tuple[int, ...]

    @property
    def values(self) -> dict[str, Any]:
        return {path: self.axes[path][n] for path, n in zip(self.axes, self.index, strict=True)}

    def tree(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a trial at `point`, as they are written, defaults left out."""
        return merged(self.fixed, self.values | dict(point))

    def origin(self, place: Place, tuned: Mapping[str, Axis]) -> Place:
        """Where in the study the trial's setting at `place` was written, the last word on it."""
        if (path := ".".join(map(str, place))) in tuned:
            return ("nuisance", path)
        for path, n in reversed(list(zip(self.axes, self.index, strict=True))):
            at = tuple(path.split("."))
            rest = place[len(at) :]
            if place[: len(at)] == at and _holds(self.axes[path][n], rest):
                return ("scientific", path, n, *rest)
        return ("fixed", *place)


def _holds(value: Any, rest: Place) -> bool:
    return not rest or (isinstance(value, Mapping) and rest[0] in value)


def crossed(fixed: Mapping[str, Any], axes: Mapping[str, tuple[Any, ...]]) -> Iterator[Combination]:
    for index in itertools.product(*(range(len(values)) for values in axes.values())):
        yield Combination(fixed, axes, index)


def how_many(axes: Mapping[str, tuple[Any, ...]]) -> int:
    return math.prod(map(len, axes.values()))


def merged(fixed: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """What is fixed, with values put over it: whole components first, the most outer ones before their parts.

    Keys that a whole component leaves out are taken from `fixed` where its kind has them. Raises
    NoComponentError for a path that leads through something that is no component.
    """
    tree = copy.deepcopy(dict(fixed))
    for path, value in sorted(values.items(), key=lambda item: (not _is_whole(*item), item[0].count("."))):
        if path.endswith(".kind"):
            path, value = path.removesuffix(".kind"), {"kind": value}
        put(tree, path, _over(tree, path, value) if isinstance(value, Mapping) else value)
    return tree


def _is_whole(path: str, value: Any) -> bool:
    return isinstance(value, Mapping) or path.endswith(".kind")


def _over(tree: dict[str, Any], path: str, value: Mapping[str, Any]) -> dict[str, Any]:
    try:
        below = get(tree, path)
    except KeyError:
        below = {}
    whole = dict(below if isinstance(below, Mapping) else {}) | copy.deepcopy(dict(value))
    place = tuple(path.split("."))
    classes = [
        found for each in classes_at(Trial, tree | {place[0]: whole}, place) if (found := chosen(each, whole))
    ]
    if not any(issubclass(each, Family) for each in classes):
        return whole
    return {
        name: each for name, each in whole.items() if name in value or name == "kind" or _has(classes, name)
    }


def _has(classes: list[type[Config]], name: str) -> bool:
    return any(name in each.model_fields for each in classes)


def applying(tree: Mapping[str, Any], space: Mapping[str, Axis]) -> dict[str, Axis]:
    """The ranges whose setting the trial's kinds have."""
    return {path: axis for path, axis in space.items() if has(tree, path)}


def labels(cells: list[dict[str, Any]], fallback: str) -> list[str]:
    """A short text for every cell: its kinds, and what else differs among the cells of these kinds."""
    varying = _varying(cells)
    leaf = {path: path.rsplit(".", 1)[1] for path in varying}
    short = {path: name if list(leaf.values()).count(name) == 1 else path for path, name in leaf.items()}
    alike: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for cell in cells:
        alike[_kinds(cell)].append(cell)
    within = {kinds: _varying(same) for kinds, same in alike.items()}
    texts = []
    for cell in cells:
        parts = [str(cell[path]) for path in cell if path.endswith(".kind") and path in varying]
        told = [path for path in cell if path in within[_kinds(cell)]]
        texts.append(", ".join(parts + [f"{short[path]}={_text(cell[path])}" for path in told]) or fallback)
    if len(set(texts)) == len(texts):
        return texts
    return [", ".join(f"{path}={_text(value)}" for path, value in cell.items()) or fallback for cell in cells]


def _varying(cells: list[dict[str, Any]]) -> set[str]:
    """The paths that are not the same in all cells, or not in all of them."""
    found: dict[str, set[str]] = defaultdict(set)
    for cell in cells:
        for path, value in cell.items():
            found[path].add(repr(value))
    shared = set.intersection(*map(set, cells)) if cells else set()
    return {path for path, values in found.items() if len(values) > 1 or path not in shared}


def _kinds(cell: Mapping[str, Any]) -> str:
    return repr({path: value for path, value in cell.items() if path.endswith(".kind")})


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
