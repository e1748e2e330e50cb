"""`loopscale show`: tasks, models, optimizers, solvers, bounds and constructions, and the keys of a study's file."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from loopscale.cli.components import (
    FAMILIES,
    STUDY_KEYS,
    all_members,
    components_named,
    member_named,
    study_keys,
)
from loopscale.cli.errors import UsageError
from loopscale.cli.options import JsonOption
from loopscale.cli.output import WIDE, format_value, say, say_folded, show_json, show_table
from loopscale.interface import types

SUBJECTS = {"bounds": "quantity", "constructions": "algorithm"}
"""The families of theorems, and the subject of a theorem."""


def _complete_name(incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys([*FAMILIES, *study_keys()]) if name.startswith(incomplete)]


def _complete_kind(context: typer.Context, incomplete: str) -> list[str]:
    try:
        family = components_named(context.params["what"] or "tasks")
    except UsageError:
        return []
    if isinstance(family, list):
        return []
    return [kind for kind in family.choices() if kind.startswith(incomplete)]


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help=f"{', '.join(FAMILIES)}; {STUDY_KEYS} for the keys of a study's file; or one of those keys.",
            autocompletion=_complete_name,
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Argument(metavar="[KIND]", help="One member of WHAT.", autocompletion=_complete_kind),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the parts of a study: members with sources, and settings with types, defaults and explanations.

    [bold]Example[/bold]  loopscale show models algoformer

    The keys of a study's file, and the settings under one of them:

    loopscale show study

    loopscale show training
    """
    from loopscale.cli.describe import describe_component

    family = components_named(what)
    if isinstance(family, list):
        _show_key(what, family, kind, as_json)
        return
    members = [member_named(family, kind)] if kind else all_members(family)
    descriptions = [describe_component(member) for member in members]
    if as_json:
        show_json(descriptions)
        return
    if kind is not None:
        _show(descriptions[0])
        return
    if what in SUBJECTS:
        _show_statements(SUBJECTS[what], list(members))
    else:
        rows = ([each["kind"], each["summary"]] for each in descriptions)
        show_table(["kind", "description"], rows, sentences=True)
    say(f"`loopscale show {what} KIND` shows the settings of one.")


def _show_key(key: str, components: "list[type[types.Config]]", kind: str | None, as_json: bool) -> None:
    """The settings under a key of a study's file. Raises UsageError for a kind."""
    from loopscale.cli.describe import describe_key

    if kind is not None:
        raise UsageError(f"{key} is no family of kinds; `loopscale show {key}` shows all its settings")
    descriptions = describe_key(key, components)
    if as_json:
        show_json(descriptions)
        return
    for each in descriptions:
        _show(each)
    keys = study_keys()
    below = [
        setting["name"] for each in descriptions for setting in each["settings"] if setting["name"] in keys
    ]
    if below:
        say_folded(f"`loopscale show KEY` shows the settings\nunder {', '.join(below)}.")


def _show_statements(subject: str, members: "Iterable[type[Any]]") -> None:
    """Bounds or constructions by system: the claim, the quantity or the algorithm, and the theorem."""
    from loopscale.theory.bounds.base import Bound
    from loopscale.theory.statement import OTHER, SYSTEMS

    def used(member: "type[Any]") -> list[str]:
        return [_studies_of(member)] if issubclass(member, Bound) else []

    rows = list[list[str]]()
    for system in (*SYSTEMS, OTHER):
        in_system = [member for member in members if member.system() == system]
        rows += [[system]] if in_system else []
        rows += [
            [f"  {each.kind}", each.claimed(), each.subject(), each.spelled_source(), *used(each)]
            for each in in_system
        ]
    columns = ["kind", "claim", subject, "theorem"]
    columns += ["studies"] * any(len(row) > len(columns) for row in rows)
    show_table(columns, rows, sentences=True)
    say("= exact; ~ in a limit; ≤, ≥ a bound; shape: up to an unknown constant.")


def _studies_of(bound: "type[types.Bound]") -> str:
    """The first study whose laws name the bound and the number of others, or the reason why there is none."""
    from loopscale.cli.describe import studies_of_bounds

    first, *others = studies_of_bounds().get(bound.kind, ("",))
    more = f" and {len(others)} more" if others else ""
    return f"{first}{more}" if first else bound.reason_without_study()


def _show(description: dict[str, Any]) -> None:
    say_folded(f"{description['kind']} ({description['defined_in']})\n\n{description['about']}")
    if description["facts"]:
        say()
    for name, value in description["facts"].items():
        say_folded(f"{name}: {value}")
    rows = [
        [each["name"], each["type"], _default(each["default"]), each["about"]]
        for each in description["settings"]
    ]
    show_table(["setting", "type", "default", "about"], rows, sentences=True)


def _default(value: Any) -> str:
    """A default in the notation of a study's file."""
    if isinstance(value, list | dict):
        import yaml  # here, because --help needs no YAML

        text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=WIDE)
        return text.strip()
    return "none" if value is None else '""' if value == "" else format_value(value)
