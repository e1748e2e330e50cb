"""`loopscale verify`: a construction's weights, run against its algorithm on random problems."""

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscale.cli.options import JsonOption, SetOption, assignments
from loopscale.cli.output import say, show_json, show_table
from loopscale.cli.show import member
from loopscale.cli.wrong import FAILED, Wrong

if TYPE_CHECKING:
    from loopscale.theory.constructions.base import Construction


def _kinds(incomplete: str) -> list[str]:
    """For the shell to complete."""
    from loopscale.theory.constructions.base import Construction

    return [kind for kind in Construction.choices() if kind.startswith(incomplete)]


def command(
    kind: Annotated[str, typer.Argument(metavar="CONSTRUCTION", help="Its kind.", autocompletion=_kinds)],
    overrides: SetOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the random problems.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Build a construction's net, run it on random problems, and print how far it is from the algorithm.

    After every step; and where the theorem holds in a limit, for a setting that goes there, with the order at which the
    distance shrinks. Exit code 1 if the theorem does not come out.

    [bold]Example[/bold]  loopscale verify newton --set variant=sink
    """
    found = _verified(_made(kind, assignments(overrides)), seed)
    if as_json:
        show_json(found)
    else:
        _show(found)
    if not found["holds"]:
        raise typer.Exit(FAILED)


def _made(kind: str, changes: dict[str, str]) -> "Construction":
    """Raises Wrong and Mistakes."""
    from pydantic import ValidationError

    from loopscale.studies.mistakes import Mistake, Mistakes
    from loopscale.studies.override import value_of
    from loopscale.studies.wording import faults, passed_off

    family = member("constructions", kind)
    tree = {path: value_of(text, f"{path}={text}") for path, text in changes.items()}
    said = "--set " + " ".join(f"{path}={text}" for path, text in changes.items())
    try:
        made = family.model_validate(tree)
    except ValidationError as problem:
        raise Mistakes(
            Mistake(said, None, fault.what, fault.remedy) for fault in faults(problem, family, tree)
        ) from None
    if passed := list(passed_off(tree, made)):
        raise Mistakes(Mistake(said, None, fault.what, fault.remedy) for fault in passed)
    return made


def _verified(made: "Construction", seed: int) -> dict[str, Any]:
    import torch

    from loopscale.theory.constructions.example import EXACT, TOLERANCE, approach, distances, order

    try:
        example = made.example(torch.Generator().manual_seed(seed))
        found = distances(made, example)
        limit = made.limit
        near = approach(made, limit, seed) if limit else None
    except ValueError as problem:
        raise Wrong(f"{problem}; change what --set says") from problem
    steps = [
        {"step": step, "typical": each.log().mean().exp().item(), "largest": each.max().item()}
        for step, each in enumerate(found, 1)
        if not each.isnan().any()
    ]
    said: dict[str, Any] = {
        "construction": made.kind, "algorithm": made.algorithm, "source": made.source,
        "settings": made.model_dump(), "net": made.model(example.prompt).model_dump(),
        "prompts": len(example.tokens), "tokens": example.prompt.length, "dim_in": example.prompt.dim_in,
        "steps": steps, "limit": None, "holds": all(step["largest"] <= EXACT for step in steps),
    }  # fmt: skip
    if limit and near is not None:
        measured = order(limit, near)
        rows = [
            {limit.setting: value, "distance": gap} for value, gap in zip(limit.values, near, strict=True)
        ]
        said["limit"] = {
            "setting": limit.setting,
            "stated": limit.order,
            "measured": measured,
            "values": rows,
        }
        said["holds"] = math.isclose(measured, limit.order, rel_tol=TOLERANCE)
    return said


def _show(found: dict[str, Any]) -> None:
    say(f"{found['construction']}: {found['algorithm']} ({found['source']})")
    net = found["net"]
    parts = {name.removesuffix("_layers"): net[name] for name in net if name.endswith("_layers")}
    layers = " + ".join(f"{number} {part}" for part, number in parts.items() if number) or net["layers"]
    say(
        f"{net['kind']} of width {net['width']}, {net['heads']} heads, layers {layers}; {found['prompts']} random "
        f"prompts of {found['tokens']} tokens"
    )
    show_table(
        ["step", "typical distance", "largest distance"],
        [[step["step"], step["typical"], step["largest"]] for step in found["steps"]],
    )
    limit = found["limit"]
    if not limit:
        say(
            "Exact: no distance is more than rounding leaves."
            if found["holds"]
            else "It is to be exact, and is not."
        )
        return
    show_table(
        [limit["setting"], "distance after the last step"], [list(row.values()) for row in limit["values"]]
    )
    verdict = "as the theorem says" if found["holds"] else f"and the theorem says {limit['stated']:g}"
    say(f"A limit in {limit['setting']}: the distance shrinks with order {limit['measured']:.2f}, {verdict}.")
