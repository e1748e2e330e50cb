"""Options that several verbs share, and the store that they name."""

from dataclasses import dataclass
from typing import Annotated

import typer

from loopscale.cli.errors import UsageError
from loopscale.interface import types


def _complete_study(incomplete: str) -> list[str]:
    """Names of studies for the shell. The shell completes paths itself."""
    from loopscale.notation.files import known_studies

    return [name for name in known_studies() if name.startswith(incomplete)]


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH|URL",
        help="The records: a folder, a tracking server or a database. "
        "[dim]Default: $LOOPSCALE_STORE, else $MLFLOW_TRACKING_URI, else .loopscale[/dim]",
    ),
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="FOLDER|URL",
        help="The folder for checkpoints, locks and reports. A bucket (s3://, gs://, abfs://BUCKET/PREFIX) holds "
        "checkpoints only. [dim]Default: the store if it is a folder, else .loopscale[/dim]",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs, and nothing else.")]
WideOption = Annotated[
    bool,
    typer.Option(
        "--wide",
        help="Print every column of a table. In a narrow terminal the table stands in parts.",
    ),
]
StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY", help="A study's file, or its name below studies/.", autocompletion=_complete_study
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a setting, as in training.steps=100. You can repeat the option.",
    ),
]
TinyOption = Annotated[
    bool,
    typer.Option(
        "--tiny",
        help="The same cells, claims and laws, with a few steps and trials: a try in a minute. Its records stand in a "
        "store of their own.",
    ),
]
FASTEST_RATE = 1e30
"""FLOP/s. No machine is faster, and no time of a study becomes 0."""
TINY_STORE = ".loopscale-tiny"
"""The store of tiny studies, which are no answers, in the working folder."""
RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate",
        help="FLOP/s of one trial, for training.seconds. [dim]Default: measured at the first run[/dim]",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Trials at a time. [dim]Default: the capacity of the machine or the cluster[/dim]",
    ),
]


@dataclass(frozen=True)
class StorePlace:
    """The store and storage that options before the verb name."""

    store: str | None = None
    storage: str | None = None


def store_place(context: typer.Context, store: str | None, storage: str | None) -> StorePlace:
    """The store and storage of all options. Options after the verb come first."""
    before = context.obj or StorePlace()
    return StorePlace(store or before.store, storage or before.storage)


def open_store(
    context: typer.Context, store: str | None, storage: str | None, create: bool = False
) -> "types.Store":
    """The store of the options. Raises StoreError."""
    from loopscale.records.stores import opening

    place = store_place(context, store, storage)
    return opening.open_store(place.store, place.storage, create=create)


def parse_assignments(texts: list[str] | None) -> dict[str, str]:
    """The `path=value` texts of --set, by path. Raises UsageError."""
    values: dict[str, str] = {}
    for text in texts or []:
        path, equals, value = (part.strip() for part in text.partition("="))
        if not (path and equals and value):
            raise UsageError(
                f"--set {text} is no assignment; write it as path=value, such as training.steps=100"
            )
        if values.setdefault(path, value) != value:
            raise UsageError(f"--set {path} is given twice, as {values[path]} and {value}; give one of them")
    return values


def check_rate(rate: float | None) -> None:
    """Raises UsageError for a --rate that no machine has."""
    if rate is not None and not 1 <= rate <= FASTEST_RATE:
        raise UsageError(f"--rate {rate} is no speed; give FLOP/s from 1 to {FASTEST_RATE:g}, such as 2e12")


def records_of(cluster: "types.Cluster") -> "types.Store":
    """The store of a cluster's studies, from here. Raises StoreError."""
    from loopscale.records.stores import opening

    store, storage = cluster.driver_places
    remote = bool(store and "://" in store)
    return opening.open_store(store, None if remote else storage)
