"""Figures and sentences of Fu et al. 2023 (arXiv:2310.17086, section 4), from the tables of `compared.py`."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false

from collections.abc import Iterator

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from loopscale.analysis.figures.style import (
    ERROR,
    blank,
    colour_of,
    dashed_line,
    mean_line,
    rounded,
    safe,
    symbol_of,
    with_decimal_ticks,
)
from loopscale.analysis.notebook import Sentences, missing_figure
from loopscale.analysis.papers.iterates import matches
from loopscale.analysis.papers.trend import LEAST, Fit, curve, trend

UNTRAINED = "No net of this study has been trained: there is nothing to compare."
MOST_COLUMNS = 20
"""Of a heat map; of more iterates so many are shown, evenly on a logarithmic scale."""
LOGARITHMIC = ("gradient descent",)
"""Solvers whose best-matching iterate grows exponentially in the paper: a straight line on a logarithmic axis."""
MATCH = "best-matching iterate (count)"
STEP = "loop or layer (count)"


def heat_maps(similar: pd.DataFrame) -> go.Figure:
    """Similarity of every step with every iterate, mean over replicates; a ring marks each step's best match."""
    if similar.empty:
        return missing_figure(UNTRAINED)
    cells, solvers = (list(dict.fromkeys(similar[name])) for name in ("cell", "solver"))
    figure = make_subplots(
        len(cells),
        len(solvers),
        column_titles=[safe(str(solver)) for solver in solvers],
        row_titles=[safe(str(cell)) for cell in cells],
        vertical_spacing=0.3 / len(cells),
    )
    for at, group in similar.groupby(["cell", "solver"], sort=False):
        place = {"row": cells.index(at[0]) + 1, "col": solvers.index(at[1]) + 1}
        mean = group.pivot_table(index="step", columns="iterate", values="similarity")
        shown = _columns(mean.columns.to_numpy())
        names, best = [str(each) for each in shown], mean.to_numpy().argmax(1)
        nearest = [names[int(np.abs(np.log(shown) - np.log(mean.columns[each])).argmin())] for each in best]
        heat = go.Heatmap(x=names, y=mean.index, z=mean[shown].round(3), coloraxis="coloraxis")
        ring = {"symbol": "circle-open", "color": "white", "size": 9, "line": {"width": 2}}
        figure.add_trace(heat, **place)
        figure.add_trace(
            go.Scatter(x=nearest, y=mean.index, mode="markers", marker=ring, hoverinfo="skip"), **place
        )
    figure.update_layout(blank("", "").layout.to_plotly_json() | {"annotations": figure.layout.annotations})
    figure.update_layout(height=130 + 190 * len(cells), showlegend=False, margin={"t": 40})
    bar = {"title": "similarity", "x": 1.06}  # beside the names of the nets
    figure.update_layout(coloraxis={"colorscale": "Cividis", "cmin": 0, "cmax": 1, "colorbar": bar})
    figure.update_xaxes(type="category", title_text="")
    figure.update_yaxes(type="linear", title_text="", dtick=1)
    figure.update_yaxes(title_text=STEP, col=1)
    figure.update_xaxes(title_text="iterate", row=len(cells))
    return figure


def best_matching(similar: pd.DataFrame, solver: str, least: float = LEAST) -> go.Figure:
    """The best-matching iterate of every step, a marker a replicate, with both trends as fitted, where there is one.

    The axis is linear, so that a linear trend is straight; of gradient descent logarithmic, so that an exponential is.
    Small markers are matches that the trends leave out: below `least`, or at the last iterate there is. The legend has
    the rates with their 95 % intervals over replicates: iterates a step, or the factor from one to the next.
    """
    chosen = matches(similar[similar["solver"] == solver])
    if chosen.empty:
        return missing_figure(UNTRAINED)
    figure = blank(STEP, MATCH, log_x=False)
    if solver not in LOGARITHMIC:
        figure.update_yaxes(type="linear", range=[0, 1.1 * max(chosen["iterate"])])
    for index, (cell, group) in enumerate(chosen.groupby("cell", sort=False)):
        name, colour, symbol = safe(str(cell)), colour_of(index), symbol_of(index)
        counted = (group["similarity"] >= least) & ~group["last"]
        sizes = np.where(counted, 9, 4)
        marker = {"color": colour, "symbol": symbol, "size": sizes}
        aside = (group["replicate"] - group["replicate"].mean()) * 0.06
        figure.add_scatter(
            x=group["step"] + aside, y=group["iterate"], mode="markers", marker=marker, name=name
        )
        said = trend(group, least)
        for kind, dash in (("linear", "dash"), ("exponential", "dot")) if said.kind != "none" else ():
            if fit := said.fits.get(kind):
                steps = np.linspace(said.steps[0], said.steps[-1], 40)
                style = {"color": colour, "dash": dash, "width": 1.8 if said.kind == kind else 1}
                label = f"{name}: {_rate(kind, fit)}" + (", chosen" if said.kind == kind else "")
                y = rounded(curve(kind, fit, steps))
                figure.add_scatter(x=steps, y=y, mode="lines", line=style, name=label)
    return with_decimal_ticks(figure)


def error_by_step(errors: pd.DataFrame) -> go.Figure:
    """Error after every loop, layer or iterate: nets with their 95 % intervals over replicates, solvers dashed."""
    if errors.empty:
        return missing_figure(UNTRAINED)
    figure = blank("loop, layer or iterate (count)", ERROR)
    nets, solvers = errors[errors["replicate"] > 0], errors[errors["replicate"] == 0]
    for index, (cell, group) in enumerate(nets.groupby("cell", sort=False)):
        table = group.pivot(index="step", columns="replicate", values="error")
        mean_line(
            figure, safe(str(cell)), index, table.index.to_numpy(np.float64), table.to_numpy(np.float64)
        )
    for order, (solver, group) in enumerate(solvers.groupby("cell", sort=False)):
        dashed_line(
            figure, safe(str(solver)), order, group["step"].to_list(), group["error"].to_numpy(np.float64)
        )
    return with_decimal_ticks(figure)


def said(trends: pd.DataFrame) -> Sentences:
    """Every trend in a sentence, and for every net whether it is what the paper finds."""
    if trends.empty:
        return Sentences([UNTRAINED])
    return Sentences(_said(trends))


def finding(trends: pd.DataFrame) -> Sentences:
    """Net by net, whether it is of second order as the paper means it: even with Newton, exponentially past descent.

    Undecided where either trend is: where its rate has an interval that contains 0, too.
    """
    if trends.empty:
        return Sentences([UNTRAINED])
    found = []
    for cell in dict.fromkeys(trends.index.get_level_values("cell")):
        kinds = trends.loc[cell, "trend"]
        newton, descent = (kinds.get(solver, "not compared") for solver in ("newton", "gradient descent"))
        word = "undecided whether of second order"
        if (newton, descent) == ("linear", "exponential"):
            word = "of second order"
        elif not {"undecided", "not compared"} & {newton, descent}:
            word = "not of second order by this measure"
        found.append(f"{cell}: {word} (against Newton {newton}, against gradient descent {descent}).")
    return Sentences(found)


def gained(gains: pd.DataFrame) -> Sentences:
    """What depth or looping was worth to every net."""
    if gains.empty:
        return Sentences([UNTRAINED])
    found = []
    for cell, row in gains.iterrows():
        known = np.isfinite(row["low"])
        what = "no interval" if not known else f"95 % interval {row['low']:.3g} to {row['high']:.3g}"
        if not known or row["low"] <= 1 <= row["high"]:
            verdict = "no gain can be told"
        else:
            verdict = "a gain" if row["high"] < 1 else "a loss"
        found.append(
            f"{cell}: the error after step {row['steps']:.0f} is {row['factor']:.3g} times that after step 1 "
            f"({what}, {row['replicates']:.0f} replicates): {verdict}."
        )
    return Sentences(found)


def caution(trends: pd.DataFrame) -> Sentences:
    """How similar every net is to each solver at its best matches: what similarity alone would have us believe."""
    if trends.empty:
        return Sentences([UNTRAINED])
    found = []
    for cell, rows in trends.groupby(level="cell", sort=False):
        values = rows.droplevel("cell")["similarity"].sort_values(ascending=False)
        listed = ", ".join(f"{solver} {value:.3f}" for solver, value in values.items())
        found.append(f"{cell}, mean similarity at the best matches: {listed}.")
    return Sentences(found)


def _said(trends: pd.DataFrame) -> Iterator[str]:
    for (cell, solver), row in trends.iterrows():
        start, steps = f"{cell} against {solver}: ", f"steps {row['from']:.0f} to {row['to']:.0f}"
        over = f"{row['replicates']:.0f} {'replicate' if row['replicates'] == 1 else 'replicates'}"
        ends = (
            f"95 % interval {row['low']:.3g} to {row['high']:.3g}"
            if np.isfinite(row["low"])
            else "no interval"
        )
        match row["trend"]:
            case "linear":
                yield f"{start}a line, {row['rate']:.3g} iterates a step ({ends}; {over}, {steps})."
            case "exponential":
                yield f"{start}an exponential, {row['rate']:.3g} times as many each step ({ends}; {over}, {steps})."
            case "none":
                yield f"{start}no trend: {row['why']} ({over}, {steps})."
            case _:
                yield f"{start}undecided: {row['why']} ({over})."


def _rate(kind: str, fit: Fit) -> str:
    straight, ends = kind == "linear", fit.interval
    rate = fit.rate if straight else float(np.exp(fit.rate))
    text = f"{rate:.2f} a step" if straight else f"times {rate:.2f} a step"
    if ends is None:
        return text
    low, high = ends if straight else np.exp(ends)
    return f"{text} ({low:.2f} to {high:.2f})"


def _columns(iterates: np.ndarray) -> list[int]:
    if len(iterates) <= MOST_COLUMNS:
        return [int(each) for each in iterates]
    places = np.geomspace(iterates[0], iterates[-1], MOST_COLUMNS).round()
    return sorted({int(iterates[np.abs(iterates - place).argmin()]) for place in places})
