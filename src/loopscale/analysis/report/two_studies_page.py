"""Two studies beside one another, as one self-contained page."""

from collections.abc import Iterator

import plotly.graph_objects as go

from loopscale.analysis.answers.best import Best
from loopscale.analysis.answers.findings import number, spanned
from loopscale.analysis.answers.two_studies import Comparison
from loopscale.analysis.figures.style import ERROR, PALETTE, SYMBOLS, listed, rounded, safe, wrapped
from loopscale.analysis.report.page import Figure, render

MOST_PAIRS = 400
"""Rows of the table of cells; more are only counted."""
MOST_DRAWN = 40
MOST_NAMED = 5
"""Settings in a sentence; the table of what differs has all."""


def comparison_page(found: Comparison) -> str:
    """The page of a comparison."""
    return render(
        "comparison.html.j2",
        list(_figures(found)),
        found=found,
        sentences=list(sentences(found)),
        alone=list(zip(found.names, found.alone, strict=True)),
        most=MOST_PAIRS,
    )


def sentences(found: Comparison) -> Iterator[str]:
    """What came out, in words."""
    first, second = found.names
    known = [pair for pair in found.pairs if pair.ratio is not None]
    if not known:
        yield f"No cell of {second} can be held against one of {first} yet: too little has finished."
        return
    if found.unlike:
        named = ", ".join(found.unlike[:MOST_NAMED]) + (", .." if len(found.unlike) > MOST_NAMED else "")
        yield (
            f"The studies are not evaluated alike ({named}; see what differs): their errors are not of the same"
            " prompts, and no ratio below compares like with like."
        )
    if len(known) == 1:
        (one,) = known
        told = {"no interval": ", with no interval: fewer than two replicates"}.get(one.word, f": {one.word}")
        span = f" (95 % interval {number(one.low)} to {number(one.high)})" if one.low is not None else ""
        yield f"The error of {second} is {number(one.ratio)} times{span} that of {first}{told}."
    else:
        words = ("lower", "higher", "not told apart", "no interval")
        counts = {word: sum(pair.word == word for pair in known) for word in words}
        said = ", ".join(f"{word} in {count}" for word, count in counts.items() if count)
        yield f"Of {len(known)} pairs of cells the error of {second} is {said}, against {first}."
    best = [
        min((one for one in side if one.error is not None), key=lambda one: one.error or 0.0)
        for side in ([pair.first for pair in known], [pair.second for pair in known])
    ]
    yield (
        "Lowest error: "
        + "; ".join(f"{name} {_of(one)}" for name, one in zip(found.names, best, strict=True))
        + "."
    )
    for law in found.laws:
        where = f" ({law.first.cell})" if law.first.cell else ""
        rates = f"{number(law.first.rate)} in {first}, {number(law.second.rate)} in {second}"
        yield f"Rate of {law.of.replace('_', ' ')} along {law.along}{where}: {rates}; {_told(law.low, law.high)}."


def _of(one: Best) -> str:
    by = f" by {one.label}" if one.label else ""
    return spanned(one.error, one.error_low, one.error_high) + by


def _told(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "no interval tells whether they differ"
    return "not told apart" if low <= 0 <= high else "they differ"


def _figures(found: Comparison) -> Iterator[Figure]:
    pairs = [pair for pair in found.pairs if pair.ratio is not None][:MOST_DRAWN]
    names = [wrapped(pair.first.label or "the only cell") for pair in pairs]
    if not found.matched:
        names = [f"{wrapped(pair.second.label)}<br>over {wrapped(pair.first.label)}" for pair in pairs]
    if not pairs:
        return
    both = listed(ERROR, names)
    for side, name in enumerate(found.names):
        ours = [(pair.first, pair.second)[side] for pair in pairs]
        _marks(both, names, ours, safe(name), side)
    yield Figure(
        "Errors", "Mean error of both studies' cells with 95 % intervals, over replicates.", "errors", both
    )
    ratios = listed(f"error of {safe(found.names[1])} over that of {safe(found.names[0])}", names)
    low = [(pair.ratio or 0.0) - (pair.low if pair.low is not None else pair.ratio or 0.0) for pair in pairs]
    high = [
        (pair.high if pair.high is not None else pair.ratio or 0.0) - (pair.ratio or 0.0) for pair in pairs
    ]
    bars = {
        "type": "data",
        "symmetric": False,
        "array": rounded(high),
        "arrayminus": rounded(low),
        "width": 8,
    }
    ratios.add_scatter(
        x=rounded(pair.ratio or float("nan") for pair in pairs),
        y=names,
        error_x=bars,
        mode="markers",
        marker={"size": 11, "color": PALETTE[0]},
        showlegend=False,
    )
    even = {"color": "#101828", "width": 1.2, "dash": "longdash"}
    ratios.add_scatter(x=[1.0] * len(names), y=names, mode="lines", name="equal", line=even)
    text = "Ratio of errors of matched cells with 95 % intervals; below the line at 1 the second study is better."
    yield Figure("Ratios", text, "ratios", ratios)


def _marks(figure: go.Figure, names: list[str], ours: list[Best], name: str, side: int) -> None:
    errors = [one.error or float("nan") for one in ours]
    high = [(one.error_high or error) - error for one, error in zip(ours, errors, strict=True)]
    low = [error - (one.error_low or error) for one, error in zip(ours, errors, strict=True)]
    figure.add_scatter(
        x=rounded(errors),
        y=names,
        error_x={
            "type": "data",
            "symmetric": False,
            "array": rounded(high),
            "arrayminus": rounded(low),
            "width": 8,
        },
        mode="markers",
        name=name,
        marker={"size": 11, "color": PALETTE[side], "symbol": SYMBOLS[side]},
    )
