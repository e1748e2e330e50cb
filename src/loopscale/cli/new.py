"""`loopscale new`: a commented start of a task, a model, a solver or a study."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from loopscale.cli.errors import UsageError
from loopscale.cli.output import say

MODULE_NAME = re.compile(r"[a-z][a-z0-9_]*")
TEMPLATES = Path(__file__).with_name("templates")


def command(
    what: Annotated[
        Literal["task", "model", "solver", "study"], typer.Argument(metavar="task|model|solver|study")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and _, as in my_model.")],
    full: Annotated[
        bool, typer.Option("--full", help="Of a task or a model: a class that decides everything itself.")
    ] = False,
) -> None:
    """Write a commented start, which runs unchanged: a member in NAME.py, or a study in NAME.yaml.

    A model starts as a plain PyTorch module, and a task as a function that draws pairs.

    [bold]Example[/bold]  loopscale new model my_model
    """
    from loopscale.notation.files import studies_folder

    if not MODULE_NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a name here; use small letters, digits and _, as in my_{what}")
    template = TEMPLATES / (f"{what}_full.txt" if full else f"{what}.txt")
    if not template.is_file():
        raise UsageError(f"a {what} has one form; leave --full out")
    folder = (studies_folder() or Path()) if what == "study" else Path()
    file = folder / f"{name}.{'yaml' if what == 'study' else 'py'}"
    text = template.read_text()
    camel = "".join(part.capitalize() for part in name.split("_"))
    text = text.replace(f"My{what.capitalize()}", camel).replace(f"my_{what}", name)
    _check_kind(what, name)
    try:
        with file.open("x") as new:
            new.write(text)
    except FileExistsError:
        raise UsageError(f"there is a file {file} already; choose another name") from None
    except OSError as problem:
        raise UsageError(f"cannot write {file} ({problem.strerror}); change to another folder") from problem
    say(f"wrote {file}")
    say(f"next: loopscale plan {name}" if what == "study" else f"next: loopscale check {file}")


def _check_kind(what: str, name: str) -> None:
    """Raises UsageError if a member of the package has the kind."""
    if what == "study":
        return
    from loopscale.cli.components import family_named

    if name in family_named(f"{what}s").choices():
        raise UsageError(f"there is a {what} {name!r} already; choose another name")
