"""What settings a trial has, by dotted path, known from the classes before any trial is valid."""

import types
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from typing import Any, Union, get_args, get_origin

from pydantic_core import PydanticUndefined

from loopscale.core.config import Config, Family
from loopscale.studies.mistakes import Place
from loopscale.studies.space import get
from loopscale.training.trial import LOOPED_ONLY, UNHASHED, Trial

PARTS = ("task", "model", "training")
"""What a study fixes, varies and tunes of a trial; its seed is the study's own affair."""


def components(annotation: Any) -> list[type[Config]]:
    """The configs that an annotation allows, however they are wrapped."""
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return [annotation]
    inner = get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType, tuple, dict) or hasattr(annotation, "__metadata__"):
        return [found for each in inner for found in components(each)]
    return []


def _many(annotation: Any) -> bool:
    """Whether components stand in it under a key or position of their own."""
    if get_origin(annotation) in (Union, types.UnionType) or hasattr(annotation, "__metadata__"):
        return any(_many(each) for each in get_args(annotation))
    return get_origin(annotation) in (tuple, dict)


def chosen(component: type[Config], node: Any) -> type[Config] | None:
    """The class that is meant: of a family, the one that `node` names as its kind, `None` if none."""
    if not issubclass(component, Family) or component.kind:
        return component
    kind = node.get("kind") if isinstance(node, Mapping) else None
    return component.choices().get(kind) if isinstance(kind, str) else None


def classes_at(root: type[Config], tree: Any, place: Place) -> list[type[Config]]:
    """The classes that what stands at `place` may be of, given the kinds that the tree names on the way."""
    classes: list[type[Config]] = [root]
    one_of_many = False
    for step in place:
        resolved = [found for each in classes if (found := chosen(each, tree))]
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            tree = None
        if one_of_many:
            one_of_many = False
            continue
        annotations = [c.model_fields[str(step)].annotation for c in resolved if str(step) in c.model_fields]
        classes = [found for each in annotations for found in components(each)]
        one_of_many = any(_many(each) for each in annotations)
    return [found for each in classes if (found := chosen(each, tree))]


def names_at(root: type[Config], tree: Any, place: Place) -> list[str]:
    """The names of the settings that there are at `place`."""
    classes = classes_at(root, tree, place)
    try:
        written = reduce(getitem, place, tree)
    except (KeyError, IndexError, TypeError):
        written = None
    names = [name for each in classes for name in each.settings_beside(written)]
    return list(dict.fromkeys((["kind"] if any(issubclass(c, Family) for c in classes) else []) + names))


def value_at(tree: Mapping[str, Any], path: str) -> Any:
    """What a trial would have at a path: what the tree says, else the default. Raises KeyError(path)."""
    try:
        return get(tree, path)
    except KeyError:
        *parents, leaf = path.split(".")
    for component in classes_at(Trial, tree, tuple(parents)):
        field = component.model_fields.get(leaf)
        if field and (default := field.get_default(call_default_factory=True)) is not PydanticUndefined:
            return default
    raise KeyError(path)


def has(tree: Mapping[str, Any], path: str) -> bool:
    """Whether a trial of these kinds has the setting."""
    *parents, leaf = path.split(".")
    return leaf in names_at(Trial, tree, tuple(parents)) and _open(tree, parents)


def _open(tree: Mapping[str, Any], parents: list[str]) -> bool:
    """Whether every optional component on the way is there: without a curriculum nothing in it can be set."""
    for depth in range(2, len(parents) + 1):
        try:
            if value_at(tree, ".".join(parents[:depth])) is None:
                return False
        except KeyError:
            return False
    return True


UNSEEN = tuple(f"training.{name}" for name in UNHASHED)
"""Settings of when to look, which change nothing that is trained."""
LOOPING = tuple(f"training.{name}" for name in LOOPED_ONLY)
