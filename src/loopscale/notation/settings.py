"""Settings of a trial by dotted path: in trees of plain values, and in the classes that validate these trees.

Pydantic's errors, values of another type and sizes that no machine can hold become faults, each with a remedy.
"""

import types
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticUndefined

from loopscale.core.config import Config, Family, is_tree, leaves
from loopscale.notation.mistakes import Fault, Place, dotted, one_of, quoted
from loopscale.training.trial import UNHASHED, Training, Trial

UNTRAINED = tuple(f"training.{name}" for name in UNHASHED)
"""Settings that change nothing in training, such as how often a trial reports."""
TRANSPARENT = (Union, types.UnionType, Annotated)
"""Annotations around the type of a single component."""


class NoComponentError(ValueError):
    """A path leads through a value that has no settings."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(what)
        self.path = path


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
    """The value at a dotted path. Raises KeyError(path) if the tree has no such value."""
    value: Any = tree
    for name in path.split("."):
        if not is_tree(value) or name not in value:
            raise KeyError(path)
        value = value[name]
    return value


def with_named_kinds(path: str, value: Any) -> Any:
    """The value at a dotted path of a trial, or its whole tree at an empty path, with kinds written out.

    A component of `training` that has a default kind may be written as its kind alone: `optimizer: muon`.
    """
    if path == "" and is_tree(value) and "training" in value:
        return dict(value) | {"training": with_named_kinds("training", value["training"])}
    if path == "training" and is_tree(value):
        return {name: with_named_kinds(f"training.{name}", inner) for name, inner in value.items()}
    part, _, name = path.partition(".")
    if isinstance(value, str) and part == "training" and name in Training.model_fields:
        inner = components(Training.model_fields[name].annotation)
        if any(issubclass(each, Family) and each.default_kind for each in inner):
            return {"kind": value}
    return value


def has_path(tree: Mapping[str, Any], path: str) -> bool:
    try:
        get(tree, path)
    except KeyError:
        return False
    return True


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


def _members(components: list[type[Config]], node: Any) -> list[type[Config]]:
    """The classes that validate `node`: for a family, the member that its kind names, none for an unknown kind."""
    members = list[type[Config]]()
    for component in components:
        if not issubclass(component, Family) or component.kind:
            members.append(component)
        else:
            kind = node.get("kind", component.default_kind) if is_tree(node) else component.default_kind
            if member := component.member(kind):
                members.append(member)
    return members


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
    if has_path(tree, path):
        return get(tree, path)
    *parents, leaf = path.split(".")
    for component in classes_at(Trial, tree, tuple(parents)):
        if leaf == "kind" and issubclass(component, Family):
            return component.kind
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


WANTED = {
    "int": "write a whole number, such as 10",
    "float": "write a number, such as 1e-3",
    "finite": "write a finite number",
    "bool": "write true or false",
    "string": "write text",
    "tuple": "write a list, as in [1, 2]",
    "dict": "write a mapping of name: value",
    "model": "write a mapping of name: value",
    "mapping": "write a mapping of name: value",
}
"""Remedies by the first word of pydantic's type of error, as in `int_type` or `int_parsing`."""
LIMITS = {
    "greater_than": ("gt", "write a number above {}"),
    "greater_than_equal": ("ge", "write {} or more"),
    "less_than": ("lt", "write a number below {}"),
    "less_than_equal": ("le", "write {} or less"),
    "string_too_short": ("min_length", "write at least {} character"),
    "too_short": ("min_length", "write at least {}"),
    "too_long": ("max_length", "write at most {}"),
}


class UnknownKind(ValueError):
    """A component names a kind that its family does not have."""


def with_kind(family: type[Family], data: Any) -> Any:
    """Complete a component that is written as its kind alone. Raises ValueError for a missing or unknown kind."""
    if isinstance(data, Family):
        return data
    if isinstance(data, str):
        data = {"kind": data}
    noun = family.noun()
    if not is_tree(data) or "kind" not in data:
        known = one_of("", family.choices())
        raise ValueError(f"this {noun} is {quoted(data)} and has no kind; {known} as its kind")
    kind = data["kind"]
    if family.member(kind) is None:
        raise UnknownKind(f"there is no {noun} {quoted(kind)}; {one_of(kind, family.choices())}")
    return data


def validation_faults(problem: ValidationError, root: type[Config], tree: Mapping[str, Any]) -> list[Fault]:
    """Every error from validating `tree` as a `root`, by its place in the tree."""
    return [_fault(error, root, tree) for error in _without_branches(problem.errors(include_url=False))]


def _without_branches(errors: list[ErrorDetails]) -> Iterator[ErrorDetails]:
    """The errors, with one error in place of those of all branches of a union of literals."""
    merged: dict[Place, ErrorDetails] = {}
    for error in errors:
        *place, branch = error["loc"] or ("",)
        if error["type"] != "literal_error" or not str(branch).startswith("literal["):
            yield error
        elif first := merged.get(tuple(place)):
            expected = error.get("ctx", {}).get("expected", "")
            first["ctx"] = {"expected": f"{first.get('ctx', {}).get('expected', '')}, {expected}"}
        else:
            error["loc"] = tuple(place)
            merged[error["loc"]] = error
    yield from merged.values()


def _fault(error: ErrorDetails, root: type[Config], tree: Mapping[str, Any]) -> Fault:
    place = existing_place(tree, error["loc"])
    name, value = dotted(place), quoted(error["input"])
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            parent, key = place[:-1], place[-1]
            owner = dotted(parent) or getattr(root, "kind", "") or root.__name__.lower()
            return Fault(place, f"{owner} has no setting {key!r}", one_of(key, names_at(root, tree, parent)))
        case "missing":
            return Fault(place[:-1], f"{dotted(error['loc'])} is missing", f"write {error['loc'][-1]}: ...")
        case "literal_error":
            expected = context.get("expected", "").replace("'", "").replace(" or ", ", ").split(", ")
            return Fault(place, f"{name} is {value}", one_of(error["input"], expected))
        case "value_error":
            cause = context.get("error", error["msg"])
            at = (*place, "kind") if isinstance(cause, UnknownKind) else place
            return Fault.from_text(at, cause, f"{name}: " if name else "", "change one of the two")
        case kind if kind in LIMITS:
            bound, remedy = LIMITS[kind]
            return Fault(place, f"{name} is {value}", remedy.format(context.get(bound)))
        case kind if (wanted := kind.split("_")[0]) in WANTED:
            return Fault(place, f"{name} is {value}", _wanted(wanted, error, root, tree, place))
        case _:
            return Fault(place, f"{name} is {value}", error["msg"][:1].lower() + error["msg"][1:])


def _wanted(kind: str, error: ErrorDetails, root: type[Config], tree: Mapping[str, Any], place: Place) -> str:
    """The remedy for a value of another type, in terms of the written value if possible."""
    value, remedy = error["input"], WANTED[kind]
    if kind == "tuple" and isinstance(value, str | bool | int | float):
        remedy = f"write a list, as in [{value}]"
    elif kind == "tuple" and isinstance(value, Mapping):
        remedy = "write a list, with a - before it, or in [ ]"
    elif kind == "model" and isinstance(value, str) and "kind" in names_at(root, tree, place):
        remedy = f"write {place[-1]}: {{kind: {value}}}"
    field = root.model_fields.get(str(place[0])) if len(place) == 1 else None
    optional = value is None and field is not None and not field.is_required()
    return f"{remedy}, or take {place[0]} out" if optional else remedy


def coercions(written: Any, validated: Any, place: Place = ()) -> Iterator[Fault]:
    """Texts and truth values that pydantic accepted as numbers, and texts and numbers accepted as truth values.

    Pydantic itself accepts no text in percent. A setting that has accepted one is a share, see `share_of`.
    """
    if is_tree(written):
        inner = dict(validated) if isinstance(validated, Config) or is_tree(validated) else {}
        for name, value in written.items():
            if name in inner:
                yield from coercions(value, inner[name], (*place, name))
    elif isinstance(written, list | tuple) and isinstance(validated, list | tuple):
        values, results = cast(list[Any], written), cast(list[Any], validated)
        for n, (value, result) in enumerate(zip(values, results, strict=False)):
            yield from coercions(value, result, (*place, n))
    elif (
        isinstance(written, str | bool | int | float)
        and isinstance(validated, int | float)
        and (isinstance(written, str) or isinstance(written, bool) is not isinstance(validated, bool))
        and not str(written).endswith("%")
    ):
        wanted, right = "true or false" if isinstance(validated, bool) else "a number", str(validated).lower()
        remedy = f"write {right}" if isinstance(place[-1], int) else f"write {place[-1]}: {right}"
        yield Fault(place, f"{dotted(place)} is {quoted(written)}, not {wanted}", remedy)


def existing_place(tree: Any, location: Place) -> Place:
    """Pydantic's location without its internal steps. The last key stays even if it is missing in the tree."""
    place: list[str | int] = []
    for n, step in enumerate(location):
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            if n < len(location) - 1:
                continue
        place.append(step)
    return tuple(place)


LARGEST_SIZES = {"task": 2**14, "model": 2**16, "training": 10**12}
"""The largest whole number in each part of a trial."""
MOST_LOOPS, MOST_PROMPTS = 100_000, 10_000_000
MOST_READABLE = 10**18
"""Larger numbers are quoted without separators, and shortened."""
WIDEST = 4096
"""Coordinates of a token. Tasks and solvers hold square matrices of this size."""
MOST_TOKENS = 2**15
"""Tokens of a prompt, as a net sees the prompt."""
MOST_NUMBERS = 2**28
"""Numbers in a batch: 1 GiB in float32."""


def size_faults(trial: Trial) -> list[Fault]:
    """Sizes of a valid trial that no machine could hold. Single settings come first, alone if there are any."""
    return list(_single(trial)) or list(_combined(trial))


def _single(trial: Trial) -> Iterator[Fault]:
    for path, value in leaves(trial.settings):
        part, name = path.split(".")[0], path.rsplit(".", 1)[-1]
        most = MOST_LOOPS if path in ("training.loops", "training.window") else LARGEST_SIZES.get(part)
        if most and type(value) is int and value > most and not name.endswith("seed"):
            number = quoted(value) if value > MOST_READABLE else f"{value:,}"
            yield Fault(tuple(path.split(".")), f"{path} is {number}", f"write {most:,} or less")


def _combined(trial: Trial) -> Iterator[Fault]:
    prompt, batch = trial.task.prompt, trial.training.batch_size
    numbers = prompt.length * prompt.dim_in
    shape = f"{prompt.length:,} tokens of {prompt.dim_in:,} numbers"
    if prompt.dim_in > WIDEST or prompt.length > MOST_TOKENS or numbers > MOST_NUMBERS:
        sizes = {name: value for name, value in trial.task if type(value) is int and "seed" not in name}
        name = max(sizes, key=sizes.__getitem__)
        what = f"task.{name} is {sizes[name]:,}, which makes prompts of {shape}"
        limits = f"a token can have at most {WIDEST:,} numbers, and a prompt {MOST_TOKENS:,} tokens"
        yield Fault(("task", name), what, f"write less: {limits}")
    elif batch * numbers > MOST_NUMBERS:
        what = f"training.batch_size is {batch:,}, for prompts of {shape}"
        yield Fault(("training", "batch_size"), what, f"write {MOST_NUMBERS // numbers:,} or less")
