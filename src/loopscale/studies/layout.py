"""A study laid out: every cell's trials validated, to the ends of every range, before anything runs."""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from loopscale.models.base import Model
from loopscale.studies.cells import Cell, Combination, applying, crossed, labels
from loopscale.studies.limits import too_large
from loopscale.studies.mistakes import Fault, Place, one_of, shown
from loopscale.studies.parts import named
from loopscale.studies.settings import PARTS, names_at, value_at
from loopscale.studies.space import Axis, NoComponentError, get, leaves
from loopscale.studies.where import holds
from loopscale.studies.wording import faults, passed_off
from loopscale.tasks.base import Task
from loopscale.training.trial import Trial, identity

if TYPE_CHECKING:
    from loopscale.studies.spec import Study

FEW = 3
"""Up to so many ranges every corner of the space is tried; beyond, every end and every pair of upper ends."""


@dataclass
class Layout:
    """The cells of a study, what is tuned in each, and what is wrong with it."""

    cells: tuple[Cell, ...] = ()
    spaces: dict[str, dict[str, Axis]] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    """Every cell's trial at the lower end of every range."""
    corners: dict[str, list[Trial]] = field(default_factory=dict)
    """Every cell's trials at the ends of its ranges."""
    faults: list[Fault] = field(default_factory=list)


def lay_out(study: "Study", axes: Mapping[str, tuple[Any, ...]], space: Mapping[str, Axis]) -> Layout:
    """Cross `axes`, the scientific ones that are sound, and validate every trial at the ends of `space`."""
    layout, combinations = Layout(), dict[str, Combination]()
    kept = 0
    for combination in crossed(study.fixed, axes):
        try:
            if not _kept(study.where, combination, layout.faults):
                _sound(combination, layout.faults)
                continue
        except _HopelessError:
            return layout
        except NoComponentError as problem:
            layout.faults.append(_misled(problem, axes))
            continue
        kept += 1
        _add(combination, space, layout, combinations)
    if not kept and not layout.faults:
        layout.faults.append(
            Fault(("where",), f"no cell is left where {study.where}", "loosen the condition")
        )
    _name(layout, combinations, axes)
    layout.faults = list(dict.fromkeys(layout.faults))
    return layout


class _HopelessError(Exception):
    """The condition itself is wrong, for every cell alike."""


def _kept(where: str, combination: Combination, found: list[Fault]) -> bool:
    if not where.strip():
        return True
    tree = combination.tree({})
    try:
        return holds(where, lambda path: value_at(tree, path))
    except KeyError as problem:
        path = str(problem.args[0])
        remedy = f"write text in quotes, as in model.kind == '{path}'" if "." not in path else ""
        what = f"where names {path}, which no trial has"
        found.append(Fault(("where",), what, remedy or one_of(path, _paths(tree))))
    except ValueError as problem:
        before = len(found)
        _sound(combination, found)  # a value that cannot be compared may be what is wrong
        if len(found) == before:
            what, _, remedy = str(problem).partition("; ")
            found.append(Fault(("where",), what, remedy or "write a comparison"))
    raise _HopelessError


def _sound(combination: Combination, found: list[Fault]) -> None:
    """What is wrong with single settings is wrong even where the condition leaves the combination out."""
    _trial(combination, {}, {}, found, alone=True)


def _paths(tree: Mapping[str, Any]) -> list[str]:
    return [f"{part}.{name}" for part in PARTS for name in names_at(Trial, tree, (part,))]


def _add(
    combination: Combination, space: Mapping[str, Axis], layout: Layout, combinations: dict[str, Combination]
) -> None:
    """Validate a combination and take it in as a cell, unless it is one that is there already."""
    try:
        here = applying(combination.tree({}), space)
        base = {path: axis.ends[0] for path, axis in here.items()}
        trial = _trial(combination, base, here, layout.faults)
    except NoComponentError as problem:
        layout.faults.append(_misled(problem, combination.axes))
        return
    if trial is None:
        return
    here = {path: axis for path, axis in here.items() if _applies(trial.settings, path)}
    key = identity(trial, without=tuple(here))
    if key in combinations:
        _twice(combination, combinations[key], trial, layout, key)
        return
    combinations[key] = combination
    layout.spaces[key], layout.trials[key] = here, trial
    ends = (_trial(combination, base | point, here, layout.faults) for point in _corners(here))
    layout.corners[key] = [trial, *filter(None, ends)]


def _misled(problem: NoComponentError, axes: Mapping[str, Any]) -> Fault:
    place: Place = ("scientific" if problem.path in axes else "nuisance", problem.path)
    return Fault(place, f"{problem.path} cannot be set: {problem}", "name a setting that the trial has")


def _applies(tree: Mapping[str, Any], path: str) -> bool:
    try:
        get(tree, path)
    except KeyError:
        return False
    return True


def _twice(new: Combination, old: Combination, trial: Trial, layout: Layout, key: str) -> None:
    """Cells may be equal where a setting does not apply (loops, at a fixed depth); none is written twice."""
    here = layout.spaces[key]
    written = [dict(leaves(each.model_dump(mode="json"))) for each in (trial, layout.trials[key])]
    if any(written[0].get(path) != written[1].get(path) for path in written[0].keys() - here.keys()):
        return
    axis = next(n for n, (a, b) in enumerate(zip(new.index, old.index, strict=True)) if a != b)
    path = list(new.axes)[axis]
    values = " and ".join(shown(each.values[path]) for each in (old, new))
    place: Place = ("scientific", path, new.index[axis])
    layout.faults.append(
        Fault(place, f"{path} has equal cells for its values {values}", "write every value once")
    )


def _corners(space: Mapping[str, Axis]) -> Iterator[dict[str, Any]]:
    for path, axis in space.items():
        yield from ({path: end} for end in axis.ends[1:])
    if len(space) <= FEW:
        for ends in itertools.product(*((axis.ends[0], axis.ends[-1]) for axis in space.values())):
            point = dict(zip(space, ends, strict=True))
            if sum(value == space[path].ends[-1] for path, value in point.items()) > 1:
                yield point
    else:
        for one, other in itertools.combinations(space, 2):
            yield {one: space[one].ends[-1], other: space[other].ends[-1]}


def _trial(
    combination: Combination,
    point: Mapping[str, Any],
    space: Mapping[str, Axis],
    found: list[Fault],
    alone: bool = False,
) -> Trial | None:
    """The trial at a point, or `None` and what is wrong with it; if `alone`, with settings by themselves."""
    tree = combination.tree(point)
    wrong = list(_kinds(tree))
    if not wrong:
        try:
            trial = Trial.model_validate(tree)
        except ValidationError as problem:
            wrong = [fault for fault in faults(problem, Trial, tree) if not alone or len(fault.place) > 1]
        else:
            wrong = list(passed_off(tree, trial)) or list(too_large(trial))
            if not wrong:
                return trial
    found.extend(_blamed(fault, combination, space, tree) for fault in wrong)
    return None


def _kinds(tree: Mapping[str, Any]) -> Iterator[Fault]:
    for part, family in (("task", Task), ("model", Model)):
        if part not in tree:
            yield Fault(
                (part,), f"fixed has no {part}", f"write {part}: {{kind: {next(iter(family.choices()))}}}"
            )
            continue
        try:
            if isinstance(tree[part], str):
                raise ValueError(f"{part} is {shown(tree[part])}; write {part}: {{kind: {tree[part]}}}")
            named(family, tree[part])
        except ValueError as problem:
            what, _, remedy = str(problem).partition("; ")
            yield Fault((part, "kind"), what, remedy)


def _blamed(
    fault: Fault, combination: Combination, space: Mapping[str, Axis], tree: Mapping[str, Any]
) -> Fault:
    """The fault by its place in the study. What is said of a component is blamed on a setting named there."""
    places = [fault.place, *_named(fault, tree)] if len(fault.place) < 2 else [fault.place]
    origins = [combination.origin(place, space) for place in places[1:] or places]
    varied = [origin for origin in origins if origin[0] != "fixed"]
    place = (varied or origins)[0]
    if fault.what.split(" ")[1:4] == ["has", "no", "setting"] and place[0] == "scientific":
        place = place[:2] if len(place) == 3 else place
    return fault._replace(place=place)


def _named(fault: Fault, tree: Mapping[str, Any]) -> list[Place]:
    """The places of the settings that a message speaks of and that the study wrote down, in that order."""
    places: list[Place] = []
    for word in re.findall(r"[a-z_]+", fault.what):
        for part in PARTS:
            written = tree.get(part)
            if isinstance(written, Mapping) and word in written and fault.place[:1] in ((), (part,)):
                places.append((part, word))
    return places


def _name(
    layout: Layout, combinations: Mapping[str, Combination], axes: Mapping[str, tuple[Any, ...]]
) -> None:
    """Give the cells that were found their values and labels."""
    paths = list(
        dict.fromkeys(
            path for axis, values in axes.items() for value in values for path in _taken(axis, value)
        )
    )
    values = {key: _values(layout.trials[key].settings, paths) for key in combinations}
    fallback = next((trial.model.kind for trial in layout.trials.values()), "")
    texts = labels(list(values.values()), fallback)
    layout.cells = tuple(
        Cell(key, text, values[key], combination.values)
        for (key, combination), text in zip(combinations.items(), texts, strict=True)
    )


def _taken(axis: str, value: Any) -> list[str]:
    return [path for path, _ in leaves(value, f"{axis}.")] if isinstance(value, Mapping) else [axis]


def _values(settings: Mapping[str, Any], paths: list[str]) -> dict[str, Any]:
    found = {path: get(settings, path) for path in paths if _applies(settings, path)}
    return {path: value for path, value in found.items() if not isinstance(value, Mapping)}
