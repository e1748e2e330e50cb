"""`loopscale bound` and `loopscale verify`: theorems as numbers."""

import math
from typing import Annotated, Any

import typer

from loopscale.cli.components import complete_kind, member_with_settings
from loopscale.cli.errors import FAILED, UsageError
from loopscale.cli.options import JsonOption, SetOption, parse_assignments
from loopscale.cli.output import say, show_json, show_table
from loopscale.interface import types

CLAIMS = {"=": "exact", "~": "exact in a limit", "<=": "an upper bound", ">=": "a lower bound"}


def _complete_bound(incomplete: str) -> list[str]:
    return complete_kind("bounds", incomplete)


def _complete_construction(incomplete: str) -> list[str]:
    return complete_kind("constructions", incomplete)


def bound(
    kind: Annotated[
        str, typer.Argument(metavar="BOUND", help="The bound's kind.", autocompletion=_complete_bound)
    ],
    overrides: SetOption = None,
    along: Annotated[
        str | None,
        typer.Option(
            "--along", metavar="SETTING=V1,V2,..", help="Values of one setting, as in points=5,10,20."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print a bound's value. With --along, print the values and slopes along a setting.

    A law along that setting is compared with the slope.

    [bold]Example[/bold]  loopscale bound bayes_ridge --set dim=20 --set noise=0.1 --along points=5,10,20,40,80
    """
    changes = parse_assignments(overrides)
    component: types.Bound = member_with_settings("bounds", kind, changes)
    answer: dict[str, Any] = {
        "bound": component.kind,
        "of": component.of,
        "claim": component.claim,
        "source": component.spelled_source(),
        "hidden_constant": component.hidden_constant,
        "settings": {name: getattr(component, name) for name in component.settings()},
    }
    answer |= _along(component, changes, along) if along else {"value": _value(component)}
    if as_json:
        show_json(answer)
        return
    constant = ", up to a constant that the source does not give" if answer["hidden_constant"] else ""
    say(f"{answer['bound']}: {answer['of']}, {CLAIMS[answer['claim']]}{constant} ({answer['source']})")
    say(", ".join(f"{name} {value}" for name, value in answer["settings"].items() if value is not None))
    if along:
        columns = [answer["along"], "value", "slope"]
        show_table(columns, ([row[name] for name in columns] for row in answer["values"]))
    else:
        say(f"{answer['value']:.6g}")


def _value(bound: "types.Bound") -> float:
    """Raises UsageError for settings outside the bound's range."""
    try:
        return bound.value()
    except ValueError as problem:
        raise UsageError(f"{problem}; give others with --set or --along") from problem


def _along(bound: "types.Bound", changes: dict[str, str], text: str) -> dict[str, Any]:
    """Raises UsageError and Mistakes."""
    setting, equals, values = (part.strip() for part in text.partition("="))
    if not (equals and values):
        raise UsageError(f"--along {text} is no list of values; write it as setting=1,2,5")
    if setting not in bound.settings():
        raise UsageError(f"{bound.kind} has no setting {setting!r}; it has {', '.join(bound.settings())}")
    bounds: list[types.Bound] = [
        member_with_settings("bounds", bound.kind, changes | {setting: value}) for value in values.split(",")
    ]
    rows = [
        {setting: getattr(each, setting), "value": _value(each), "slope": _slope(each, setting)}
        for each in bounds
    ]
    return {"along": setting, "values": rows}


def _slope(bound: "types.Bound", setting: str) -> float | None:
    try:
        return bound.slope(setting)
    except ValueError:
        return None


def verify(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="CONSTRUCTION", help="The construction's kind.", autocompletion=_complete_construction
        ),
    ],
    overrides: SetOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The seed of the random problems.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run a construction's net on random problems, and print its distance from the algorithm after every step.

    The layers, heads and width of the net stand beside the numbers of the source. If the net runs the algorithm in a
    limit, the command also approaches the limit and measures the order of the distance. The exit code is 1 if the net
    is not exact, or if the order is not the derived one.

    [bold]Example[/bold]  loopscale verify newton --set variant=sink
    """
    construction = member_with_settings("constructions", kind, parse_assignments(overrides))
    answer = _verified(construction, seed)
    if as_json:
        show_json(answer)
    else:
        _show_verified(answer)
    if not answer["holds"]:
        raise typer.Exit(FAILED)


def _verified(construction: "types.Construction", seed: int) -> dict[str, Any]:
    """Raises UsageError."""
    from loopscale.papers.theorems import verify
    from loopscale.runner.machine import is_out_of_memory

    try:
        return verify(construction, seed).to_dict()
    except ValueError as problem:
        raise UsageError(f"{problem}; change the settings of --set") from problem
    except (MemoryError, RuntimeError) as problem:
        if not is_out_of_memory(problem):
            raise
        raise UsageError(
            "the net needs more memory than this machine has; give --set smaller values"
        ) from problem


def _show_verified(answer: dict[str, Any]) -> None:
    say(f"{answer['construction']}: {answer['algorithm']} ({answer['source']})")
    net, stated = answer["net"], answer["stated"]
    parts = {name.removesuffix("_layers"): net[name] for name in net if name.endswith("_layers")}
    layers = " + ".join(f"{number} {part}" for part, number in parts.items() if number) or net["layers"]
    rows = [
        ["layers", f"{layers}", stated["layers"]],
        ["heads", f"{net['heads']} in every layer", stated["heads"]],
        ["width", f"{net['width']}", stated["width"]],
    ]
    show_table(["", f"net ({net['kind']})", "source"], rows, sentences=True)
    say(f"The source states: {stated['accuracy']}.")
    say(f"Measured here, on {answer['prompts']} random prompts of {answer['tokens']} tokens:")
    rows = [[step["step"], step["typical"], step["largest"]] for step in answer["steps"]]
    show_table(["step", "typical distance", "largest distance"], rows)
    limit = answer["limit"]
    if limit:
        _show_limit(limit, answer["holds"])
    else:
        exact = "Exact: all distances are within rounding."
        say(exact if answer["holds"] else "Not exact: a distance is above rounding.")


def _show_limit(limit: dict[str, Any], holds: bool) -> None:
    show_table(
        [limit["setting"], "largest distance after any step"], [row.values() for row in limit["values"]]
    )
    low, high = limit["interval"]
    interval = "" if math.isnan(low) else f" (95 % interval over prompts: {low:.2f} to {high:.2f})"
    verdict = "as" if holds else "not as"
    say(f"A limit in {limit['setting']}: the distance shrinks with order {limit['measured']:.2f}{interval},")
    say(f"{verdict} derived here: order {limit['expected']:g}. The source states no order.")
