"""`loopscale verify`: a construction's weights, run against its algorithm on random problems."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscale.cli.options import JsonOption, SetOption, assignments
from loopscale.cli.output import say, show_json, show_table
from loopscale.cli.show import kinds_of, made
from loopscale.cli.wrong import FAILED, Wrong

if TYPE_CHECKING:
    from loopscale.theory.constructions.base import Construction


def command(
    kind: Annotated[
        str,
        typer.Argument(metavar="CONSTRUCTION", help="Its kind.", autocompletion=kinds_of("constructions")),
    ],
    overrides: SetOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the random problems.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Build a construction's net, run it on random problems, and print how far it is from the algorithm.

    After every step; and where the theorem holds in a limit, for a setting that goes there, with the order at which the
    distance shrinks. Exit code 1 if the theorem does not come out.

    [bold]Example[/bold]  loopscale verify newton --set variant=sink
    """
    found = _verified(made("constructions", kind, assignments(overrides)), seed)
    if as_json:
        show_json(found)
    else:
        _show(found)
    if not found["holds"]:
        raise typer.Exit(FAILED)


def _verified(construction: "Construction", seed: int) -> dict[str, Any]:
    """Raises Wrong."""
    from loopscale.analysis.papers.theorems import verify
    from loopscale.runner.on_ray.memory_limit import full

    try:
        return verify(construction, seed).to_dict()
    except ValueError as problem:
        raise Wrong(f"{problem}; change what --set says") from problem
    except (MemoryError, RuntimeError) as problem:
        if not full(problem):
            raise
        raise Wrong(
            "the net needs more memory than there is; make smaller what --set made large"
        ) from problem


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
