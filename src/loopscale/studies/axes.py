"""The axes of a study's cells: settings that vary, settings that vary in step, and cells that differ along one axis."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from loopscale.studies.cells import labels

PROMPTS = "prompts"
FACTORS_OF_PROMPTS = ("training.steps", "training.batch_size")
"""The prompts seen in training are the product of these settings."""


class HasValues(Protocol):
    """A cell: its key, and its scientific settings by dotted path."""

    @property
    def key(self) -> str: ...

    @property
    def values(self) -> Mapping[str, Any]: ...


AnyCell = TypeVar("AnyCell", bound=HasValues)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbers(cells: Sequence[HasValues], path: str) -> set[int | float]:
    """The numbers among the values of a setting."""
    return {cell.values[path] for cell in cells if is_number(cell.values.get(path))}


def numeric_settings(cells: Sequence[HasValues]) -> list[str]:
    """The scientific settings with at least two numbers as values, in the order of the study."""
    paths = dict.fromkeys(path for cell in cells for path in cell.values)
    return [path for path in paths if len(numbers(cells, path)) >= 2]


def in_step(cells: Sequence[HasValues], path: str) -> tuple[str, ...]:
    """The other numeric settings whose value follows from the value of `path` in every cell."""
    following: list[str] = []
    for other in numeric_settings(cells):
        partners = defaultdict[Any, set[Any]](set)
        for cell in cells:
            if path in cell.values:
                partners[cell.values[path]].add(cell.values.get(other))
        if other != path and partners and all(len(values) == 1 for values in partners.values()):
            following.append(other)
    return tuple(following)


def cells_along(cells: Sequence[AnyCell], varied: Collection[str]) -> dict[str, list[AnyCell]]:
    """Cells that differ in these settings only, under the settings that they share."""
    groups: dict[str, list[AnyCell]] = {}
    for cell, label in zip(cells, labels_without(cells, varied), strict=True):
        groups.setdefault(label, []).append(cell)
    return groups


def varied_along(cells: Sequence[HasValues], along: str) -> set[str]:
    """The settings in which cells along one axis may differ."""
    return {along, *in_step(cells, along), *(FACTORS_OF_PROMPTS if along == PROMPTS else ())}


def labels_without(cells: Sequence[HasValues], without: Collection[str]) -> list[str]:
    """The label of every cell without these settings; empty if the cells agree in all other settings."""
    others = [{path: value for path, value in cell.values.items() if path not in without} for cell in cells]
    keys = [repr(sorted(other.items(), key=lambda item: item[0])) for other in others]
    distinct = dict(zip(keys, others, strict=True))
    of_key = dict(zip(distinct, labels(list(distinct.values()), ""), strict=True))
    return [of_key[key] for key in keys]
