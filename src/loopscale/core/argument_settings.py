"""The arguments of a function or of `__init__` as settings of a member: annotations and defaults."""

import inspect
from collections.abc import Callable, Mapping
from types import CodeType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from pydantic import Field, PositiveInt, TypeAdapter, ValidationError

from loopscale.core.config import Family
from loopscale.core.plugins import UnusableMember

PLAIN = (int, float, bool, str, NoneType)
WRITABLE = "int, float, bool, str, Literal, a tuple of these, or one of these and None"


def argument_settings(
    function: Callable[..., Any], name: str, given: int, base: type[Family], sizes: Mapping[str, int]
) -> dict[str, Any]:
    """The fields of a member, by name: the arguments of a function.

    Parameters
    ----------
    name
        The function in messages.
    given
        Number of the first arguments, which are no settings.
    base
        The base class of the member. Its attributes are no settings.
    sizes
        The arguments that are positive sizes, with their defaults where the function has none.

    Raises
    ------
    UnusableMember
        An argument cannot be a setting.
    """
    code, free = code_of(function), (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as problem:  # an annotation may be any expression
        what = f"an annotation of {name} cannot be read ({type(problem).__name__}: {problem})"
        raise UnusableMember(what, f"write {WRITABLE}", code) from problem
    arguments = list(inspect.signature(function).parameters.values())[given:]
    fields = dict[str, Any]()
    for each in arguments:
        if each.kind in free:
            continue
        fault = _fault(each, hints, base, sizes)
        if fault:
            raise UnusableMember(f"the argument {each.name} of {name} {fault[0]}", fault[1], code)
        annotation = hints[each.name]
        kind = PositiveInt if each.name in sizes and annotation is int else annotation
        default = sizes[each.name] if each.default is each.empty else each.default
        fields[each.name] = kind, Field(default, description=f"The argument {each.name} of {name}.")
    return fields


def _fault(
    argument: inspect.Parameter, hints: Mapping[str, Any], base: type[Family], sizes: Mapping[str, int]
) -> tuple[str, str] | None:
    """Why an argument cannot be a setting, and the remedy; None if the argument can be one."""
    name = argument.name
    if argument.kind is argument.POSITIONAL_ONLY:
        return "has no name for callers", "remove the / from the arguments"
    if name not in sizes and (name.startswith("_") or hasattr(base, name) or name in base.model_fields):
        return "has a name that the base class uses itself", "rename the argument, as to layers for depth"
    if name not in hints:
        return "has no annotation", f"write {name}: int, or {WRITABLE}"
    shown = inspect.formatannotation(hints[name])
    if not is_plain(hints[name]):
        return f"has the annotation {shown}, which no study can write", f"write {WRITABLE}"
    if argument.default is argument.empty:
        return None if name in sizes else ("has no default", f"write a default, as in {name}: int = 4")
    kind: Any = PositiveInt if name in sizes and hints[name] is int else hints[name]
    try:
        TypeAdapter(kind).validate_python(argument.default, strict=True)
    except ValidationError:
        return f"has the default {argument.default!r}, which is no {shown}", "correct the default"
    return None


def is_plain(annotation: Any) -> bool:
    """Whether a study can write every value of a type, and records can keep the value."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return is_plain(parts[0])
    if origin in (Union, UnionType):
        return all(map(is_plain, parts))
    if origin is tuple:
        return all(is_plain(part) for part in parts if part is not Ellipsis)
    return origin is Literal or annotation in PLAIN


def code_of(function: Any) -> CodeType | None:
    """The code of a function, which knows file and line; None for other callables."""
    return cast("CodeType | None", getattr(function, "__code__", None))
