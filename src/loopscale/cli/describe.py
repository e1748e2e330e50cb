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
from loopscale.studies.settings import components

WORDS = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    NoneType: "none",
    Any: "anything",
}
LIMITS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def described(component: type[Config], name: str = "") -> dict[str, Any]:
    """A member of a family under its kind, or another component under a name.

    `facts` are what its family says of each member, such as a bound's source; `required` is no default.
    """
    notes = _notes(component)
    member = component if issubclass(component, Family) else None
    about = _about(component)
    return {
        "kind": name or (member.kind if member else ""),
        "summary": _summary(about),
        "about": about,
        "defined_in": f"{component.__module__}.{component.__qualname__}",
        "facts": _facts(member) if member else {},
        "settings": [
            {
                "name": setting,
                "type": worded(field.annotation, field.metadata),
                "default": _default(field),
                "about": notes.get(setting) or field.description or _of_part(field),
            }
            for setting, field in component.model_fields.items()
        ],
    }


def _about(component: type[Config]) -> str:
    """What the class says, and what its file says of the whole family's members in it.

    A file of one member begins with what that member is and where it comes from, and the class says the rest; in a
    file of several each class says what it is, and the file what they have in common.
    """
    own = inspect.cleandoc(component.__doc__ or "")
    if not issubclass(component, Family):
        return own
    file = inspect.cleandoc(sys.modules[component.__module__].__doc__ or "")
    here = [each for each in _family(component).choices().values() if each.__module__ == component.__module__]
    return "\n\n".join(filter(None, [file, own] if len(here) == 1 else [own, file]))


def _summary(about: str) -> str:
    return " ".join(about.split("\n\n")[0].split())


def _of_part(field: FieldInfo) -> str:
    """What a setting without a word of its own says by being a component: that component's first paragraph."""
    inner = [each for each in components(field.annotation) if not issubclass(each, Family)]
    return _summary(_about(inner[0])) if len(inner) == 1 else ""


def worded(annotation: Any, limits: Iterable[Any] = ()) -> str:
    """A type as a person says it: `whole number > 0 or none`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return worded(inner[0], [*inner[1:], *limits])
    if origin is Literal:
        said = " | ".join(str(each).lower() if isinstance(each, bool) else str(each) for each in inner)
    elif origin in (Union, UnionType):
        said = " or ".join(map(worded, inner))
    elif origin in (tuple, list):
        pair = origin is tuple and len(inner) == 2 and inner[1] is not Ellipsis
        said = f"{'pair' if pair else 'list'} of {worded(inner[0])}"
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
    return value.model_dump(mode="json") if isinstance(value, Config) else _plain(value)


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _facts(member: type[Family]) -> dict[str, Any]:
    """Class variables that the family asks of every member, such as `source`, `claim`, `solves`."""
    family = _family(member)
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


def _family(member: type[Family]) -> type[Family]:
    return next(each for each in member.__mro__ if Family in each.__bases__)


def _notes(member: type[Config]) -> dict[str, str]:
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
