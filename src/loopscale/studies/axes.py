"""The axes of a study's cells: settings that vary, settings that vary in step, and cells that differ along one axis."""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any, Protocol, TypeVar

from loopscale.questions.axes.base import axis_of, is_number
from loopscale.studies.cells import labels


class HasValues(Protocol):
    """A cell: its key, and its scientific settings by dotted path."""

    @property
    def key(self) -> str: ...

    @property
    def values(self) -> Mapping[str, Any]: ...


AnyCell = TypeVar("AnyCell", bound=HasValues)


def numbers(cells: Sequence[HasValues], path: str) -> set[int | float]:
    """The numbers among the values of a setting."""
    return {cell.values[path] for cell in cells if is_number(cell.values.get(path))}


def numeric_settings(cells: Sequence[HasValues]) -> list[str]:
    """The scientific settings with at least two numbers as values, in the order of the study."""
    paths = dict.fromkeys(path for cell in cells for path in cell.values)
    return [path for path in paths if len(numbers(cells, path)) >= 2]


def in_step(cells: Sequence[HasValues], path: str) -> tuple[str, ...]:
    """The other numeric settings that move in step with `path`, in the order of the study.

    A setting moves in step if its value follows from the value of `path`, either in all cells or in each group of cells
    that share all other settings. An example is a learning rate that is chosen for each T and each condition number.
    """
    with_path = [cell for cell in cells if path in cell.values]
    if not with_path:
        return ()
    others = [other for other in numeric_settings(cells) if other != path]
    everywhere = [other for other in others if _follow(with_path, path, [other], [])]
    free = [other for other in others if other not in everywhere]
    moving = set(everywhere) | set(_in_step_in_groups(with_path, path, free, everywhere))
    return tuple(other for other in others if other in moving)


def _in_step_in_groups(
    cells: Sequence[HasValues], path: str, free: Sequence[str], everywhere: Sequence[str]
) -> tuple[str, ...]:
    """The settings that follow from `path` in each group of cells that share all other settings.

    Of several choices, the choice with the fewest groups counts. Among equal ones, settings of the component of `path`
    move rather than others: in a Latin square of T, rate and condition number, the rate belongs to T.
    """
    settings = dict.fromkeys(name for cell in cells for name in cell.values)
    shared = [name for name in settings if name not in (path, *everywhere)]
    best, least = (), (len(_groups(cells, shared)), 0, 0)
    component = path.partition(".")[0]
    for size in range(1, len(free) + 1):
        for choice in combinations(free, size):
            rest = [name for name in shared if name not in choice]
            groups = _groups(cells, rest)
            rank = (len(groups), size, sum(name.partition(".")[0] != component for name in choice))
            if rank < least and _follow(cells, path, choice, rest) and _all_move(groups, choice):
                best, least = choice, rank
    return best


def _groups(cells: Sequence[HasValues], shared: Sequence[str]) -> list[list[HasValues]]:
    """The cells by their values of the shared settings."""
    groups: dict[str, list[HasValues]] = {}
    for cell in cells:
        groups.setdefault(repr([cell.values.get(name) for name in shared]), []).append(cell)
    return list(groups.values())


def _follow(cells: Sequence[HasValues], path: str, moving: Sequence[str], shared: Sequence[str]) -> bool:
    """True if the values of `moving` follow from the value of `path` in each group of cells."""
    lines = _groups(cells, [*shared, path])
    return all(len({tuple(cell.values.get(name) for name in moving) for cell in line}) == 1 for line in lines)


def _all_move(groups: Sequence[Sequence[HasValues]], moving: Sequence[str]) -> bool:
    """True if each setting has several values in some group."""
    return all(any(len({cell.values.get(name) for cell in group}) > 1 for group in groups) for name in moving)


def cells_along(cells: Sequence[AnyCell], varied: Collection[str]) -> dict[str, list[AnyCell]]:
    """Cells that differ in these settings only, under the settings that they share."""
    groups: dict[str, list[AnyCell]] = {}
    for cell, label in zip(cells, labels_without(cells, varied), strict=True):
        groups.setdefault(label, []).append(cell)
    return groups


def varied_along(cells: Sequence[HasValues], along: str) -> set[str]:
    """The settings in which cells along one axis may differ."""
    return {along, *in_step(cells, along), *axis_of(along).may_vary(numeric_settings(cells))}


def labels_without(cells: Sequence[HasValues], without: Collection[str]) -> list[str]:
    """The label of every cell without these settings; empty if the cells agree in all other settings."""
    others = [{path: value for path, value in cell.values.items() if path not in without} for cell in cells]
    keys = [repr(sorted(other.items(), key=lambda item: item[0])) for other in others]
    distinct = dict(zip(keys, others, strict=True))
    of_key = dict(zip(distinct, labels(list(distinct.values()), ""), strict=True))
    return [of_key[key] for key in keys]
