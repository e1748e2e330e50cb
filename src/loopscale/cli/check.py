"""`loopscale check`: the contract tests of the project, on members from outside."""

from pathlib import Path
from typing import Annotated

import typer

from loopscale.cli.errors import DONE, FAILED, UsageError
from loopscale.cli.output import say

CONTRACTS = {
    "Task": ("tasks", "solvers"),
    "Model": ("models", "costs"),
    "Optimizer": ("optimizers",),
    "Solver": ("solvers",),
    "Bound": ("bounds",),
    "Construction": ("constructions",),
    "Form": ("forms",),
    "LawAxis": ("axes",),
    "Figure": ("figures",),
    "StoreKind": ("stores",),
    "Cluster": ("clusters",),
    "Search": ("searches",),
    "Scheduler": ("schedulers",),
}
"""Modules of `loopscale.contracts` by the family that they test."""


def command(
    members: Annotated[
        str,
        typer.Argument(metavar="FILE|MODULE", help="A file or a module with members, such as my_model.py."),
    ],
    only: Annotated[
        str, typer.Option("-k", metavar="WORDS", help="Run only tests whose names match, as in pytest.")
    ] = "",
    trace: Annotated[
        bool, typer.Option("--trace", help="Print the code of every failed test, as pytest does.")
    ] = False,
) -> None:
    """Test outside members: shapes, determinism, causality, counted work, gradients, floors.

    These are the tests of the package's own members. They run on every member of the file with its default settings.
    For every broken rule the command prints the member, the line, what was found, and the remedy.

    [bold]Example[/bold]  loopscale check my_model.py
    """
    if Path(members).suffix in (".yaml", ".yml"):
        raise UsageError(f"{members} is a study; `loopscale plan {members}` checks a study")
    try:
        import pytest
    except ModuleNotFoundError:
        what = "the contracts need pytest, which is not installed"
        raise UsageError(f"{what}; run pip install 'loopscale[check]'") from None

    from loopscale import contracts
    from loopscale.core import plugins
    from loopscale.core.plugins import find_plugin, load

    plugin = find_plugin(members)
    load(plugin)
    families = [next(each for each in plugins.families if issubclass(one, each)) for one in plugin.members]
    named = zip(families, plugin.members, strict=True)
    kinds = [f"{family.noun()} {member.kind}" for family, member in named]
    say(f"{plugin.text}: {', '.join(kinds)}")
    modules = dict.fromkeys(name for family in families for name in CONTRACTS.get(family.__name__, ()))
    if not modules:
        say("the classes keep to the interface; there are no further tests of such members")
        raise typer.Exit(DONE)
    words = [
        "-q",
        "--no-header",
        f"--tb={'short' if trace else 'no'}",
        "-rN",
        "-p",
        "no:cacheprovider",
        "-p",
        "loopscale.contracts.plugin",
    ]
    words += [
        "-c",
        str(Path(contracts.__file__).with_name("pytest.ini")),
        "--rootdir",
        str(plugin.root.parent),
    ]
    words += ["--members", members, *(["-k", only] if only else [])]
    code = pytest.main([*words, "--pyargs", *(f"loopscale.contracts.{name}" for name in modules)])
    if code == pytest.ExitCode.TESTS_FAILED and not trace:
        say(f"`loopscale check {members} --trace` prints the code of the failed tests")
    raise typer.Exit(DONE if code == pytest.ExitCode.OK else FAILED)
