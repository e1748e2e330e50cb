"""`loopscale compare`: two studies beside one another."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from loopscale.cli.options import (
    JsonOption,
    StorageOption,
    StoreOption,
    StudyArgument,
    WideOption,
    open_store,
)
from loopscale.cli.output import (
    NOTHING,
    first_few,
    format_value,
    say,
    say_folded,
    show_answers,
    show_json,
    show_table,
)
from loopscale.interface import types

ROWS = 40
"""Pairs of cells in the table. `--json` and the page list more."""


def command(
    context: typer.Context,
    first: StudyArgument,
    second: StudyArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.html", help="Write it as a page that needs no network too."),
    ] = None,
    of_second: Annotated[
        str | None,
        typer.Option(
            "--second-store",
            metavar="PATH|URL",
            help="The records of the second study. [dim]Default: those of the first[/dim]",
        ),
    ] = None,
    wide: WideOption = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """The second study against the first: errors of cells that ask the same, laws, and differences in the settings.

    A ratio is the second's error over the first's, with a 95 % interval over replicates: below 1 the second is better.
    Verdicts are corrected for the number of pairs, intervals are not.

    [bold]Example[/bold]  loopscale compare algoformer/figure3 algoformer/reduced/figure3 --out figure3.html
    """
    from loopscale.analysis.report.two_studies_page import two_studies_page
    from loopscale.interface import comparing
    from loopscale.interface.reports import check_named, write_page

    comparing.compared_names(first, second, two_stores=of_second is not None)
    if out is not None:
        check_named(out)
    place = open_store(context, store, storage)
    other = None if of_second is None else open_store(context, of_second, None)
    studies = comparing.compare(first, second, place, other)
    if out is not None:
        write_page(out, two_studies_page(studies).encode())
    if as_json:
        show_json(studies.to_dict() | {"how": studies.how, "page": out})
        return
    _show(studies, wide)
    if out is not None:
        say(f"the page is {out}")


def _show(studies: "types.TwoStudies", wide: bool) -> None:
    from loopscale.analysis.answers.two_studies import LAW_PAIR_COLUMNS, PAIR_COLUMNS

    for sentence in studies.sentences:
        say_folded(sentence)
    say_folded(" ".join([studies.how, *studies.correction]))
    show_answers(PAIR_COLUMNS, studies.pairs[:ROWS], wide)
    if len(studies.pairs) > ROWS:
        say_folded(f"and {len(studies.pairs) - ROWS:,} more pairs; --json prints all of them")
    for name, labels in zip(studies.names, studies.alone, strict=True):
        if labels:
            say_folded(f"{len(labels):,} of {name} without a counterpart: {first_few(labels, 5, '; ')}")
    if studies.laws:
        show_answers(LAW_PAIR_COLUMNS, studies.laws, wide)
    if studies.different:
        say("What differs in the studies:")
        show_table(
            ["setting", *studies.names],
            ([path, *(_setting(value) for value in values)] for path, values in studies.different.items()),
            sentences=True,
        )


def _setting(value: object) -> str | None:
    """A setting as a study file writes it; a component by its kind, with its settings in brackets."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return "; ".join(_setting(each) or NOTHING for each in value) or NOTHING
    if isinstance(value, Mapping):
        rest = ", ".join(
            f"{name} {_setting(each) or NOTHING}" for name, each in value.items() if name != "kind"
        )
        kind = str(value.get("kind", ""))
        return f"{kind} ({rest})" if kind and rest else kind or rest
    return format_value(value)
