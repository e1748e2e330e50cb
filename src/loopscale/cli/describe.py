"""A component's settings in words, read off its class: no table of them is kept anywhere."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from loopscale.core.config import Config, Family

WORDS = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    NoneType: "none",
    Any: "anything",
}
LIMITS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def described(member: type[Family]) -> dict[str, Any]:
    """`facts` are what its family says of each member, such as a bound's source; `required` is no default."""
    notes = _notes(member)
    about = inspect.cleandoc(member.__doc__ or sys.modules[member.__module__].__doc__ or "")
    return {
        "kind": member.kind,
        "summary": " ".join(about.split("\n\n")[0].split()),
        "about": about,
        "defined_in": f"{member.__module__}.{member.__qualname__}",
        "facts": _facts(member),
        "settings": [
            {
                "name": name,
                "type": worded(field.annotation, field.metadata),
                "default": _default(field),
                "about": notes.get(name, ""),
            }
            for name, field in member.model_fields.items()
        ],
    }


def worded(annotation: Any, limits: Iterable[Any] = ()) -> str:
    """A type as a person says it: `whole number > 0 or none`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return worded(inner[0], [*inner[1:], *limits])
    if origin is Literal:
        said = " | ".join(map(str, inner))
    elif origin in (Union, UnionType):
        said = " or ".join(map(worded, inner))
    elif origin in (tuple, list):
        said = f"list of {worded(inner[0])}"
    elif origin is dict:
        said = "mapping"
    else:
        said = WORDS.get(annotation) or getattr(annotation, "__name__", str(annotation)).lower()
    bounds = [
        f"{LIMITS[n]} {getattr(each, n)}" for each in limits for n in LIMITS if _limit(each, n) is not None
    ]
    return " ".join([said, " and ".join(bounds)]).strip()


def _limit(constraint: Any, name: str) -> Any:
    return getattr(constraint, name, None)


def _default(field: FieldInfo) -> Any:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return value.model_dump(mode="json") if isinstance(value, Config) else value


def _facts(member: type[Family]) -> dict[str, Any]:
    """Class variables that the family asks of every member, such as `source`, `claim`, `solves`."""
    family = next(each for each in member.__mro__ if Family in each.__bases__)
    names = [
        name
        for name, hint in inspect.get_annotations(family).items()
        if (get_origin(hint) or hint) is ClassVar and not name.startswith("_") and hasattr(member, name)
    ]
    values = {name: getattr(member, name) for name in names}
    return {
        name.replace("_", " "): value.__name__ if isinstance(value, type) else value
        for name, value in values.items()
    }


def _notes(member: type[Family]) -> dict[str, str]:
    """What is written below each setting in the class, inherited ones too."""
    notes: dict[str, str] = {}
    for each in reversed(member.__mro__):
        if not issubclass(each, Config):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        except (OSError, TypeError, SyntaxError):  # made at run time, as tests do
            continue
        assert isinstance(body, ast.ClassDef)
        for setting, note in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(setting, ast.AnnAssign)
                and isinstance(setting.target, ast.Name)
                and isinstance(note, ast.Expr)
                and isinstance(note.value, ast.Constant)
            ):
                notes[setting.target.id] = " ".join(str(note.value.value).split())
    return notes
