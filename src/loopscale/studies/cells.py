"""The cells of a study: its scientific values crossed, filtered, and each merged with the fixed settings.

The layout holds the cells, and the valid trials at the ends of every range of each cell.
"""

import copy
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from loopscale.core.config import Family, is_tree, leaves
from loopscale.models.base import Model
from loopscale.notation.files import PARTS
from loopscale.notation.mistakes import Fault, Place, one_of, quoted
from loopscale.notation.settings import (
    NoComponentError,
    classes_at,
    coercions,
    get,
    has_path,
    has_setting,
    names_at,
    put,
    size_faults,
    validation_faults,
    value_at,
    with_kind,
    with_named_kinds,
)
from loopscale.notation.space import MOST_DRAWS, Axis, Integer, draws, finite_points
from loopscale.notation.where import holds, paths, split
from loopscale.pricing.training_budget import Prices, WrongBudget, with_steps
from loopscale.studies.schema import StudySchema
from loopscale.tasks.base import Task
from loopscale.training.trial import BUDGETS, UNNAMED, Trial, identity

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


def merged(fixed: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fixed settings with values put over them: whole components first, outer components before inner ones.

    A whole component takes the settings that it leaves out from `fixed`, if its kind has them. Raises
    NoComponentError for a path that leads through a value without settings.
    """
    tree = copy.deepcopy(dict(with_named_kinds("", fixed)))
    whole = {path: with_named_kinds(path, value) for path, value in values.items()}
    for path, value in sorted(whole.items(), key=_outer_first):
        if path.endswith(".kind"):
            path, value = path.removesuffix(".kind"), {"kind": value}
        put(tree, path, _over(tree, path, value) if is_tree(value) else value)
    return tree


def _outer_first(setting: tuple[str, Any]) -> tuple[bool, int]:
    path, value = setting
    return not (isinstance(value, Mapping) or path.endswith(".kind")), path.count(".")


def _over(tree: dict[str, Any], path: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """The component `value` completed with the settings that the tree already has at `path`."""
    below = get(tree, path) if has_path(tree, path) else None
    whole = dict(below if is_tree(below) else {}) | copy.deepcopy(dict(value))
    put(tree, path, whole)
    classes = classes_at(Trial, tree, tuple(path.split(".")))
    if not any(issubclass(each, Family) for each in classes):
        return whole
    kept = {"kind", *value}.union(*(each.model_fields for each in classes))
    return {name: setting for name, setting in whole.items() if name in kept}


def labels(cells: list[dict[str, Any]], fallback: str) -> list[str]:
    """A short text for every cell: its kinds, and the settings that differ among cells of these kinds.

    Different cells have different texts: with longer names of the settings, or with every digit, if need be.
    """
    texts: list[str] = []
    for write in (_text, _exact_text):
        texts = _short_labels(cells, fallback, write)
        if len(set(texts)) < len(texts):
            whole = [", ".join(f"{path}={write(value)}" for path, value in cell.items()) for cell in cells]
            texts = [text or fallback for text in whole]
        if len(set(texts)) == len(texts):
            return texts
    return texts


def _short_labels(cells: list[dict[str, Any]], fallback: str, write: Callable[[Any], str]) -> list[str]:
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
        settings = [f"{short[path]}={write(cell[path])}" for path in cell if path in within[_kinds(cell)]]
        texts.append(", ".join(kinds + settings) or fallback)
    return texts


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


def _exact_text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else _text(value)


@dataclass(frozen=True)
class Relation:
    """The part of a study's condition that names tuned settings, in one cell."""

    condition: str
    tree: Mapping[str, Any] = field(repr=False)
    """The written settings of the cell, without a point."""

    def holds(self, point: Mapping[str, Any]) -> bool:
        """True if the point is feasible. Raises ValueError and KeyError as `where.holds`."""
        return holds(self.condition, lambda path: point[path] if path in point else value_at(self.tree, path))

    def feasible(self, point: Mapping[str, Any]) -> bool:
        """True if the point is feasible. A point for which the condition cannot be computed is not."""
        try:
            return self.holds(point)
        except (ValueError, KeyError):
            return False


FEW = 3
"""Up to this number of ranges, every corner of the space is tried; beyond, every end and every pair of upper ends."""

SAMPLED = 8
"""Further feasible points that are validated and priced if an end of the ranges is infeasible."""


ALL_TRIED, MOST_TRIED = 256, 64
"""Random points that are validated besides the ends: in all cells together, and at most in each cell.

A validation takes a millisecond or more.
"""


@dataclass
class Layout:
    """The cells of a study, the tuned ranges and trials of each cell by the cell's key, and all faults."""

    cells: tuple[Cell, ...] = ()
    spaces: dict[str, dict[str, Axis]] = field(default_factory=dict[str, dict[str, Axis]])
    trials: dict[str, Trial] = field(default_factory=dict[str, Trial])
    """The trial at the lower end of every range, or at another feasible point."""
    corners: dict[str, list[Trial]] = field(default_factory=dict[str, list[Trial]])
    """Trials at the ends of the ranges."""
    relations: dict[str, Relation] = field(default_factory=dict[str, Relation])
    """The relation of each cell whose condition names a tuned setting."""
    points: dict[str, int] = field(default_factory=dict[str, int])
    """The number of points of each cell, as far as somebody has asked."""
    faults: list[Fault] = field(default_factory=list[Fault])
    prices: Prices = field(default_factory=Prices)
    """The prices of steps, from which a budget of training derives the steps."""
    wrong_budgets: dict[Place, WrongBudget] = field(default_factory=dict[Place, WrongBudget])
    """For every wrong budget, the error of the cell that needs the largest change."""

    def add_wrong_budget(self, place: Place, error: WrongBudget) -> None:
        known = self.wrong_budgets.get(place)
        if known is None or error.distance > known.distance:
            self.wrong_budgets[place] = error

    @property
    def shared_settings(self) -> dict[str, Any]:
        """The settings of the first cell's trial, by dotted path. They serve cells that do not vary a setting."""
        return dict(leaves(next(iter(self.trials.values())).settings))


def lay_out(study: StudySchema, axes: Axes, space: Mapping[str, Axis], prices: Prices) -> Layout:
    """Cross the axes, and validate the trials of every cell at the ends of the ranges.

    `axes` and `space` are the scientific axes and nuisance ranges of the study that have no fault.
    """
    layout, combinations = Layout(prices=prices), dict[str, Combination]()
    for index in itertools.product(*(range(len(values)) for values in axes.values())):
        combination = Combination(study.fixed, axes, index)
        try:
            about_cell, about_point = _split(study.where, combination, space)
            if _meets(about_cell, combination, prices):
                _add(combination, space, about_point, layout, combinations)
            else:
                layout.faults += _setting_faults(combination, prices)
        except NoComponentError as problem:
            place: Place = ("scientific" if problem.path in axes else "nuisance", problem.path)
            what = f"{problem.path} cannot be set: {problem}"
            layout.faults.append(Fault(place, what, "name a setting that the trial has"))
        except _InvalidCondition as problem:
            layout.faults += problem.faults
            return layout
    layout.faults += [error.fault._replace(place=at) for at, error in layout.wrong_budgets.items()]
    if not combinations and not layout.faults:
        what = f"no cell is left where {study.where}"
        layout.faults.append(Fault(("where",), what, "loosen the condition"))
    _name(layout, combinations, axes)
    layout.faults = list(dict.fromkeys(layout.faults))
    return layout


class _InvalidCondition(Exception):
    """The condition is wrong for all cells."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__()
        self.faults = faults


def _split(where: str, combination: Combination, space: Mapping[str, Axis]) -> tuple[str, str]:
    """The condition on the cell, and the condition on the cell's points."""
    if not where.strip() or not set(paths(where)) & space.keys():
        return where, ""
    tree = combination.tree({})
    return split(where, [path for path in space if has_setting(tree, path)])


def _meets(where: str, combination: Combination, prices: Prices) -> bool:
    if not where.strip():
        return True
    tree = combination.tree({})
    try:
        return holds(where, lambda path: value_at(tree, path))
    except KeyError as problem:
        path = str(problem.args[0])
        known = [f"{part}.{name}" for part in PARTS for name in names_at(Trial, tree, (part,))]
        remedy = f"write text in quotes, as in model.kind == '{path}'" if "." not in path else ""
        what = f"where names {path}, which no trial has"
        faults = [Fault(("where",), what, remedy or one_of(path, known))]
    except ValueError as problem:
        # The cause may be a wrong value that cannot be compared.
        fault = Fault.from_text(("where",), problem, remedy="write a comparison")
        faults = _setting_faults(combination, prices) or [fault]
    raise _InvalidCondition(faults)


def _add(
    combination: Combination,
    space: Mapping[str, Axis],
    relation: str,
    layout: Layout,
    combinations: dict[str, Combination],
) -> None:
    """Validate a combination and add it as a cell, unless an equal cell exists.

    `relation` is the condition on the cell's points. Only feasible points are validated.
    """
    tree = combination.tree({})
    ranges = {path: axis for path, axis in space.items() if has_setting(tree, path)}
    lowest = {path: axis.ends[0] for path, axis in ranges.items()}
    ends = [lowest, *(lowest | point for point in _corners(ranges))]
    if relation:
        ends = _feasible(ends, ranges, Relation(relation, tree), combination)
    trial = _valid_trial(combination, ends[0], ranges, layout)
    if trial is None:
        return
    ranges = {path: axis for path, axis in ranges.items() if has_path(trial.applicable, path)}
    # A budget names the cell, because a tuned setting may change the steps that the budget pays for.
    derived = ("training.steps",) if trial.training.budget else ()
    key = identity(trial, without=(*ranges, *derived))
    if key in combinations:
        _check_equal_cells(combination, combinations[key], trial, layout, key)
        return
    combinations[key] = combination
    layout.spaces[key], layout.trials[key] = ranges, trial
    if relation:
        layout.relations[key] = Relation(relation, tree)
    corners = (_valid_trial(combination, point, ranges, layout) for point in ends[1:])
    layout.corners[key] = [trial, *filter(None, corners)]
    if any(isinstance(axis, Integer) for axis in ranges.values()) and len(layout.corners[key]) == len(ends):
        layout.faults += _faults_inside(combination, ranges, layout.relations.get(key), layout.prices)


def _faults_inside(
    combination: Combination, ranges: Mapping[str, Axis], relation: Relation | None, prices: Prices
) -> list[Fault]:
    """The faults of the first impossible point among random points of the cell, drawn as a search draws them.

    The ends of a range of whole numbers may be possible and points between them impossible, as widths that the heads do
    not divide.
    """
    cells = math.prod(map(len, combination.axes.values()))
    count = min(MOST_TRIED, max(1, ALL_TRIED // cells))
    listed = finite_points(ranges) if math.prod(axis.size for axis in ranges.values()) <= count else None
    for point in itertools.islice(draws(ranges, "inside"), count) if listed is None else listed:
        if relation and not relation.feasible(point):
            continue
        tree = combination.tree(point)
        try:
            _, wrong = _trial_or_faults(tree, prices)
        except WrongBudget:  # a matter of prices, which the ends show
            continue
        if wrong:
            remedy = "write step: n or choice: [...] for the range, or exclude such points by where"
            faults = (_in_study(fault, combination, ranges, tree) for fault in wrong)
            return [
                fault._replace(what=f"a point between the ends is impossible: {fault.what}", remedy=remedy)
                for fault in faults
            ]
    return []


def _feasible(
    ends: list[dict[str, Any]], space: Mapping[str, Axis], relation: Relation, combination: Combination
) -> list[dict[str, Any]]:
    """The feasible points among the ends, and SAMPLED other feasible points if an end is infeasible.

    Raises _InvalidCondition if the condition cannot be computed, or if no point is feasible.
    """
    try:
        feasible = [point for point in ends if relation.holds(point)]
        if len(feasible) == len(ends):
            return feasible
        listed = finite_points(space)
        others = draws(space, relation.condition) if listed is None else listed
        feasible += itertools.islice((point for point in others if relation.holds(point)), SAMPLED)
    except (ValueError, KeyError) as problem:
        if isinstance(problem, KeyError):
            problem = ValueError(f"where names {problem.args[0]}, which no trial has")
        raise _InvalidCondition([Fault.from_text(("where",), problem, remedy="write a comparison")]) from None
    if feasible:
        return feasible
    cell = ", ".join(f"{path}={_text(value)}" for path, value in combination.values.items())
    tried = "no point" if listed is not None else f"none of {MOST_DRAWS:,} random points"
    what = f"{tried} {f'of the cell {cell} ' * bool(cell)}satisfies {relation.condition}"
    raise _InvalidCondition([Fault(("where",), what, "loosen the condition, or widen the ranges")])


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
    combination: Combination, point: Mapping[str, Any], space: Mapping[str, Axis], layout: Layout
) -> Trial | None:
    """The trial at a point, or `None` after adding its faults to the layout."""
    tree = combination.tree(point)
    try:
        trial, wrong = _trial_or_faults(tree, layout.prices)
    except WrongBudget as error:
        layout.add_wrong_budget(_in_study(error.fault, combination, space, tree).place, error)
        return None
    layout.faults.extend(_in_study(fault, combination, space, tree) for fault in wrong)
    return trial


def _setting_faults(combination: Combination, prices: Prices) -> list[Fault]:
    """Wrong kinds and wrong single settings, also of combinations that the condition leaves out."""
    tree = combination.tree({})
    try:
        _, faults = _trial_or_faults(tree, prices)
    except WrongBudget:
        return []
    return [_in_study(fault, combination, {}, tree) for fault in faults if len(fault.place) > 1]


def _trial_or_faults(tree: Mapping[str, Any], prices: Prices) -> tuple[Trial | None, list[Fault]]:
    """The trial of a tree, or its faults. Raises WrongBudget."""
    if faults := list(_kind_faults(tree)):
        return None, faults
    try:
        trial = trial_of(tree, prices)
    except ValidationError as problem:
        return None, validation_faults(problem, Trial, tree)
    faults = list(coercions(tree, trial)) or size_faults(trial)
    return (None if faults else trial), faults


def trial_of(tree: Mapping[str, Any], prices: Prices) -> Trial:
    """The trial of a tree. A budget of `training` pays for its steps. Raises WrongBudget, ValidationError."""
    training = tree.get("training")
    has_budget = is_tree(training) and any(training.get(budget) is not None for budget in BUDGETS)
    return Trial.model_validate(with_steps(tree, prices) if has_budget else tree)


def _kind_faults(tree: Mapping[str, Any]) -> Iterator[Fault]:
    for part, family in (("task", Task), ("model", Model)):
        if part not in tree:
            remedy = f"write {part}: {{kind: {next(iter(family.choices()))}}}"
            yield Fault((part, "kind"), f"fixed has no {part}", remedy)
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
    unknown = fault.what.split(" ")[1:4] == ["has", "no", "setting"]
    if unknown and place[0] == "scientific" and len(place) == 3:
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


def _named(trial: Trial) -> dict[str, Any]:
    """The settings that a cell may name, by dotted path."""
    defaults = {path: value for path, value in leaves(trial.applicable) if path not in UNNAMED}
    return defaults | dict(leaves(trial.settings))


def _name(layout: Layout, combinations: Mapping[str, Combination], axes: Axes) -> None:
    """Make the cells, with their values and labels."""
    trees = [{axis: with_named_kinds(axis, value)} for axis, given in axes.items() for value in given]
    paths = dict.fromkeys(path for tree in trees for path, _ in leaves(tree))
    settings = {key: _named(layout.trials[key]) for key in combinations}
    values = {key: {path: cell[path] for path in paths if path in cell} for key, cell in settings.items()}
    fallback = next((trial.model.kind for trial in layout.trials.values()), "")
    texts = labels(list(values.values()), fallback)
    layout.cells = tuple(
        Cell(key, text, values[key], combination.values)
        for (key, combination), text in zip(combinations.items(), texts, strict=True)
    )
