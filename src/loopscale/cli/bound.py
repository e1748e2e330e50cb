"""`loopscale bound`: what a theorem gives for named settings, and how that changes along one of them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscale.cli.options import JsonOption, SetOption, assignments
from loopscale.cli.output import say, show_json, show_table
from loopscale.cli.show import kinds_of, made
from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    from loopscale.theory.bounds.base import Bound

CLAIMS = {"=": "exact", "~": "exact in a limit", "<=": "an upper bound", ">=": "a lower bound"}


def command(
    kind: Annotated[
        str, typer.Argument(metavar="BOUND", help="Its kind.", autocompletion=kinds_of("bounds"))
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
    """Print a bound's value; along a setting, also the slope that a law measured there is held against.

    [bold]Example[/bold]  loopscale bound bayes_ridge --set dim=20 --set noise=0.1 --along points=5,10,20,40,80
    """
    changes = assignments(overrides)
    bound = made("bounds", kind, changes)
    found: dict[str, Any] = _said(bound)
    found |= _along(bound, changes, along) if along else {"value": _value(bound)}
    if as_json:
        show_json(found)
        return
    constant = ", up to a constant that the source does not give" if found["hidden_constant"] else ""
    say(f"{found['bound']}: {found['of']}, {CLAIMS[found['claim']]}{constant} ({found['source']})")
    say(", ".join(f"{name} {value}" for name, value in found["settings"].items() if value is not None))
    if along:
        setting = found["along"]
        show_table([setting, "value", "slope"], ([row[name] for name in row] for row in found["values"]))
    else:
        say(f"{found['value']:.6g}")


def _said(bound: "Bound") -> dict[str, Any]:
    return {
        "bound": bound.kind, "of": bound.of, "claim": bound.claim, "source": bound.source,
        "hidden_constant": bound.hidden_constant,
        "settings": {name: getattr(bound, name) for name in bound.settings()},
    }  # fmt: skip


def _value(bound: "Bound") -> float:
    """Raises Wrong."""
    try:
        return bound.value()
    except ValueError as problem:
        raise Wrong(f"{problem}; give others with --set or --along") from problem


def _along(bound: "Bound", changes: dict[str, str], text: str) -> dict[str, Any]:
    """Raises Wrong and Mistakes."""
    setting, equals, values = (part.strip() for part in text.partition("="))
    if not (equals and values):
        raise Wrong(f"--along {text} is no list of values; write it as setting=1,2,5")
    if setting not in bound.settings():
        raise Wrong(f"{bound.kind} has no setting {setting!r}; it has {', '.join(bound.settings())}")
    there = [made("bounds", bound.kind, changes | {setting: value}) for value in values.split(",")]
    rows = [
        {setting: getattr(each, setting), "value": _value(each), "slope": _slope(each, setting)}
        for each in there
    ]
    return {"along": setting, "values": rows}


def _slope(bound: "Bound", setting: str) -> float | None:
    try:
        return bound.slope(setting)
    except ValueError:
        return None
