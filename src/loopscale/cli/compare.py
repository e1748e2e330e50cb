"""`loopscale compare`: two studies beside one another."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscale.cli.options import JsonOption, StorageOption, StoreOption, StudyArgument, opened
from loopscale.cli.output import NOTHING, READABLE, interval, say, show_json, show_table, shown
from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    from loopscale.analysis.answers.two_studies import Comparison

ROWS = 40
"""Pairs of cells listed; --json and the page have more."""


def command(
    context: typer.Context,
    first: StudyArgument,
    second: StudyArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.html", help="Write it as a page that needs no network too."),
    ] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """The second study against the first: errors of cells that ask the same, laws, and what differs in the settings.

    A ratio is the second's error over the first's, with a 95 % interval over replicates: below 1 the second is better.

    [bold]Example[/bold]  loopscale compare algoformer/figure3 algoformer/reduced/figure3 --out figure3.html
    """
    from loopscale.analysis.answers.two_studies import compare
    from loopscale.analysis.report.two_studies_page import comparison_page
    from loopscale.cli.recorded import recorded
    from loopscale.cli.report import write_page
    from loopscale.studies.files import recorded_name

    names = [recorded_name(study) for study in (first, second)]
    if names[0] == names[1]:
        raise Wrong(f"{names[0]} is compared with itself; give two studies, `loopscale list` names them")
    place = opened(context, store, storage)
    both = [recorded(place, study) for study in (first, second)]
    one, other = ((found.study, found.trials, found.curves) for found in both)
    found = compare(one, other)
    if out is not None:
        write_page(out, comparison_page(found).encode())
    if as_json:
        show_json(found.to_dict() | {"how": found.how, "page": out})
        return
    _show(found)
    if out is not None:
        say(f"the page is {out}")


def _show(found: "Comparison") -> None:
    from loopscale.analysis.report.two_studies_page import sentences

    first, second = found.names
    for sentence in sentences(found):
        say(sentence)
    say(found.how)
    show_table(
        [first, second, "error", "its error", "ratio", "95 % interval", f"{second} is"],
        (
            [
                p.first.label,
                p.second.label,
                p.first.error,
                p.second.error,
                p.ratio,
                interval(p.low, p.high),
                p.word,
            ]
            for p in found.pairs[:ROWS]
        ),
    )
    if len(found.pairs) > ROWS:
        say(f"and {len(found.pairs) - ROWS:,} more pairs; --json has them all")
    for name, labels in zip(found.names, found.alone, strict=True):
        if labels:
            said = "; ".join(labels[:5]) + ("; ..." if len(labels) > 5 else "")
            say(f"{len(labels):,} of {name} without a counterpart: {said}")
    if found.laws:
        show_table(
            [
                "law",
                f"rate in {first}",
                "95 % interval",
                f"in {second}",
                "95 % interval",
                "difference",
                "95 % interval",
            ],
            (
                [
                    f"{law.of} along {law.along}" + (f" ({law.first.cell})" if law.first.cell else ""),
                    law.first.rate,
                    interval(law.first.low, law.first.high),
                    law.second.rate,
                    interval(law.second.low, law.second.high),
                    law.difference,
                    interval(law.low, law.high),
                ]
                for law in found.laws
            ),
        )
    if found.different:
        say("What differs in the studies:")
        show_table(
            ["setting", first, second],
            ([path, *(_said(value) for value in values)] for path, values in found.different.items()),
            width=READABLE,
        )


def _said(value: object) -> str | None:
    """As one would write it in a study, a component by its kind and its settings behind it."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return "; ".join(_said(each) or NOTHING for each in value) or NOTHING
    if isinstance(value, Mapping):
        rest = ", ".join(f"{name} {_said(each) or NOTHING}" for name, each in value.items() if name != "kind")
        kind = str(value.get("kind", ""))
        return f"{kind} ({rest})" if kind and rest else kind or rest
    return shown(value)
