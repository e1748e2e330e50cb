"""A study as one self-contained page: the question, the answer, figures, laws, standings, fates, provenance.

Nothing is loaded from anywhere: plotly's basic bundle (1.2 MB, MIT, its licence beside it) is vendored and
inlined once.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import jinja2
import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup

from loopscale.analysis import figures
from loopscale.analysis.best import Best, Standing, against, best, front
from loopscale.analysis.drawing import ticked
from loopscale.analysis.floors import impossible
from loopscale.analysis.laws import Law
from loopscale.analysis.tables import StudyTable
from loopscale.analysis.tested import laws
from loopscale.core.visible import visible

MOST_FATES = 3000
"""Rows of the table of fates; a larger study's finished tuning trials beyond it are only counted."""
MOST_GROUPS = 12
"""Task settings that get figures of their own."""


@dataclass(frozen=True)
class Figure:
    """`text` is what the figure shows in words, for who cannot see it, and its caption."""

    title: str
    text: str
    name: str
    drawing: go.Figure

    @property
    def json(self) -> Markup:
        return Markup((ticked(self.drawing).to_json() or "").replace("<", "\\u003c"))


def report(
    study: StudyTable,
    trials: pd.DataFrame,
    curves: pd.DataFrame,
    history: pd.DataFrame,
    provenance: Mapping[str, Any] | None = None,
) -> str:
    """The page. `provenance`: commit, versions, the study's file and the like, shown as given."""
    answers = best(trials, study)
    fitted, missing = laws(study, trials, curves)
    standings = against(trials, curves, study)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_shown)
    environment.filters["figure"] = number
    fates = trials[trials["role"] != "baseline"]
    page = environment.from_string(_asset("report.html.j2"))
    return page.render(
        study=study,
        sentences=list(sentences(answers, standings, fitted)),
        impossible=[one.text for one in impossible(trials, curves)],
        answers=answers,
        standings=standings,
        laws=fitted,
        missing=missing,
        figures=[
            figure for figure in drawings(study, trials, curves, history, fitted) if figure.drawing.data
        ],
        points=front(trials, study) if (study.get("search") or {}).get("kind") == "nsga2" else [],
        counts=fates["outcome"].fillna("running").value_counts().to_dict(),
        fates=_fates(fates),
        omitted=max(len(fates) - MOST_FATES, 0),
        provenance={name: _text(value) for name, value in (provenance or {}).items()},
        plotly=Markup(_asset("plotly-basic.min.js").replace("</script", "<\\/script")),
    )


def _shown(value: Any) -> Any:
    """Text without control characters: a page may be looked at in a terminal too."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def sentences(answers: list[Best], standings: list[Standing], fitted: list[Law]) -> Iterator[str]:
    """The answer in words, as it came out."""
    known = sorted((one for one in answers if one.error is not None), key=lambda one: one.error or 0.0)
    if not known:
        yield "No trial has finished yet, so there is no answer yet."
        return
    first = known[0]
    yield (
        f"Lowest error: {_interval(first)} by {first.label or 'the only cell'},"
        f" where predicting nothing costs 1{_rivals(known)}."
    )
    for standing in (one for one in standings if one.cell == first.cell):
        span = f" (95 % interval {number(standing.low)} to {number(standing.high)})" if standing.low else ""
        yield (
            f"That is {number(standing.ratio)} times{span} the error of {standing.baseline}"
            f" after {standing.loop} steps, {number(standing.baseline_error)}."
        )
    for law in fitted:
        if law.verdict:
            where = f" ({law.cell})" if law.cell else ""
            found = "undecided against" if law.verdict.word == "undecided" else str(law.verdict.word)
            found = "agrees with" if found == "agrees" else found + " than" * (found in ("faster", "slower"))
            yield f"{law.of} along {law.along}{where}: {found} {law.theory}; {law.verdict.because}."
    if len(known) < len(answers):
        yield f"{len(answers) - len(known)} of {len(answers)} cells have no finished trial yet."


def drawings(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, history: pd.DataFrame, fitted: list[Law]
) -> Iterator[Figure]:
    """Every figure that the records allow."""
    groups = list(figures.by_task(study, trials).items())[:MOST_GROUPS]
    marked = (
        " A ring marks T, the loop that was trained for; grey and dashed: classical algorithms; black: an exact"
        " bound below which nothing can be."
    )
    for number_, (name, cells) in enumerate(groups):
        title = f": {name}" if name else ""
        text = "Error after every loop or layer, averaged over all queries, with 95 % bands over replicates."
        drawing = figures.against_loops(study, trials, curves, cells)
        yield Figure(f"Error against loops{title}", text + marked, f"loops{number_}", drawing)
        text = "Error at T against the pairs seen before the query, with 95 % bands over replicates."
        drawing = figures.against_points(study, trials, curves, cells)
        yield Figure(f"Error against points{title}", text, f"points{number_}", drawing)
        text = "Mean error at T of every cell with its 95 % interval; the dashes are single runs."
        yield Figure(f"Replicates{title}", text, f"runs{number_}", figures.replicates(study, trials, cells))
    for number_, path in enumerate(figures.axes(study)):
        text = "Mean error at T of every cell with its 95 % interval, over replicates."
        yield Figure(
            f"Error against {path}", text, f"axis{number_}", figures.against_axis(study, trials, path)
        )
    for number_, (along, of) in enumerate(dict.fromkeys((law.along, law.of) for law in fitted)):
        mine = [law for law in fitted if (law.along, law.of) == (along, of)]
        text = (
            "Means over runs, fitted laws, and (dotted) what theory predicts: at its own height where it is exact "
            "for this very quantity, else its shape at the data's height."
        )
        yield Figure(f"Law: {of} along {along}", text, f"law{number_}", figures.law(mine))
    for number_, setting in enumerate(figures.tuned(study, trials)):
        text = f"The error that each tried value of {setting} gave, by cell."
        yield Figure(f"Tuning: {setting}", text, f"tuning{number_}", figures.tuning(study, trials, setting))
    if (study.get("search") or {}).get("kind") == "nsga2":
        text = "Error against training cost of every finished point; the table above lists the front."
        yield Figure("Error against cost", text, "front", figures.front(study, trials))
    if len(history):
        text = "Validation error while the runs above were trained."
        yield Figure("Learning curves", text, "learning", figures.learning(study, trials, history))


def number(value: float | None) -> str:
    """Three digits."""
    return "–" if value is None else "unbounded" if value in (float("inf"), float("-inf")) else f"{value:.3g}"


def _interval(answer: Best) -> str:
    if answer.error_low is None or answer.error_high is None:
        return f"{number(answer.error)} (no interval: fewer than two replicates)"
    return f"{number(answer.error)} (95 % interval {number(answer.error_low)} to {number(answer.error_high)})"


def _rivals(known: list[Best]) -> str:
    """Whether the next cell is told apart from the first: their intervals, no test, and said so."""
    if len(known) < 2:
        return ""
    first, second = known[:2]
    next_ = f"; next is {second.label} with {_interval(second)}"
    if first.error_high is None or second.error_low is None:
        return next_
    return next_ + (
        "; their intervals overlap" if second.error_low <= first.error_high else "; their intervals are apart"
    )


def _fates(trials: pd.DataFrame) -> list[dict[str, Any]]:
    """Those that say something went wrong first, so that what is cut off is what went well."""
    finished = trials["outcome"].eq("finished") & trials["role"].eq("tuning")
    rows = trials.assign(_last=finished).sort_values(["_last", "label", "role", "number"], kind="stable")
    return [
        {
            **{
                name: "" if pd.isna(row[name]) else row[name] for name in ("trial", "label", "role", "detail")
            },
            "outcome": "running" if pd.isna(row["outcome"]) or not row["outcome"] else row["outcome"],
            "seed": "" if pd.isna(row["seed"]) else int(row["seed"]),
            "step": "" if pd.isna(row["step"]) else int(row["step"]),
            "error": None if pd.isna(row["error"]) else float(row["error"]),
        }
        for _, row in rows.head(MOST_FATES).iterrows()
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=1, default=str)


def _asset(name: str) -> str:
    return files("loopscale.analysis").joinpath(name).read_text(encoding="utf-8")
