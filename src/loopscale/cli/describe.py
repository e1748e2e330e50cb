"""A component and its settings in words, taken from its class and its docstrings."""

import ast
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from loopscale.core.bibliography import bibliography, cited_keys, spell_citations
from loopscale.core.config import Config, Family
from loopscale.notation.files import PARTS, SHIPPED, study_names
from loopscale.notation.settings import components
from loopscale.theory.bounds.base import Bound
from loopscale.theory.statement import Statement
from loopscale.training.trial import Trial

TYPE_WORDS = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    NoneType: "none",
    Any: "anything",
}
LIMIT_SYMBOLS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def describe_component(component: type[Config], name: str = "") -> dict[str, Any]:
    """A member of a family under its kind, or another component under `name`.

    `facts` are those that the family names, such as a bound's source. The default of a setting is
    "required" if it has none.
    """
    notes = setting_notes(component)
    member = component if issubclass(component, Family) else None
    about = _about(component)
    return {
        "kind": name or (member.kind if member else ""),
        "summary": _summary(about),
        "about": about,
        "defined_in": _place(component),
        "facts": _facts(member) if member else {},
        "settings": [
            {
                "name": setting,
                "type": type_in_words(field.annotation, field.metadata),
                "default": _default(field),
                "about": notes.get(setting) or field.description or _about_part(field),
            }
            for setting, field in component.model_fields.items()
        ],
    }


def _place(component: type[Config]) -> str:
    """The module and the class, or the plugin and the class."""
    plugin = component.plugin if issubclass(component, Family) else ""
    return f"{plugin.rpartition(' ')[0] or component.__module__}.{component.__qualname__}"


def describe_key(name: str, components: Sequence[type[Config]]) -> list[dict[str, Any]]:
    """Every component that may stand under a key of a study's file. Of a trial, only its parts can stand there."""
    descriptions = [describe_component(component, name) for component in components]
    for description, component in zip(descriptions, components, strict=True):
        if component is Trial:
            settings = description["settings"]
            description["settings"] = [setting for setting in settings if setting["name"] in PARTS]
    return descriptions


def _about(component: type[Config]) -> str:
    """The docstrings of the class and of its file.

    The docstring of a file with one member comes first: it introduces the member and names the source. In a file with
    several members each class introduces itself, and the file's docstring on their common ground comes last.
    """
    own = spell_citations(inspect.cleandoc(component.__doc__ or ""))
    if not issubclass(component, Family):
        return own
    file = spell_citations(inspect.cleandoc(sys.modules[component.__module__].__doc__ or ""))
    modules = [member.__module__ for member in _family(component).choices().values()]
    alone = modules.count(component.__module__) == 1
    return "\n\n".join(filter(None, [file, own] if alone else [own, file]))


def _summary(about: str) -> str:
    return " ".join(about.split("\n\n")[0].split())


def _about_part(field: FieldInfo) -> str:
    """The first paragraph of the component, for a setting that is a component and has no text of its own."""
    inner = [each for each in components(field.annotation) if not issubclass(each, Family)]
    return _summary(_about(inner[0])) if len(inner) == 1 else ""


def type_in_words(annotation: Any, limits: Iterable[Any] = ()) -> str:
    """A type for readers: `whole number > 0 or none`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_in_words(inner[0], [*inner[1:], *limits])
    if origin is Literal:
        words = " | ".join(str(each).lower() if isinstance(each, bool) else str(each) for each in inner)
    elif origin in (Union, UnionType):
        words = " or ".join(map(type_in_words, inner))
    elif origin in (tuple, list):
        pair = origin is tuple and len(inner) == 2 and inner[1] is not Ellipsis
        words = f"{'pair' if pair else 'list'} of {type_in_words(inner[0])}"
    elif origin is dict:
        words = "mapping"
    else:
        words = TYPE_WORDS.get(annotation) or getattr(annotation, "__name__", str(annotation)).lower()
    bounds = [
        f"{symbol} {bound}"
        for limit in limits
        for name, symbol in LIMIT_SYMBOLS.items()
        if (bound := getattr(limit, name, None)) is not None
    ]
    return " ".join([words, " and ".join(bounds)]).strip()


def _default(field: FieldInfo) -> Any:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return value.model_dump(mode="json") if isinstance(value, Config) else _plain(value)


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _facts(member: type[Family]) -> dict[str, Any]:
    """What the family tells of a member besides its settings, such as `source`, `claim`, `solves`."""
    values = {name.replace("_", " "): getattr(member, name) for name in member.facts}
    if issubclass(member, Statement):
        cited = [str(bibliography()[key]) for key in cited_keys(member.source)]
        if issubclass(member, Bound):
            values["studies"] = ", ".join(studies_of_bounds().get(member.kind, ())) or None
            values["without study"] = None if values["studies"] else member.reason_without_study() or None
        values = {"system": member.system()} | values | {"references": "; ".join(cited) or None}
    return {name: _fact(value) for name, value in values.items()}


@cache
def studies_of_bounds() -> dict[str, tuple[str, ...]]:
    """The studies of the package whose laws name a bound, by the kind of the bound."""
    import yaml  # few verbs need a parser

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 20 times as fast
    found = defaultdict[str, dict[str, None]](dict)
    for name in study_names(SHIPPED):
        tree = yaml.load((SHIPPED / f"{name}.yaml").read_text(encoding="utf-8"), loader)
        for law in tree.get("laws", ()):
            if theory := law.get("theory"):
                found[theory if isinstance(theory, str) else theory["kind"]][name] = None
    return {kind: tuple(names) for kind, names in found.items()}


def _fact(value: Any) -> Any:
    if isinstance(value, type):
        return value.__name__
    return spell_citations(value) if isinstance(value, str) else value


def _family(member: type[Family]) -> type[Family]:
    return next(each for each in member.__mro__ if "_package" in vars(each))


def setting_notes(member: type[Config]) -> dict[str, str]:
    """The text below each setting in the source of the class and of its bases."""
    notes: dict[str, str] = {}
    for each in reversed(member.__mro__):
        if issubclass(each, Config):
            notes |= _notes_by_class(each.__module__).get(each.__qualname__, {})
    return notes


@cache
def _notes_by_class(module: str) -> dict[str, dict[str, str]]:
    """The texts below settings of every class in a module. A module without source has none."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, SyntaxError):
        return {}
    notes: dict[str, dict[str, str]] = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        for setting, note in pairwise(node.body):
            if (
                isinstance(setting, ast.AnnAssign)
                and isinstance(setting.target, ast.Name)
                and isinstance(note, ast.Expr)
                and isinstance(note.value, ast.Constant)
            ):
                text = spell_citations(" ".join(str(note.value.value).split()))
                notes.setdefault(node.name, {})[setting.target.id] = text
    return notes
