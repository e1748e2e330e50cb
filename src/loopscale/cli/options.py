"""Options that several verbs share, and the store that they lead to."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from loopscale.records.stores.base import Store


def _studies(incomplete: str) -> list[str]:
    """The studies' names, for the shell to complete; paths it completes by itself."""
    from loopscale.studies.find import names, nearest_folder

    folder = nearest_folder()
    return [name for name in names(folder) if name.startswith(incomplete)] if folder else []


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH|URL",
        help="Where the records are: a folder, a tracking server or a database. "
        "[dim]Default: $LOOPSCALE_STORE, else $MLFLOW_TRACKING_URI, else .loopscale[/dim]",
    ),
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="FOLDER|URL",
        help="Where checkpoints, locks and reports are. At s3://, gs:// or abfs://BUCKET/PREFIX only checkpoints are. "
        "[dim]Default: the store, if it is a folder, else .loopscale[/dim]",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs, and nothing else.")]
StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY", help="A study's file, or its name below studies/.", autocompletion=_studies
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change a setting, as in training.steps=100. May be given often."
    ),
]


@dataclass(frozen=True)
class Place:
    """Where the options before the verb say that the records are."""

    store: str | None = None
    storage: str | None = None


def opened(context: typer.Context, store: str | None, storage: str | None, create: bool = False) -> "Store":
    """The store that the options name, those after the verb first. Raises StoreError."""
    from loopscale.records.stores.opening import open_store

    before = context.obj or Place()
    return open_store(store or before.store, storage or before.storage, create=create)


def assignments(texts: list[str] | None) -> dict[str, str]:
    """`path=value`, as given to --set, by path. Raises Wrong."""
    from loopscale.cli.wrong import Wrong

    found: dict[str, str] = {}
    for text in texts or []:
        path, equals, value = (part.strip() for part in text.partition("="))
        if not (path and equals and value):
            raise Wrong(f"--set {text} is no assignment; write it as path=value, such as training.steps=100")
        if found.setdefault(path, value) != value:
            raise Wrong(f"--set {path} is given twice, as {found[path]} and {value}; give one of them")
    return found
