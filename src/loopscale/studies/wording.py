"""Pydantic's errors in the words of a study: what is there, and what would be right."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from loopscale.core.config import Config
from loopscale.studies.mistakes import Fault, Place, dotted, one_of, shown
from loopscale.studies.settings import names_at

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


def faults(problem: ValidationError, root: type[Config], tree: Mapping[str, Any]) -> list[Fault]:
    """Every error of a validation of `tree` as a `root`, by its place in the tree."""
    return [_fault(error, root, tree) for error in problem.errors(include_url=False)]


def _fault(error: ErrorDetails, root: type[Config], tree: Mapping[str, Any]) -> Fault:
    place = existing(tree, error["loc"])
    name, value = dotted(place), shown(error["input"])
    match error["type"]:
        case "extra_forbidden":
            parent, key = place[:-1], place[-1]
            owner = dotted(parent) or root.__name__.lower()
            return Fault(place, f"{owner} has no setting {key!r}", one_of(key, names_at(root, tree, parent)))
        case "missing":
            return Fault(place[:-1], f"{dotted(error['loc'])} is missing", f"write {error['loc'][-1]}: ...")
        case "literal_error":
            expected = error.get("ctx", {}).get("expected", "")
            return Fault(
                place,
                f"{name} is {value}",
                one_of(error["input"], expected.replace("'", "").replace(" or ", ", ").split(", ")),
            )
        case "value_error":
            return _said(place, name, str(error.get("ctx", {}).get("error", error["msg"])))
        case kind if kind in LIMITS:
            bound, remedy = LIMITS[kind]
            return Fault(place, f"{name} is {value}", remedy.format(error.get("ctx", {}).get(bound)))
        case kind if kind in WANTED:
            return Fault(place, f"{name} is {value}", _wanted(kind, error, root, tree, place))
    return Fault(place, f"{name} is {value}", error["msg"][:1].lower() + error["msg"][1:])


def _wanted(kind: str, error: ErrorDetails, root: type[Config], tree: Mapping[str, Any], place: Place) -> str:
    """The remedy for a value of another type, in terms of what was written where that helps."""
    value, remedy = error["input"], WANTED[kind]
    if kind == "tuple_type" and isinstance(value, str | bool | int | float):
        remedy = f"write a list, as in [{value}]"
    elif kind == "tuple_type" and isinstance(value, Mapping):
        remedy = "write a list, with a - before it, or in [ ]"
    elif kind == "model_type" and isinstance(value, str) and "kind" in names_at(root, tree, place):
        remedy = f"write {place[-1]}: {{kind: {value}}}"
    field = root.model_fields.get(str(place[0])) if len(place) == 1 else None
    return (
        f"{remedy}, or take {place[0]} out" if value is None and field and not field.is_required() else remedy
    )


def passed_off(written: Any, taken: Any, place: Place = ()) -> Iterator[Fault]:
    """Texts and truth values that passed for numbers, or texts for truth values: hardly what was meant."""
    if isinstance(written, Mapping):
        inner = dict(taken) if isinstance(taken, Config | Mapping) else {}
        for name in written:
            if name in inner:
                yield from passed_off(written[name], inner[name], (*place, name))
    elif isinstance(written, list | tuple) and isinstance(taken, list | tuple):
        for n, (each, other) in enumerate(zip(written, taken, strict=False)):
            yield from passed_off(each, other, (*place, n))
    elif (
        isinstance(written, str | bool)
        and isinstance(taken, int | float)
        and type(taken) is not type(written)
    ):
        truth = isinstance(taken, bool)
        wanted, value = ("true or false", str(taken).lower()) if truth else ("a number", str(taken))
        remedy = f"write {value}" if isinstance(place[-1], int) else f"write {place[-1]}: {value}"
        yield Fault(place, f"{dotted(place)} is {shown(written)}, not {wanted}", remedy)


def _said(place: Place, name: str, message: str) -> Fault:
    """What a validator of ours said, in the form `what is wrong; what would be right`."""
    what, semicolon, remedy = message.partition("; ")
    return Fault(place, f"{name}: {what}" if name else what, remedy if semicolon else "change one of the two")


def existing(tree: Any, loc: Place) -> Place:
    """The error's place without the steps of pydantic's own; a last key that is missing stays."""
    place: list[str | int] = []
    for n, step in enumerate(loc):
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            if n < len(loc) - 1:
                continue
        place.append(step)
    return tuple(place)
