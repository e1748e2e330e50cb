"""Components of a study by name: the six families, the keys of a study's file, and members with settings."""

import importlib
from collections.abc import Mapping
from typing import Any

from loopscale.cli.errors import UsageError
from loopscale.cli.output import tell
from loopscale.interface import types

FAMILIES = {
    "tasks": ("loopscale.tasks.base", "Task"),
    "models": ("loopscale.models.base", "Model"),
    "optimizers": ("loopscale.optimizers.base", "Optimizer"),
    "solvers": ("loopscale.solvers.base", "Solver"),
    "bounds": ("loopscale.theory.bounds.base", "Bound"),
    "constructions": ("loopscale.theory.constructions.base", "Construction"),
}
STUDY_KEYS = "study"
"""The name of the keys at the top of a study's file."""


def family_named(name: str) -> "type[types.Family]":
    module, family = FAMILIES[name]
    return getattr(importlib.import_module(module), family)


def study_keys() -> "dict[str, list[type[types.Config]]]":
    """The keys of a study's file that have settings, from the top down.

    Each key has its components: components of one class, or one family.
    """
    from loopscale.core.config import Family
    from loopscale.notation.settings import components
    from loopscale.studies.spec import Study
    from loopscale.training.trial import Trial

    keys: dict[str, list[type[types.Config]]] = {STUDY_KEYS: [Study]}

    def add(key: str, inner: "list[type[types.Config]]") -> None:
        if not inner or key in keys:
            return
        keys[key] = list(inner)
        for component in inner:
            if not issubclass(component, Family):
                for name, field in component.model_fields.items():
                    add(name, components(field.annotation))

    for key, field in Study.model_fields.items():
        add(key, [Trial] if key == "fixed" else components(field.annotation))  # `fixed` is a plain tree
    return keys


def components_named(name: str) -> "type[types.Family] | list[type[types.Config]]":
    """The family or the components of that name. Raises UsageError."""
    from loopscale.core.config import Family
    from loopscale.notation.mistakes import one_of

    if name in FAMILIES:
        return family_named(name)
    keys = study_keys()
    if name not in keys:
        known = dict.fromkeys([*FAMILIES, *keys])
        raise UsageError(f"there is nothing to show of {name!r}; {one_of(name, known)}")
    first = keys[name][0]
    return first if issubclass(first, Family) else keys[name]


def member_named(family: "type[types.Family]", kind: str) -> type[Any]:
    """Raises UsageError."""
    member = family.member(kind)
    if member is None:
        from loopscale.notation.mistakes import one_of

        raise UsageError(f"there is no {family.noun()} {kind!r}; {one_of(kind, family.choices())}")
    return member


def all_members(family: "type[types.Family]") -> list[type[Any]]:
    """The members of the package, of the installed packages and of $LOOPSCALE_PLUGINS."""
    from loopscale.core.plugins import load_installed, unloadable

    load_installed()
    for name, reason in unloadable.items():
        tell(f"note: the members of {name} are missing ({reason})")
    return list(family.choices().values())


def member_with_settings(family_name: str, kind: str, changes: Mapping[str, str]) -> Any:
    """A member of a family with the settings of --set. Raises UsageError and Mistakes."""
    from pydantic import ValidationError

    from loopscale.notation.files import parse_value
    from loopscale.notation.mistakes import Mistake, Mistakes
    from loopscale.notation.settings import coercions, validation_faults

    member = member_named(family_named(family_name), kind)
    option = "--set " + " ".join(f"{path}={text}" for path, text in changes.items())
    tree = {path: parse_value(text, f"{path}={text}") for path, text in changes.items()}
    component, wrong = None, []
    try:
        component = member.model_validate(tree)
        wrong = list(coercions(tree, component))
    except ValidationError as problem:
        wrong = validation_faults(problem, member, tree)
    if wrong:
        raise Mistakes(Mistake(option, None, fault.what, fault.remedy) for fault in wrong)
    return component


def complete_kind(family_name: str, incomplete: str) -> list[str]:
    """The shell completion of a member's kind."""
    return [kind for kind in family_named(family_name).choices() if kind.startswith(incomplete)]
