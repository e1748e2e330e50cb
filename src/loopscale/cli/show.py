"""`loopscale show`: the tasks, models, solvers, bounds and constructions that there are."""

import importlib
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from loopscale.cli.options import JsonOption
from loopscale.cli.output import say, show_json, show_table, shown
from loopscale.cli.wrong import Wrong

FAMILIES = {
    "tasks": ("loopscale.tasks.base", "Task"),
    "models": ("loopscale.models.base", "Model"),
    "solvers": ("loopscale.solvers.base", "Solver"),
    "bounds": ("loopscale.theory.bounds.base", "Bound"),
    "constructions": ("loopscale.theory.constructions.base", "Construction"),
}
What = StrEnum("What", list(FAMILIES))


def _kinds(context: typer.Context, incomplete: str) -> list[str]:
    """For the shell to complete."""
    return [kind for kind in _members(context.params["what"] or "tasks") if kind.startswith(incomplete)]


def command(
    what: Annotated[What, typer.Argument(help="Which family.")],
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="One member of it.", autocompletion=_kinds)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What there is to write after [cyan]kind:[/cyan] in a study, with settings, types, defaults and sources.

    [bold]Example[/bold]  loopscale show models algoformer
    """
    from loopscale.cli.describe import described

    found = [described(each) for each in ([member(what, kind)] if kind else _members(what).values())]
    if as_json:
        show_json(found)
    elif kind is None:
        last = "source" if "source" in found[0]["facts"] else "settings"
        show_table(["kind", "what", last], (_row(each, last) for each in found))
        say(f"`loopscale show {what} KIND` shows the settings of one.")
    else:
        _show(found[0])


def member(what: str, kind: str) -> type[Any]:
    """One member of a family. Raises Wrong."""
    members = _members(what)
    if kind not in members:
        from loopscale.studies.mistakes import one_of

        raise Wrong(f"there is no {what[:-1]} {kind!r}; {one_of(kind, members)}")
    return members[kind]


def made(what: str, kind: str, changes: Mapping[str, str]) -> Any:
    """A member with these settings, as `--set` has them. Raises Wrong and Mistakes."""
    from pydantic import ValidationError

    from loopscale.studies.mistakes import Mistake, Mistakes
    from loopscale.studies.override import value_of
    from loopscale.studies.wording import faults, passed_off

    family = member(what, kind)
    said = "--set " + " ".join(f"{path}={text}" for path, text in changes.items())
    tree = {path: value_of(text, f"{path}={text}") for path, text in changes.items()}
    found, wrong = None, []
    try:
        found = family.model_validate(tree)
        wrong = list(passed_off(tree, found))
    except ValidationError as problem:
        wrong = faults(problem, family, tree)
    if wrong:
        raise Mistakes(Mistake(said, None, fault.what, fault.remedy) for fault in wrong)
    return found


def kinds_of(what: str) -> Callable[[str], list[str]]:
    """What the shell completes a member's name by."""
    return lambda incomplete: [kind for kind in _members(what) if kind.startswith(incomplete)]


def _members(what: str) -> dict[str, type[Any]]:
    """The family by kind."""
    module, name = FAMILIES[what]
    return getattr(importlib.import_module(module), name).choices()


def _row(each: dict[str, Any], last: str) -> list[Any]:
    settings = ", ".join(setting["name"] for setting in each["settings"])
    return [each["kind"], each["summary"], each["facts"]["source"] if last == "source" else settings]


def _show(each: dict[str, Any]) -> None:
    say(f"{each['kind']} ({each['defined_in']})")
    say()
    say(each["about"])
    for name, value in each["facts"].items():
        say(f"{name}: {value}")
    columns = ("name", "type", "default", "about")
    rows = [[setting[column] for column in columns] for setting in each["settings"]]
    show_table(["setting", *columns[1:]], [[row[0], row[1], _default(row[2]), row[3]] for row in rows])


def _default(value: Any) -> str:
    return "required" if value == "required" else "none" if value is None else shown(value)
