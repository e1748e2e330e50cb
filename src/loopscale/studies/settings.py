"""Settings of a trial by dotted path: in trees of plain values, and in the classes that validate them."""

import types
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import Annotated, Any, TypeGuard, Union, cast, get_args, get_origin

from pydantic_core import PydanticUndefined

from loopscale.core.config import Config, Family
from loopscale.studies.mistakes import Place, quoted
from loopscale.training.trial import UNHASHED, Trial

PARTS = ("task", "model", "training")
"""Parts of a trial that a study fixes, varies and tunes. The study itself chooses the fourth part, the seed."""
UNTRAINED = tuple(f"training.{name}" for name in UNHASHED)
"""Settings that change nothing in training, such as how often a trial reports."""
TRANSPARENT = (Union, types.UnionType, Annotated)
"""Annotations around the type of a single component."""


class NoComponentError(ValueError):
    """A path leads through a value that has no settings."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(what)
        self.path = path


def is_tree(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def put(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path; missing components on the way are created.

    Raises NoComponentError where the path leads through a value that is no component.
    """
    *parents, leaf = path.split(".")
    for depth, parent in enumerate(parents):
        below: Any = tree.setdefault(parent, {})
        if not isinstance(below, dict):
            name, child = ".".join(parents[: depth + 1]), path.split(".")[depth + 1]
            raise NoComponentError(path, f"{name} is {quoted(below)} and has no {child!r}")
        tree = cast(dict[str, Any], below)
    tree[leaf] = value


def get(tree: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path. Raises KeyError(path) where there is none."""
    value: Any = tree
    for name in path.split("."):
        if not is_tree(value) or name not in value:
            raise KeyError(path)
        value = value[name]
    return value


def contains(tree: Mapping[str, Any], path: str) -> bool:
    try:
        get(tree, path)
    except KeyError:
        return False
    return True


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a tree with its dotted path."""
    for name, value in tree.items():
        if is_tree(value):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def components(annotation: Any) -> list[type[Config]]:
    """The configuration classes that a type annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return [annotation]
    if get_origin(annotation) in (*TRANSPARENT, tuple, dict):
        return [component for each in get_args(annotation) for component in components(each)]
    return []


def _is_collection(annotation: Any) -> bool:
    """True if components stand under keys or positions of their own, as in a list."""
    if get_origin(annotation) in TRANSPARENT:
        return any(_is_collection(each) for each in get_args(annotation))
    return get_origin(annotation) in (tuple, dict)


def member_class(component: type[Config], node: Any) -> type[Config] | None:
    """The class that validates `node`: for a family, the member that its kind names, `None` for an unknown kind."""
    if not issubclass(component, Family) or component.kind:
        return component
    default = component.default_kind
    kind = node.get("kind", default) if is_tree(node) else default
    return component.choices().get(kind) if isinstance(kind, str) else None


def _members(components: list[type[Config]], node: Any) -> list[type[Config]]:
    return [member for each in components if (member := member_class(each, node))]


def classes_at(root: type[Config], tree: Any, place: Place) -> list[type[Config]]:
    """The classes that may validate the value at `place`, given the kinds that the tree names above it."""
    classes: list[type[Config]] = [root]
    in_collection = False
    for step in place:
        resolved = _members(classes, tree)
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            tree = None
        if in_collection:
            in_collection = False
            continue
        annotations = [c.model_fields[str(step)].annotation for c in resolved if str(step) in c.model_fields]
        classes = [component for each in annotations for component in components(each)]
        in_collection = any(_is_collection(each) for each in annotations)
    return _members(classes, tree)


def names_at(root: type[Config], tree: Any, place: Place) -> list[str]:
    """The names of the settings that may stand at `place`."""
    classes = classes_at(root, tree, place)
    try:
        written = reduce(getitem, place, tree)
    except (KeyError, IndexError, TypeError):
        written = None
    names = [name for each in classes for name in each.settings_beside(written)]
    return list(dict.fromkeys((["kind"] if any(issubclass(c, Family) for c in classes) else []) + names))


def value_at(tree: Mapping[str, Any], path: str) -> Any:
    """The value that a trial has at a path: from the tree, else the default. Raises KeyError(path)."""
    try:
        return get(tree, path)
    except KeyError:
        *parents, leaf = path.split(".")
    for component in classes_at(Trial, tree, tuple(parents)):
        field = component.model_fields.get(leaf)
        if field and (default := field.get_default(call_default_factory=True)) is not PydanticUndefined:
            return default
    raise KeyError(path)


def has_setting(tree: Mapping[str, Any], path: str) -> bool:
    """True if a trial of the kinds in the tree has the setting.

    A setting of an absent optional component does not count: without a curriculum none of its settings exist.
    """
    *parents, leaf = path.split(".")
    if leaf not in names_at(Trial, tree, tuple(parents)):
        return False
    try:
        return all(value_at(tree, ".".join(parents[:n])) is not None for n in range(2, len(parents) + 1))
    except KeyError:
        return False
