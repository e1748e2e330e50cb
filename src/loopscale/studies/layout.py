"""The layout of a study: the cells, and the valid trials at the ends of every range of each cell."""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from loopscale.models.base import Model
from loopscale.studies.cells import Axes, Cell, Combination, applying, crossed, labels
from loopscale.studies.limits import size_faults
from loopscale.studies.mistakes import Fault, Place, one_of, quoted
from loopscale.studies.schema import StudySchema
from loopscale.studies.settings import (
    PARTS,
    NoComponentError,
    contains,
    get,
    is_tree,
    leaves,
    names_at,
    value_at,
)
from loopscale.studies.space import Axis
from loopscale.studies.validation import coercions, validation_faults, with_kind
from loopscale.studies.where import holds
from loopscale.tasks.base import Task
from loopscale.training.trial import Trial, identity

FEW = 3
"""Up to this number of ranges, every corner of the space is tried; beyond, every end and every pair of upper ends."""


@dataclass
class Layout:
    """The cells of a study, the tuned ranges and trials of each cell by the cell's key, and all faults."""

    cells: tuple[Cell, ...] = ()
    spaces: dict[str, dict[str, Axis]] = field(default_factory=dict[str, dict[str, Axis]])
    trials: dict[str, Trial] = field(default_factory=dict[str, Trial])
    """The trial at the lower end of every range."""
    corners: dict[str, list[Trial]] = field(default_factory=dict[str, list[Trial]])
    """Trials at the ends of the ranges."""
    faults: list[Fault] = field(default_factory=list[Fault])


def lay_out(study: StudySchema, axes: Axes, space: Mapping[str, Axis]) -> Layout:
    """Cross the axes, and validate the trials of every cell at the ends of the ranges.

    `axes` and `space` are the scientific axes and nuisance ranges of the study that have no fault.
    """
    layout, combinations = Layout(), dict[str, Combination]()
    kept = 0
    for combination in crossed(study.fixed, axes):
        try:
            if not _meets(study.where, combination, layout.faults):
                _check_settings(combination, layout.faults)
                continue
        except _InvalidCondition:
            return layout
        except NoComponentError as problem:
            layout.faults.append(_path_fault(problem, axes))
            continue
        kept += 1
        _add(combination, space, layout, combinations)
    if not kept and not layout.faults:
        what = f"no cell is left where {study.where}"
        layout.faults.append(Fault(("where",), what, "loosen the condition"))
    _name(layout, combinations, axes)
    layout.faults = list(dict.fromkeys(layout.faults))
    return layout


class _InvalidCondition(Exception):
    """The condition is wrong for all cells."""


def _meets(where: str, combination: Combination, faults: list[Fault]) -> bool:
    if not where.strip():
        return True
    tree = combination.tree({})
    try:
        return holds(where, lambda path: value_at(tree, path))
    except KeyError as problem:
        path = str(problem.args[0])
        known = [f"{part}.{name}" for part in PARTS for name in names_at(Trial, tree, (part,))]
        remedy = f"write text in quotes, as in model.kind == '{path}'" if "." not in path else ""
        faults.append(
            Fault(("where",), f"where names {path}, which no trial has", remedy or one_of(path, known))
        )
    except ValueError as problem:
        before = len(faults)
        _check_settings(combination, faults)  # the cause may be a wrong value that cannot be compared
        if len(faults) == before:
            faults.append(Fault.from_text(("where",), problem, remedy="write a comparison"))
    raise _InvalidCondition


def _check_settings(combination: Combination, faults: list[Fault]) -> None:
    """Report wrong single settings, also of combinations that the condition leaves out."""
    _valid_trial(combination, {}, {}, faults, single=True)


def _add(
    combination: Combination, space: Mapping[str, Axis], layout: Layout, combinations: dict[str, Combination]
) -> None:
    """Validate a combination and add it as a cell, unless an equal cell exists."""
    try:
        ranges = applying(combination.tree({}), space)
        lowest = {path: axis.ends[0] for path, axis in ranges.items()}
        trial = _valid_trial(combination, lowest, ranges, layout.faults)
    except NoComponentError as problem:
        layout.faults.append(_path_fault(problem, combination.axes))
        return
    if trial is None:
        return
    ranges = {path: axis for path, axis in ranges.items() if contains(trial.settings, path)}
    key = identity(trial, without=tuple(ranges))
    if key in combinations:
        _check_equal_cells(combination, combinations[key], trial, layout, key)
        return
    combinations[key] = combination
    layout.spaces[key], layout.trials[key] = ranges, trial
    corners = (_valid_trial(combination, lowest | point, ranges, layout.faults) for point in _corners(ranges))
    layout.corners[key] = [trial, *filter(None, corners)]


def _path_fault(problem: NoComponentError, axes: Mapping[str, Any]) -> Fault:
    place: Place = ("scientific" if problem.path in axes else "nuisance", problem.path)
    return Fault(place, f"{problem.path} cannot be set: {problem}", "name a setting that the trial has")


def _check_equal_cells(new: Combination, old: Combination, trial: Trial, layout: Layout, key: str) -> None:
    """Report equal cells that are written twice.

    Cells may be equal because a setting does not apply to them, such as loops to a net of fixed depth.
    """
    tuned = layout.spaces[key]
    written = [dict(leaves(each.model_dump(mode="json"))) for each in (trial, layout.trials[key])]
    if any(written[0].get(path) != written[1].get(path) for path in written[0].keys() - tuned.keys()):
        return
    axis = next(n for n, (a, b) in enumerate(zip(new.index, old.index, strict=True)) if a != b)
    path = list(new.axes)[axis]
    values = " and ".join(quoted(each.values[path]) for each in (old, new))
    place: Place = ("scientific", path, new.index[axis])
    what = f"the values {values} of {path} give equal cells"
    layout.faults.append(Fault(place, what, "write every value once"))


def _corners(space: Mapping[str, Axis]) -> Iterator[dict[str, Any]]:
    for path, axis in space.items():
        yield from ({path: end} for end in axis.ends[1:])
    if len(space) <= FEW:
        for ends in itertools.product(*((axis.ends[0], axis.ends[-1]) for axis in space.values())):
            point = dict(zip(space, ends, strict=True))
            if sum(value == space[path].ends[-1] for path, value in point.items()) > 1:
                yield point
    else:
        for a, b in itertools.combinations(space, 2):
            yield {a: space[a].ends[-1], b: space[b].ends[-1]}


def _valid_trial(
    combination: Combination,
    point: Mapping[str, Any],
    space: Mapping[str, Axis],
    faults: list[Fault],
    single: bool = False,
) -> Trial | None:
    """The trial at a point, or `None` after adding its faults; if `single`, only the faults of single settings."""
    tree = combination.tree(point)
    wrong = list(_kind_faults(tree))
    if not wrong:
        try:
            trial = Trial.model_validate(tree)
        except ValidationError as problem:
            wrong = [
                fault
                for fault in validation_faults(problem, Trial, tree)
                if not single or len(fault.place) > 1
            ]
        else:
            wrong = list(coercions(tree, trial)) or size_faults(trial)
            if not wrong:
                return trial
    faults.extend(_in_study(fault, combination, space, tree) for fault in wrong)
    return None


def _kind_faults(tree: Mapping[str, Any]) -> Iterator[Fault]:
    for part, family in (("task", Task), ("model", Model)):
        if part not in tree:
            remedy = f"write {part}: {{kind: {next(iter(family.choices()))}}}"
            yield Fault((part,), f"fixed has no {part}", remedy)
        elif isinstance(kind := tree[part], str):
            yield Fault((part, "kind"), f"{part} is {quoted(kind)}", f"write {part}: {{kind: {kind}}}")
        else:
            try:
                with_kind(family, tree[part])
            except ValueError as problem:
                yield Fault.from_text((part, "kind"), problem)


def _in_study(
    fault: Fault, combination: Combination, space: Mapping[str, Axis], tree: Mapping[str, Any]
) -> Fault:
    """The trial's fault with its place in the study.

    A fault of a whole component gets the place of a setting that its text names, preferably of a varied setting.
    """
    places = [fault.place] if len(fault.place) > 1 else _named_settings(fault, tree) or [fault.place]
    origins = [combination.origin(place, space) for place in places]
    varied = [origin for origin in origins if origin[0] != "fixed"]
    place = (varied or origins)[0]
    if (
        fault.what.split(" ")[1:4] == ["has", "no", "setting"]
        and place[0] == "scientific"
        and len(place) == 3
    ):
        place = place[:2]
    return fault._replace(place=place)


def _named_settings(fault: Fault, tree: Mapping[str, Any]) -> list[Place]:
    """The places of the written settings that the fault's text names, in the order of the text."""
    places: list[Place] = []
    for word in re.findall(r"[a-z_]+", fault.what):
        for part in PARTS:
            written = tree.get(part)
            if is_tree(written) and word in written and fault.place[:1] in ((), (part,)):
                places.append((part, word))
    return places


def _name(layout: Layout, combinations: Mapping[str, Combination], axes: Axes) -> None:
    """Make the cells, with their values and labels."""
    paths = list(
        dict.fromkeys(
            path for axis, values in axes.items() for value in values for path in _setting_paths(axis, value)
        )
    )
    values = {key: _values(layout.trials[key].settings, paths) for key in combinations}
    fallback = next((trial.model.kind for trial in layout.trials.values()), "")
    texts = labels(list(values.values()), fallback)
    layout.cells = tuple(
        Cell(key, text, values[key], combination.values)
        for (key, combination), text in zip(combinations.items(), texts, strict=True)
    )


def _setting_paths(axis: str, value: Any) -> list[str]:
    return [path for path, _ in leaves(value, f"{axis}.")] if is_tree(value) else [axis]


def _values(settings: Mapping[str, Any], paths: list[str]) -> dict[str, Any]:
    values = {path: get(settings, path) for path in paths if contains(settings, path)}
    return {path: value for path, value in values.items() if not is_tree(value)}
