"""`loopscale show`: the tasks, models, solvers, bounds and constructions that there are, and a study's keys."""

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscale.cli.options import JsonOption
from loopscale.cli.output import READABLE, WIDE, say, show_json, show_table, shown
from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    from loopscale.core.config import Family

FAMILIES = {
    "tasks": ("loopscale.tasks.base", "Task"),
    "models": ("loopscale.models.base", "Model"),
    "solvers": ("loopscale.solvers.base", "Solver"),
    "bounds": ("loopscale.theory.bounds.base", "Bound"),
    "constructions": ("loopscale.theory.constructions.base", "Construction"),
}
STUDY = "study"
"""What shows the keys at the top of a study's file."""


def _whats(incomplete: str) -> list[str]:
    """For the shell to complete."""
    from loopscale.cli.keys import parts

    return [what for what in dict.fromkeys([*FAMILIES, *parts()]) if what.startswith(incomplete)]


def _kinds(context: typer.Context, incomplete: str) -> list[str]:
    """For the shell to complete."""
    try:
        family = _family(context.params["what"] or "tasks")
    except Wrong:
        return []
    return [kind for kind in family.choices() if kind.startswith(incomplete)] if family else []


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help=f"{', '.join(FAMILIES)}; {STUDY} for the keys of a study's file, or one of those keys.",
            autocompletion=_whats,
        ),
    ],
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="One member of it.", autocompletion=_kinds)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What there is to write in a study: settings with types, defaults and what they say, members with sources.

    [bold]Example[/bold]  loopscale show models algoformer

    The keys of a study's file, and what may stand under one of them:

    loopscale show study

    loopscale show training
    """
    from loopscale.cli.describe import described

    family = _family(what)
    if family is None:
        _show_part(what, kind, as_json)
        return
    found = [described(each) for each in ([_member(family, kind)] if kind else family.choices().values())]
    if as_json:
        show_json(found)
    elif kind is None:
        theory = "source" in found[0]["facts"]
        columns = ["kind", "what it is", *(["source"] if theory else [])]
        show_table(columns, (_row(each, theory) for each in found), width=WIDE if theory else READABLE)
        say(f"`loopscale show {what} KIND` shows the settings of one.")
    else:
        _show(found[0])


def _show_part(what: str, kind: str | None, as_json: bool) -> None:
    """The settings under a key of a study's file. Raises Wrong."""
    from loopscale.cli.keys import explained, parts

    known = parts()
    if kind is not None:
        raise Wrong(f"{what} is no family of kinds; `loopscale show {what}` shows all that may stand there")
    found = explained(what, known[what])
    if as_json:
        show_json(found)
        return
    for each in found:
        _show(each)
    below = [setting["name"] for each in found for setting in each["settings"] if setting["name"] in known]
    if below:
        say(f"`loopscale show KEY` shows what may stand under {', '.join(below)}.")


def _family(what: str) -> "type[Family] | None":
    """The family of that name, or that a study's key of that name picks from; `None` for a key without kinds.

    Raises Wrong for neither.
    """
    from loopscale.core.config import Family

    if what in FAMILIES:
        return _members_of(what)
    from loopscale.cli.keys import parts
    from loopscale.studies.mistakes import one_of

    known = parts()
    if what not in known:
        raise Wrong(
            f"there is nothing to show of {what!r}; {one_of(what, dict.fromkeys([*FAMILIES, *known]))}"
        )
    first = known[what][0]
    return first if issubclass(first, Family) else None


def member(what: str, kind: str) -> type[Any]:
    """One member of a family. Raises Wrong."""
    return _member(_members_of(what), kind)


def _member(family: "type[Family]", kind: str) -> type[Any]:
    members = family.choices()
    if kind not in members:
        from loopscale.studies.mistakes import one_of

        raise Wrong(f"there is no {family.__name__.lower()} {kind!r}; {one_of(kind, members)}")
    return members[kind]


def made(what: str, kind: str, changes: Mapping[str, str]) -> Any:
    """A member with these settings, as `--set` has them. Raises Wrong and Mistakes."""
    from pydantic import ValidationError

    from loopscale.studies.mistakes import Mistake, Mistakes
    from loopscale.studies.overrides import parse_value
    from loopscale.studies.validation import coercions, validation_faults

    family = member(what, kind)
    said = "--set " + " ".join(f"{path}={text}" for path, text in changes.items())
    tree = {path: parse_value(text, f"{path}={text}") for path, text in changes.items()}
    found, wrong = None, []
    try:
        found = family.model_validate(tree)
        wrong = list(coercions(tree, found))
    except ValidationError as problem:
        wrong = validation_faults(problem, family, tree)
    if wrong:
        raise Mistakes(Mistake(said, None, fault.what, fault.remedy) for fault in wrong)
    return found


def kinds_of(what: str) -> Callable[[str], list[str]]:
    """What the shell completes a member's name by."""
    return lambda incomplete: [kind for kind in _members_of(what).choices() if kind.startswith(incomplete)]


def _members_of(what: str) -> "type[Family]":
    module, name = FAMILIES[what]
    return getattr(importlib.import_module(module), name)


def _row(each: dict[str, Any], theory: bool) -> list[Any]:
    return [each["kind"], each["summary"], *([each["facts"]["source"]] if theory else [])]


def _show(each: dict[str, Any]) -> None:
    say(f"{each['kind']} ({each['defined_in']})")
    say()
    say(each["about"])
    if each["facts"]:
        say()
    for name, value in each["facts"].items():
        say(f"{name}: {value}")
    columns = ("name", "type", "default", "about")
    rows = [[setting[column] for column in columns] for setting in each["settings"]]
    show_table(
        ["setting", *columns[1:]],
        [[row[0], row[1], _default(row[2]), row[3]] for row in rows],
        width=READABLE,
    )


def _default(value: Any) -> str:
    """As one would write it in a study's file."""
    if isinstance(value, list | dict):
        import yaml

        return yaml.safe_dump(
            value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=WIDE
        ).strip()
    return "none" if value is None else '""' if value == "" else shown(value)
