"""Figures of what was tuned: slices, parallel coordinates, importance. Tables in, plotly out.

Plotly has parallel coordinates of its own, but not in its basic bundle, which a report carries: here they are lines.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis.answers.importance import Importance
from loopscale.analysis.figures.style import ERROR, SYMBOLS, blank, colour_of, rounded, safe, symbol_of
from loopscale.analysis.tables import StudyTable, finished, numbers, plain

WORST = ("diverged", "out_of_memory")
FIFTHS = ("#00204D", "#31446B", "#666970", "#958F78", "#CBBA69")
"""From the best fifth of trials to the worst: Cividis (Nunez, Anderton, Renslow 2018), read by all eyes."""
NAMES = ("best fifth", "second fifth", "third fifth", "fourth fifth", "worst fifth")


def tuned(study: StudyTable, trials: pd.DataFrame) -> list[str]:
    """The settings that differ between tuning trials of one cell, numbers and words alike."""
    cells = [cell["key"] for cell in study["cells"]]
    rows = trials[(trials["role"] == "tuning") & trials["cell"].isin(cells)]
    named = study.get("nuisance") or {}
    paths = [path for path in rows.columns if "." in str(path) and (not named or path in named)]
    return [str(path) for path in paths if (rows.groupby("cell")[path].nunique() > 1).any()]


def tuning_slice(study: StudyTable, trials: pd.DataFrame, setting: str) -> go.Figure:
    """The error that each tried value of a setting gave, by cell; crosses at the top diverged or ran out of memory."""
    words = not np.isfinite(numbers(trials[setting].dropna())).all()
    figure = blank(setting, ERROR, log_x=not words and _log(study, setting))
    highest = max((float(numbers(finished(trials, "tuning")["error"]).max(initial=0.0)), 1e-12))
    for index, cell in enumerate(study["cells"]):
        rows = finished(trials, "tuning", cell["key"]).dropna(subset=[setting])
        marker = {"size": 9, "color": colour_of(index), "symbol": symbol_of(index)}
        figure.add_scatter(
            x=[str(plain(value)) for value in rows[setting]] if words else numbers(rows[setting]),
            y=rounded(numbers(rows["error"])),
            mode="markers",
            name=safe(cell["label"]) or "trials",
            legendgroup=cell["key"],
            marker=marker,
        )
        bad = trials[(trials["cell"] == cell["key"]) & (trials["role"] == "tuning")]
        bad = bad[bad["outcome"].isin(WORST)].dropna(subset=[setting])
        if len(bad):
            figure.add_scatter(
                x=[str(plain(value)) for value in bad[setting]] if words else numbers(bad[setting]),
                y=[highest * 2] * len(bad),
                mode="markers",
                showlegend=False,
                legendgroup=cell["key"],
                marker={
                    "size": 10,
                    "color": colour_of(index),
                    "symbol": "x-thin-open",
                    "line": {"width": 2},
                },
                text=[str(outcome).replace("_", " ") for outcome in bad["outcome"]],
                hovertemplate="%{x}: %{text}<extra></extra>",
            )
    if words:
        figure.update_xaxes(type="category")
    return figure


def parallel(study: StudyTable, trials: pd.DataFrame, cell: str, settings: Sequence[str]) -> go.Figure:
    """One line a finished tuning trial, through its value of every setting to its error; the best fifth is darkest."""
    rows = finished(trials, "tuning", cell)
    settings = [path for path in settings if path in rows and rows[path].nunique() > 1]
    figure = blank("", "", log_x=False)
    figure.update_yaxes(type="linear", visible=False, range=[-0.08, 1.06], fixedrange=True)
    scales = [_Scale(rows[path], _log(study, path)) for path in settings]
    scales.append(_Scale(rows["error"], True))
    names = [*settings, "error"]
    places = np.column_stack([scale.places for scale in scales]) if len(rows) else np.empty((0, len(scales)))
    order = np.argsort(np.argsort(numbers(rows["error"]), kind="stable"), kind="stable")
    fifth = np.minimum(5 * order // max(len(rows), 1), 4)
    for part in range(4, -1, -1):  # the best last, and so on top
        lines = [
            (list(range(len(names))), row, number)
            for number, row in enumerate(places)
            if fifth[number] == part
        ]
        if lines:
            figure.add_scatter(
                x=[x for xs, _, _ in lines for x in [*xs, None]],
                y=[y for _, ys, _ in lines for y in [*rounded(ys), None]],
                text=[
                    text
                    for *_, number in lines
                    for text in [*(scale.shown[number] for scale in scales), None]
                ],
                mode="lines+markers",
                name=NAMES[part],
                line={"color": FIFTHS[part], "width": 2.6 - 0.35 * part},
                marker={"size": 6, "symbol": SYMBOLS[part]},
                hovertemplate="%{text}<extra></extra>",
            )
    figure.update_layout(legend_traceorder="reversed")
    for place, scale in enumerate(scales):
        figure.add_shape(
            type="line", x0=place, x1=place, y0=0, y1=1, line={"color": "#667085", "width": 1}, layer="below"
        )
        for height, text in scale.ticks:
            figure.add_annotation(
                x=place, y=height, text=safe(text), showarrow=False, xshift=8, xanchor="left", font_size=11,
                bgcolor="rgba(255,255,255,0.75)",
            )  # fmt: skip
    shown = [safe(name.rpartition(".")[2]) for name in names]
    figure.update_xaxes(
        tickvals=list(range(len(names))), ticktext=shown, range=[-0.15, len(names) - 0.6], fixedrange=True,
        showgrid=False,
    )  # fmt: skip
    return figure


def importances(found: Sequence[Importance]) -> go.Figure:
    """The share of what told better from other trials that each setting has, a mark a cell."""
    figure = blank("share of importance", "", log_x=False)
    kept = [one for one in found if one.shares]
    for index, one in enumerate(kept):
        marker = {
            "size": 11,
            "color": colour_of(index),
            "symbol": symbol_of(index) + ("" if one.reliable else "-open"),
        }
        figure.add_scatter(
            x=rounded(one.shares.values()),
            y=[safe(path) for path in one.shares],
            mode="markers",
            marker=marker,
            name=(safe(one.label) or "trials") + ("" if one.reliable else " (unreliable)"),
        )
    figure.update_xaxes(range=[0, 1.02])
    figure.update_yaxes(type="category", automargin=True)
    figure.update_layout(height=200 + 45 * len({path for one in kept for path in one.shares}))
    return figure


class _Scale:
    """Where the values of one setting lie between 0 and 1, and what is written beside the axis."""

    def __init__(self, values: pd.Series, log: bool) -> None:
        found = numbers(values)
        self.shown: list[str] = [_shown(value) for value in values]
        if np.isfinite(found).all() and len(found):
            log = log and found.min() > 0
            scaled = np.log(found) if log else found
            low, high = float(scaled.min()), float(scaled.max())
            self.places = (scaled - low) / (high - low) if high > low else np.full(len(found), 0.5)
            ends = np.linspace(low, high, 3) if high > low else np.array([low])
            texts = [_shown(float(np.exp(end) if log else end)) for end in ends]
            self.ticks = list(zip(np.linspace(0, 1, 3) if high > low else [0.5], texts, strict=True))
        else:
            words = sorted(set(self.shown))
            step = {word: n / max(len(words) - 1, 1) for n, word in enumerate(words)}
            self.places = np.array([step[word] for word in self.shown])
            self.ticks = [(step[word], word) for word in words]


def _shown(value: Any) -> str:
    value = plain(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _log(study: StudyTable, setting: str) -> bool:
    """As the study searches it; on a logarithmic axis where it does not say."""
    axis: Mapping[str, Any] = (study.get("nuisance") or {}).get(setting) or {"scale": "log"}
    return axis.get("scale") == "log"
