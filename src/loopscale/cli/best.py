"""`loopscale best`: the best configuration of every cell."""

from collections.abc import Sequence
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
from loopscale.cli.output import say, say_folded, show_answers, show_json, show_table
from loopscale.interface import types


def command(
    context: typer.Context,
    study: StudyArgument,
    where: Annotated[
        str,
        typer.Option(
            "--where",
            metavar="SQL",
            help="Print only cells whose trial (last column) meets this SQL condition. No number changes.",
        ),
    ] = "",
    full: Annotated[
        bool, typer.Option("--full", help="Also print laws, and each cell beside the classical algorithms.")
    ] = False,
    wide: WideOption = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """The best configuration of every cell, with mean and interval over its replicates, and the study's claims.

    With two [cyan]objectives[/cyan], also every point that no other point beats in both error and FLOPs.

    [bold]Example[/bold]  loopscale best quickstart --where '"training.loops" >= 6'
    """
    from loopscale.analysis.answers.best_cells import front_columns
    from loopscale.interface.answers import best

    found = best(study, open_store(context, store, storage), where)
    if as_json:
        show_json(found.document())
        return
    results = found.results
    if where and not found.cells:
        say(f"no cell of {results.name} has an answer whose trial meets {where}")
        return
    show_best(results, found.cells, wide)
    if found.points is not None:
        say("No other point has both a smaller error and fewer FLOPs:")
        show_answers(front_columns(results), found.points, wide)
    show_claims(found.claims, wide)
    if full:
        _show_beside_theory(found.with_curves)


def show_best(results: "types.Results", answers: Sequence["types.Best"], wide: bool = False) -> None:
    """Print the table of best configurations, the size of its family, and the cells at the end of a range."""
    from loopscale.analysis.answers.best_cells import best_columns, best_notes, cells_at_ends
    from loopscale.analysis.recorded.looks import order_sentences

    show_answers(best_columns(results), answers, wide)
    if notes := best_notes(answers):
        say_folded(" ".join(notes))
    for sentence in order_sentences(results):
        say_folded(sentence)
    for end in cells_at_ends(results, answers):
        say_folded(f"{end}: a wider range, and trials in it, may find better")


def show_claims(claims: Sequence["types.JudgedClaim"], wide: bool = False) -> None:
    """Print the claims of a study with their verdicts."""
    from loopscale.analysis.answers.claims import READ_COLUMNS, claim_notes

    if claims:
        say_folded(" ".join(["Claims.", *claim_notes(claims)]))
        show_answers(READ_COLUMNS, claims, wide)
        for claim in claims:
            if claim.decision:
                say_folded(f"{claim.text}: {claim.decision.end}")


def _show_beside_theory(results: "types.Results") -> None:
    """Print the laws, and each cell's error over that of every classical algorithm after as many steps."""
    from loopscale.analysis.answers.standings import standings
    from loopscale.analysis.laws.law import study_laws
    from loopscale.analysis.laws.words import law_line, law_name

    if rows := standings(results):
        _show_standings(rows)
    laws, unfitted = study_laws(results)
    for law in laws:
        for line in law_line(law).splitlines():
            say_folded(line)
    for law in unfitted:
        say_folded(f"law: {law_name(law)}: none yet, {law.because}")


def _show_standings(standings: Sequence["types.Standing"]) -> None:
    solvers = list(dict.fromkeys(standing.baseline for standing in standings))
    rows: dict[str, dict[str, types.Standing]] = {}
    for standing in standings:
        rows.setdefault(standing.label, {})[standing.baseline] = standing
    exact = "; `exact`: its error is rounding" if any(standing.exact for standing in standings) else ""
    say_folded(f"Error over that of a classical algorithm after as many steps, on the same prompts{exact}:")
    show_table(
        ["cell", *solvers],
        ([label, *(_ratio(beside.get(solver)) for solver in solvers)] for label, beside in rows.items()),
    )


def _ratio(standing: "types.Standing | None") -> str | None:
    if standing is None:
        return None
    if standing.exact:
        return "exact"
    if standing.ratio is None:
        return standing.verdict_in_words
    interval = standing.comparison.interval
    return f"{standing.ratio:.3g}" + (f" ({interval})" if interval else "")
