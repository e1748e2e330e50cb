"""Former names of the settings in a cluster's file. They stay readable, and the present names have their units."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from loopscale.core.config import Config, is_tree
from loopscale.notation.files import YamlTree
from loopscale.notation.mistakes import Fault, Mistakes, Place


@dataclass(frozen=True)
class Former:
    """The present name of a setting, and its value from the value of the former setting."""

    name: str
    value: Callable[[Any], Any] = lambda value: value
    """Raises ValueError for a value that cannot be read."""


def with_present_names(source: YamlTree, kind: type[Config]) -> YamlTree:
    """The tree of a file with the present names, each at the line of the former name.

    Raises Mistakes if a setting has both names, or a value that cannot be read.
    """
    moved: dict[Place, Place] = {}
    tree = _renamed(source, source.tree, kind, (), moved)
    lines = {_at(place, moved): line for place, line in source.lines.items()}
    return replace(source, tree=tree, lines=lines)


def _renamed(
    source: YamlTree, tree: Mapping[str, Any], kind: type[Config], place: Place, moved: dict[Place, Place]
) -> dict[str, Any]:
    former: dict[str, Former] = getattr(kind, "former_names", {})
    present: dict[str, Any] = {}
    for name, value in tree.items():
        if (known := former.get(name)) and known.name in tree:
            fault = Fault((*place, name), f"{name} is the former name of {known.name}", "write one of them")
            raise Mistakes([source.mistake(fault)])
        if known:
            moved[*place, name] = (*place, known.name)
            try:
                present[known.name] = known.value(value)
            except ValueError as problem:
                what, _, remedy = str(problem).partition("; ")
                raise Mistakes([source.mistake(Fault((*place, name), what, remedy))]) from None
            continue
        field = kind.model_fields.get(name)
        inner = _config_in(field.annotation) if field else None
        if inner and is_tree(value):
            value = _renamed(source, value, inner, (*place, name), moved)
        present[name] = value
    return present


def _config_in(annotation: Any) -> type[Config] | None:
    """The class of settings in an annotation such as `Node | None`."""
    found = (annotation, *get_args(annotation))
    return next((each for each in found if isinstance(each, type) and issubclass(each, Config)), None)


def _at(place: Place, moved: dict[Place, Place]) -> Place:
    for depth in range(len(place), 0, -1):
        if place[:depth] in moved:
            return (*moved[place[:depth]], *place[depth:])
    return place
