"""Two studies side by side as one self-contained page."""

from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from loopscale.analysis.answers.best import Best
from loopscale.analysis.answers.two_studies import LAW_COLUMNS, PAIR_COLUMNS, Pair, TwoStudies
from loopscale.analysis.figures.style import (
    ERROR,
    PALETTE,
    SYMBOLS,
    as_floats,
    interval_bars,
    named_rows,
    rounded,
    safe,
    wrapped,
)
from loopscale.analysis.report.page import Figure, render

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
        law_columns=LAW_COLUMNS,
        alone=list(zip(studies.names, studies.alone, strict=True)),
        most=MOST_PAIRS,
    )


def _figures(studies: TwoStudies) -> Iterator[Figure]:
    pairs = [pair for pair in studies.pairs if pair.ratio is not None][:MOST_DRAWN]
    if not pairs:
        return
    names = [wrapped(pair.first.label or "the only cell") for pair in pairs]
    if not studies.matched:
        names = [f"{wrapped(pair.second.label)}<br>over {wrapped(pair.first.label)}" for pair in pairs]
    errors = named_rows(ERROR, names)
    for side, name in enumerate(studies.names):
        _errors(errors, names, [(pair.first, pair.second)[side] for pair in pairs], safe(name), side)
    text = "Mean errors of the cells of both studies, with 95 % intervals over replicates."
    yield Figure("Errors", text, "errors", errors)
    text = "Ratios of errors of matched cells, with 95 % intervals. Left of the line at 1 the second study is better."
    yield Figure("Ratios", text, "ratios", _ratios(studies.names, names, pairs))


def _ratios(studies: tuple[str, str], names: Sequence[str], pairs: Sequence[Pair]) -> go.Figure:
    figure = named_rows(f"error of {safe(studies[1])} over that of {safe(studies[0])}", names)
    comparisons = [pair.comparison for pair in pairs]
    middle, low, high = (
        as_floats(getattr(comparison, end) for comparison in comparisons) for end in ("ratio", "low", "high")
    )
    figure.add_scatter(
        x=rounded(middle),
        y=list(names),
        error_x=interval_bars(middle, low, high, width=8),
        mode="markers",
        marker={"size": 11, "color": PALETTE[0]},
        showlegend=False,
    )
    equal = {"color": "#101828", "width": 1.2, "dash": "longdash"}
    figure.add_scatter(x=[1.0] * len(names), y=list(names), mode="lines", name="equal", line=equal)
    return figure


def _errors(figure: go.Figure, names: Sequence[str], cells: Sequence[Best], name: str, side: int) -> None:
    middle, low, high = (
        as_floats(getattr(cell, end) for cell in cells) for end in ("error", "error_low", "error_high")
    )
    figure.add_scatter(
        x=rounded(middle),
        y=list(names),
        error_x=interval_bars(middle, low, high, width=8),
        mode="markers",
        name=name,
        marker={"size": 11, "color": PALETTE[side], "symbol": SYMBOLS[side]},
    )
