"""Pydantic's errors as faults: what is wrong, and what would be right."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from loopscale.core.config import Config, Family
from loopscale.studies.mistakes import Fault, Place, dotted, one_of, quoted
from loopscale.studies.settings import is_tree, names_at

WANTED = {
    "int_type": "write a whole number, such as 10",
    "int_parsing": "write a whole number, such as 10",
    "int_from_float": "write a whole number, such as 10",
    "float_type": "write a number, such as 1e-3",
    "float_parsing": "write a number, such as 1e-3",
    "finite_number": "write a finite number",
    "bool_type": "write true or false",
    "bool_parsing": "write true or false",
    "string_type": "write text",
    "tuple_type": "write a list, as in [1, 2]",
    "dict_type": "write a mapping of name: value",
    "model_type": "write a mapping of name: value",
    "mapping_type": "write a mapping of name: value",
}
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
    noun, kinds = family.__name__.lower(), family.choices()
    if not is_tree(data) or "kind" not in data:
        raise ValueError(f"this {noun} is {quoted(data)} and has no kind; {one_of('', kinds)} as its kind")
    kind = data["kind"]
    if not isinstance(kind, str) or kind not in kinds:
        raise UnknownKind(f"there is no {noun} {quoted(kind)}; {one_of(kind, kinds)}")
    return data


def validation_faults(problem: ValidationError, root: type[Config], tree: Mapping[str, Any]) -> list[Fault]:
    """Every error from validating `tree` as a `root`, by its place in the tree."""
    return [_fault(error, root, tree) for error in problem.errors(include_url=False)]


def _fault(error: ErrorDetails, root: type[Config], tree: Mapping[str, Any]) -> Fault:
    place = existing_place(tree, error["loc"])
    name, value = dotted(place), quoted(error["input"])
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            parent, key = place[:-1], place[-1]
            owner = dotted(parent) or root.__name__.lower()
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
        case kind if kind in WANTED:
            return Fault(place, f"{name} is {value}", _wanted(kind, error, root, tree, place))
        case _:
            return Fault(place, f"{name} is {value}", error["msg"][:1].lower() + error["msg"][1:])


def _wanted(kind: str, error: ErrorDetails, root: type[Config], tree: Mapping[str, Any], place: Place) -> str:
    """The remedy for a value of another type, in terms of the written value if possible."""
    value, remedy = error["input"], WANTED[kind]
    if kind == "tuple_type" and isinstance(value, str | bool | int | float):
        remedy = f"write a list, as in [{value}]"
    elif kind == "tuple_type" and isinstance(value, Mapping):
        remedy = "write a list, with a - before it, or in [ ]"
    elif kind == "model_type" and isinstance(value, str) and "kind" in names_at(root, tree, place):
        remedy = f"write {place[-1]}: {{kind: {value}}}"
    field = root.model_fields.get(str(place[0])) if len(place) == 1 else None
    optional = value is None and field is not None and not field.is_required()
    return f"{remedy}, or take {place[0]} out" if optional else remedy


def coercions(written: Any, validated: Any, place: Place = ()) -> Iterator[Fault]:
    """Texts and truth values that pydantic accepted as numbers, and texts that it accepted as truth values."""
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
        isinstance(written, str | bool)
        and isinstance(validated, int | float)
        and type(validated) is not type(written)
    ):
        truth = isinstance(validated, bool)
        wanted, right = ("true or false", str(validated).lower()) if truth else ("a number", str(validated))
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
