"""Two studies side by side as one self-contained page."""

from collections.abc import Iterator, Sequence

from loopscale.analysis.answers.best_cells import Best
from loopscale.analysis.answers.comparisons import Comparison
from loopscale.analysis.answers.two_studies import LAW_PAIR_COLUMNS, PAIR_COLUMNS, TwoStudies
from loopscale.analysis.figures.base import Drawing
from loopscale.analysis.figures.style import ERROR_TITLE, interval_points, named_rows, safe, wrapped
from loopscale.analysis.report.page import render

MOST_PAIRS = 400
"""The largest number of rows in the table of cells. Further pairs are only counted."""
MOST_DRAWN = 40
"""The largest number of pairs in a figure."""


def two_studies_page(studies: TwoStudies) -> str:
    """The page as HTML."""
    return render(
        "two_studies.html.j2",
        list(_figures(studies)),
        studies=studies,
        pair_columns=PAIR_COLUMNS,
        law_columns=LAW_PAIR_COLUMNS,
        alone=list(zip(studies.names, studies.alone, strict=True)),
        most=MOST_PAIRS,
    )


def _figures(studies: TwoStudies) -> Iterator[Drawing]:
    pairs = [pair for pair in studies.pairs if pair.ratio is not None][:MOST_DRAWN]
    if not pairs:
        return
    names = [wrapped(pair.first.label or "the only cell") for pair in pairs]
    if not studies.matched:
        names = [f"{wrapped(pair.second.label)}<br>over {wrapped(pair.first.label)}" for pair in pairs]
    errors = named_rows(ERROR_TITLE, names)
    for side, name in enumerate(studies.names):
        answers = [(pair.first, pair.second)[side] for pair in pairs]
        ends = _columns(answers, "error", "error_low", "error_high")
        interval_points(errors, names, ends, side, name=safe(name))
    text = "Mean errors of the cells of both studies, with 95 % intervals over replicates."
    yield Drawing("Errors", text, errors, "errors")
    ratios = named_rows(f"error of {safe(studies.names[1])} over that of {safe(studies.names[0])}", names)
    ends = _columns([pair.comparison for pair in pairs], "ratio", "low", "high")
    interval_points(ratios, names, ends, 0, showlegend=False)
    equal = {"color": "#101828", "width": 1.2, "dash": "longdash"}
    ratios.add_scatter(x=[1.0] * len(names), y=names, mode="lines", name="equal", line=equal)
    text = "Ratios of errors of matched cells, with 95 % intervals. Left of the line at 1 the second study is better."
    yield Drawing("Ratios", text, ratios, "ratios")


def _columns(rows: Sequence[Best | Comparison], *names: str) -> list[list[float | None]]:
    return [[getattr(row, name) for row in rows] for name in names]
