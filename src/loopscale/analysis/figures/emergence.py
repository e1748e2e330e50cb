"""The share of runs on the plateau by training step, without a model (Turnbull): censored runs count."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from typing_extensions import override

from loopscale.analysis.figures.base import Drawing, Figure, Reported
from loopscale.analysis.figures.style import blank, colour_of, safe, scatter, symbol_of
from loopscale.analysis.recorded.learning import emergences
from loopscale.analysis.recorded.results import Results, TrialResult, plain
from loopscale.stats.survival import survival_curve


def on_plateau(results: Results, path: str | None = None) -> go.Figure:
    """The share of runs on the plateau, by training step.

    Parameters
    ----------
    path
        The setting by whose values runs are pooled, such as `training.loops`. By default each cell has a line.
    """
    figure = blank("training step (count)", "share of runs on the plateau", log_x=False)
    figure.update_yaxes(type="linear", range=[-0.03, 1.03])
    for place, (name, runs) in enumerate(_groups(results, path).items()):
        _line(figure, place, name, runs)
    return figure


def _groups(results: Results, path: str | None) -> dict[str, list[TrialResult]]:
    groups: dict[str, list[TrialResult]] = {}
    for cell in results.answered:
        name = cell.name if path is None else f"{path.rpartition('.')[2]} = {plain(cell.values.get(path))}"
        groups.setdefault(name or "runs", []).extend(cell.runs)
    return groups


def _line(figure: go.Figure, place: int, name: str, runs: Sequence[TrialResult]) -> None:
    """A falling staircase. A run emerges between two reports, and the line falls at the later report."""
    known = [left for left in emergences(runs) if left]
    if not known:
        return
    after, by = (np.array([getattr(left, end) for left in known]) for end in ("after", "by"))
    by = np.maximum(by, after + 1)  # a run that has emerged at its first report has no interval
    curve = survival_curve(after, by)
    last = max(float(run.history()[0][-1]) for run in runs if len(run.history()[0]))
    left = [1.0, *curve.share.tolist()]
    emerged = int(np.isfinite(by).sum())
    scatter(
        figure,
        x=[0.0, *curve.by.tolist(), last],
        y=[*left, left[-1]],
        mode="lines+markers",
        marker={"size": 7, "color": colour_of(place), "symbol": symbol_of(place)},
        legendgroup=name,
        name=f"{safe(name)} ({emerged} of {len(known)} emerged)",
        line={"color": colour_of(place), "width": 2.4, "shape": "hv"},
        hovertemplate="step %{x:,}: %{y:.0%} on the plateau<extra></extra>",
    )


class Emergence(Figure, kind="emergence"):
    """The share of runs on the plateau."""

    place = 900

    @override
    def draw(self, study: Reported, part: Results) -> Drawing | None:
        if not part.learnt.of:
            return None
        text = (
            "The share of runs that have not left the plateau before in-context learning: more than half of the"
            " reducible error is left. A run emerges at the first of two consecutive validations below this half. Runs"
            " that never emerge count (Turnbull's estimate)."
        )
        return Drawing("Emergence", text, on_plateau(part))
