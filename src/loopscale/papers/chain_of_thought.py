"""The error along a chain of thought, step by step [@gao2024, figure 2c]."""

from dataclasses import replace

import plotly.graph_objects as go

from loopscale.analysis.figures.curves import against_points
from loopscale.analysis.notebook import ready_figure
from loopscale.analysis.recorded.results import CellResult, Results, TrialResult


def against_chain_steps(results: Results, demonstrations: int | None = None) -> go.Figure:
    """Error at loop T at every step of the chain that follows this number of demonstrations; by default the last chain.

    A study without trials gives a figure that says so. Raises ValueError if the task has no chains, or if no chain
    follows this number of demonstrations.
    """
    if not results.everything:
        return ready_figure(go.Figure())
    cells = [cell_at_chain(cell, demonstrations) for cell in results.cells if cell.runs]
    figure = against_points(results, cells)
    figure.update_xaxes(title_text="step of the chain (count)", dtick=1)
    return ready_figure(figure)


def cell_at_chain(cell: CellResult, demonstrations: int | None = None) -> CellResult:
    """The cell with the curves of one chain. The points of a curve become the steps of the chain, 1 .. depth.

    Raises ValueError for the reasons of `against_chain_steps`.
    """

    def at_chain(trials: tuple[TrialResult, ...]) -> tuple[TrialResult, ...]:
        return tuple(_trial_at_chain(trial, demonstrations) for trial in trials)

    return replace(
        cell,
        tuning=at_chain(cell.tuning) if not cell.replicated else cell.tuning,
        replicates=at_chain(cell.replicates),
        _baselines=at_chain(cell.baselines),
    )


def _trial_at_chain(trial: TrialResult, demonstrations: int | None) -> TrialResult:
    if "task.depth" not in trial.settings:
        raise ValueError("this study has no chains of thought; the task needs a depth")
    depth, chains = int(trial.settings["task.depth"]), int(trial.settings["task.points"])
    wanted = chains - 1 if demonstrations is None else demonstrations
    if not 0 <= wanted < chains:
        raise ValueError(f"no chain follows {demonstrations} demonstrations; write 0 .. {chains - 1}")
    curve, copy = trial.curve, replace(trial)
    kept = curve.points // depth == wanted
    grids = {name: getattr(curve, name)[:, kept] for name in ("error", "sem", "raw", "median")}
    # `curve` is a cached property: the copy gets the curve of the chain in its place.
    copy.__dict__["curve"] = replace(curve, points=curve.points[kept] % depth + 1, **grids)
    return copy
