"""Trained nets beside the iterates of solvers, step by step [@fu2023, section 4].

A looped net answers through its own read-out, which was trained on many loops. The read-out of a net of fixed depth
knows the last layer alone. This net answers through a probe for every layer. The probes are trained afterwards, as in
the paper.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from numpy.typing import NDArray
from plotly.subplots import make_subplots
from torch import Tensor

from loopscale.analysis.figures.style import (
    ERROR_TITLE,
    blank,
    colour_of,
    dashed_line,
    mean_line,
    rounded,
    safe,
    symbol_of,
    with_decimal_ticks,
)
from loopscale.analysis.notebook import Sentences, StudyResults, missing_figure
from loopscale.analysis.table import Interval
from loopscale.analysis.trained_nets import TrainedNet
from loopscale.core.prompt import Batch, Predictor
from loopscale.core.seeds import stream
from loopscale.papers.best_matches import MatchTrend, TrendFit, fit_trend
from loopscale.papers.probing import Target, probe_errors, target_weights, with_probes
from loopscale.papers.similarity import least_squares_weights, sweep_inputs
from loopscale.solvers.base import Solver
from loopscale.stats.best_matches import LEAST_SIMILARITY, Matches, best_matches
from loopscale.stats.contrasts import Array, contrast_with_value
from loopscale.tasks.base import Task
from loopscale.training.similarity import mean_cosines, residuals

Iterates = Sequence[tuple[str | Mapping[str, Any], int]]
"""Solvers, each by its kind or as a study writes it, with the number of iterates."""
NO_NET = "No net of this study has been trained, so there is nothing to compare."


@dataclass(frozen=True, eq=False)
class NetSimilarity:
    """The similarity [steps, iterates] of one trained net with one solver. Replicates count from 1."""

    cell: str
    replicate: int
    solver: str
    values: Array

    @property
    def matches(self) -> Matches:
        """The best-matching iterate of every step."""
        return best_matches(self.values)


@dataclass(frozen=True, eq=False)
class StepErrors:
    """The error after every step [steps] of one net, or of a solver, whose `replicate` is 0."""

    name: str
    replicate: int
    errors: Array


@dataclass(frozen=True)
class NetTrend:
    """The growth of a net's best-matching iterates of one solver, over replicates."""

    cell: str
    solver: str
    trend: MatchTrend
    similarity: float
    """The similarity at the best matches, the mean over steps and replicates."""

    @property
    def rate(self) -> float | None:
        """Iterates per step of a linear trend, the factor per step of an exponential one; else None."""
        return self._in_units(self.trend.fit.rate) if self.trend.fit else None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the rate over replicates (Student's t); None for fewer than two."""
        ends = self.trend.fit.interval if self.trend.fit else None
        return Interval(*map(self._in_units, ends)) if ends else None

    @property
    def sentence(self) -> str:
        trend = self.trend
        subject, steps = f"{self.cell} against {self.solver}", f"steps {trend.span[0]} to {trend.span[1]}"
        count = f"{trend.replicates} {'replicate' if trend.replicates == 1 else 'replicates'}"
        if self.rate is None:
            span = f"{count}, {steps}" if trend.kind == "none" else count
            return f"{subject}: {'no trend' if trend.kind == 'none' else 'undecided'}, because {trend.why} ({span})."
        linear = trend.kind == "linear"
        rate = f"along a line, by {self.rate:.3g} iterates" if linear else f"{self.rate:.3g}-fold"
        evidence = f"{_interval_words(self.interval)}; {count}, {steps}"
        return f"{subject}: the best match grows {rate} per step ({evidence})."

    def _in_units(self, rate: float) -> float:
        return float(np.exp(rate)) if self.trend.kind == "exponential" else rate


@dataclass(frozen=True)
class Gain:
    """The error of a cell after its last step over the error after its first step."""

    cell: str
    factor: float
    """The ratio of the errors (geometric mean over replicates)."""
    interval: Interval | None
    """The 95 % interval of `factor`; None for fewer than two replicates."""
    steps: int
    replicates: int

    @property
    def sentence(self) -> str:
        verdict = "no gain is decided"
        if self.interval and not self.interval.low <= 1 <= self.interval.high:
            verdict = "a gain" if self.interval.high < 1 else "a loss"
        return (
            f"{self.cell}: the error after step {self.steps} is {self.factor:.3g} times the error after step 1 "
            f"({_interval_words(self.interval)}, {self.replicates} replicates): {verdict}."
        )


def similarities(
    results: StudyResults, solvers: Iterates, of: str = "errors", prompts: int = 256
) -> list[NetSimilarity]:
    """The similarity of every trained net with every solver; empty for a study without trained nets.

    Parameters
    ----------
    of
        `errors`, compared on `prompts` fresh prompts, or induced `weights`, on an eighth as many problems. A problem is
        posed at random inputs after all of its pairs but the last.

    Raises
    ------
    ValueError, StoreError
        For another `of`; if the weights of the nets are missing.
    """
    if of not in ("errors", "weights"):
        raise ValueError(f"no similarity of {of}; write errors or weights")
    rows, of_solver = list[NetSimilarity](), dict[tuple[str, str], Tensor]()
    for cell, replicate, net in _nets(results):
        task = net.trial.task
        of_net = _vectors(_predictor(net), task, of, prompts, net.trial.steps_per_prompt)
        for solver, iterates in _solvers(solvers):
            key = (solver.model_dump_json(), task.model_dump_json())
            if key not in of_solver:
                of_solver[key] = _vectors(solver, task, of, prompts, iterates)
            values = mean_cosines(of_net, of_solver[key]).numpy()
            rows.append(NetSimilarity(cell, replicate, _name(solver), values))
    return rows


def step_errors(results: StudyResults, solvers: Iterates, prompts: int = 1024) -> list[StepErrors]:
    """The mean error over all queries after every step, of nets and solvers on the same fresh prompts.

    Over the target's variance, so that predicting nothing costs 1.
    """
    rows, tasks = list[StepErrors](), dict[str, Task]()
    for cell, replicate, net in _nets(results):
        task = tasks.setdefault(net.trial.task.model_dump_json(), net.trial.task)
        errors = _errors(_predictor(net), task, prompts, net.trial.steps_per_prompt)
        rows.append(StepErrors(cell, replicate, errors))
    for task in tasks.values():
        for solver, iterates in _solvers(solvers):
            rows.append(StepErrors(_name(solver), 0, _errors(solver, task, prompts, iterates)))
    return rows


def state_errors(
    results: StudyResults, target: Target = target_weights, prompts: int = 512
) -> list[StepErrors]:
    """The errors with which linear probes read a target from the states after every step, on held-out prompts.

    Over the target's mean square, so that a probe that reads nothing costs 1. By default the target is the weights of
    least squares on the pairs seen.
    """
    rows = list[StepErrors]()
    for cell, replicate, net in _nets(results):
        errors = probe_errors(net.net, net.trial.task, target, net.trial.steps_per_prompt, prompts)
        rows.append(StepErrors(cell, replicate, errors))
    return rows


def trends(similar: Sequence[NetSimilarity], least: float = LEAST_SIMILARITY) -> list[NetTrend]:
    """The trend of every cell and solver. A step counts from the similarity `least` on."""
    rows = []
    for cell, solver in dict.fromkeys((row.cell, row.solver) for row in similar):
        matches = [row.matches for row in similar if (row.cell, row.solver) == (cell, solver)]
        mean = float(np.concatenate([found.similarity for found in matches]).mean())
        rows.append(NetTrend(cell, solver, fit_trend(matches, least), mean))
    return rows


def gains(errors: Sequence[StepErrors]) -> list[Gain]:
    """What the steps of every net gain. Solvers are left out."""
    rows = []
    for cell in dict.fromkeys(row.name for row in errors if row.replicate):
        curves = [row.errors for row in errors if row.name == cell]
        logs = np.log([[curve[-1] / curve[0] for curve in curves]])
        compared = contrast_with_value(logs, 0, 1.0)
        interval = Interval(*compared.ratio()[1:]) if compared else None
        rows.append(Gain(cell, float(np.exp(logs.mean())), interval, len(curves[0]), len(curves)))
    return rows


def trend_sentences(rows: Sequence[NetTrend]) -> Sentences:
    """Every trend in a sentence."""
    return Sentences([row.sentence for row in rows] or [NO_NET])


def second_order_sentences(rows: Sequence[NetTrend]) -> Sentences:
    """For every net, whether it is of second order as the paper means it.

    A net is of second order if its matches grow along a line for Newton and exponentially for gradient descent. If one
    of the two trends is undecided, the answer is undecided.
    """
    sentences = []
    for cell in dict.fromkeys(row.cell for row in rows):
        kinds = {row.solver: row.trend.kind for row in rows if row.cell == cell}
        newton, descent = (kinds.get(solver, "not compared") for solver in ("newton", "gradient descent"))
        verdict = "undecided whether of second order"
        if (newton, descent) == ("linear", "exponential"):
            verdict = "of second order"
        elif not {"undecided", "not compared"} & {newton, descent}:
            verdict = "not of second order by this measure"
        sentences.append(f"{cell}: {verdict} (against Newton {newton}, against gradient descent {descent}).")
    return Sentences(sentences or [NO_NET])


def gain_sentences(rows: Sequence[Gain]) -> Sentences:
    """What depth or looping gains in every net."""
    return Sentences([row.sentence for row in rows] or [NO_NET])


def similarity_sentences(rows: Sequence[NetTrend]) -> Sentences:
    """How similar every net is to each solver at its best matches."""
    sentences = []
    for cell in dict.fromkeys(row.cell for row in rows):
        ordered = sorted((row for row in rows if row.cell == cell), key=lambda row: -row.similarity)
        listed = ", ".join(f"{row.solver} {row.similarity:.3f}" for row in ordered)
        sentences.append(f"{cell}, mean similarity at the best matches: {listed}.")
    return Sentences(sentences or [NO_NET])


def _interval_words(interval: Interval | None) -> str:
    return f"95 % interval {interval.low:.3g} to {interval.high:.3g}" if interval else "no interval"


def _nets(results: StudyResults) -> Iterator[tuple[str, int, TrainedNet]]:
    """The label of the cell, the number of the replicate, and the net; a tuned net if a cell has no replicates."""
    for cell in results.cells if not results.missing else ():
        for replicate, net in enumerate(results.nets(cell.key), 1):
            yield cell.label, replicate, net


def _solvers(solvers: Iterates) -> Iterator[tuple[Solver, int]]:
    for settings, iterates in solvers:
        yield Solver.model_validate({"kind": settings} if isinstance(settings, str) else settings), iterates


def _name(solver: Solver) -> str:
    return solver.kind.replace("_", " ")


def _predictor(net: TrainedNet) -> Predictor:
    if net.net.depth is None:
        return net.net
    return with_probes(net.net, net.trial.task, net.trial.steps_per_prompt)


def _vectors(predictor: Predictor, task: Task, of: str, prompts: int, steps: int) -> Tensor:
    if of == "errors":
        return residuals(predictor, _prompts(task, prompts), steps)
    sweep = sweep_inputs(task, stream("induced weights"), max(1, prompts // 8))
    return least_squares_weights(predictor, sweep, steps)


@torch.no_grad()
def _errors(predictor: Predictor, task: Task, prompts: int, steps: int) -> Array:
    square = residuals(predictor, _prompts(task, prompts), steps).square().mean((1, 2))
    return (square / task.variance).numpy()


def _prompts(task: Task, prompts: int) -> Batch:
    return task.sample(prompts, stream("second order"))


MOST_COLUMNS = 20
"""The largest number of columns of a heat map. Of more iterates, this number is shown, evenly on a logarithmic
scale."""
LOGARITHMIC = ("gradient descent",)
"""Solvers whose best match grows exponentially in the paper. On a logarithmic axis such growth is a straight line."""
STEP = "loop or layer (count)"


def heat_maps(similar: Sequence[NetSimilarity]) -> go.Figure:
    """The similarity of every step with every iterate, mean over replicates. A ring marks each step's best match."""
    if not similar:
        return missing_figure(NO_NET)
    panels = dict[tuple[str, str], list[NetSimilarity]]()
    for pair in similar:
        panels.setdefault((pair.cell, pair.solver), []).append(pair)
    cells, solvers = (list(dict.fromkeys(key[part] for key in panels)) for part in (0, 1))
    figure = make_subplots(
        len(cells),
        len(solvers),
        column_titles=[safe(solver) for solver in solvers],
        row_titles=[safe(cell) for cell in cells],
        vertical_spacing=0.3 / len(cells),
    )
    ring = {"symbol": "circle-open", "color": "white", "size": 9, "line": {"width": 2}}
    for (cell, solver), replicates in panels.items():
        row, column = cells.index(cell) + 1, solvers.index(solver) + 1
        mean = np.mean([pair.values for pair in replicates], axis=0)
        steps, columns = np.arange(1, len(mean) + 1), _columns(mean.shape[1])
        labels = [str(iterate) for iterate in columns]
        distance = np.abs(np.log(columns) - np.log(mean.argmax(1) + 1)[:, None])
        nearest = [labels[index] for index in distance.argmin(1)]
        shown = mean[:, columns - 1].round(3)
        figure.add_trace(go.Heatmap(x=labels, y=steps, z=shown, coloraxis="coloraxis"), row, column)
        rings = go.Scatter(x=nearest, y=steps, mode="markers", marker=ring, hoverinfo="skip")
        figure.add_trace(rings, row, column)
    figure.update_layout(blank("", "").layout.to_plotly_json() | {"annotations": figure.layout.annotations})
    figure.update_layout(height=130 + 190 * len(cells), showlegend=False, margin={"t": 40})
    bar = {"title": "similarity", "x": 1.06}  # beside the names of the nets
    figure.update_layout(coloraxis={"colorscale": "Cividis", "cmin": 0, "cmax": 1, "colorbar": bar})
    figure.update_xaxes(type="category", title_text="")
    figure.update_yaxes(type="linear", title_text="", dtick=1)
    figure.update_yaxes(title_text=STEP, col=1)
    figure.update_xaxes(title_text="iterate", row=len(cells))
    return figure


def best_matches_figure(
    similar: Sequence[NetSimilarity], solver: str, least: float = LEAST_SIMILARITY
) -> go.Figure:
    """The best-matching iterate of every step, with a marker for every replicate and both fitted trends.

    The axis is linear, so that a linear trend is straight. For gradient descent the axis is logarithmic, so that an
    exponential trend is straight. Small markers are matches that the trends leave out: below `least`, or at the last
    iterate. The legend gives the rates with their 95 % intervals over replicates.
    """
    rows = [row for row in similar if row.solver == solver]
    if not rows:
        return missing_figure(NO_NET)
    figure = blank(STEP, "best-matching iterate (count)", log_x=False)
    if solver not in LOGARITHMIC:
        highest = max(int(row.matches.iterates.max()) for row in rows)
        figure.update_yaxes(type="linear", range=[0, 1.1 * highest])
    for index, cell in enumerate(dict.fromkeys(row.cell for row in rows)):
        replicates = [row for row in rows if row.cell == cell]
        matches = [row.matches for row in replicates]
        name, colour = safe(cell), colour_of(index)
        middle = float(np.mean([row.replicate for row in replicates]))
        offsets = [(row.replicate - middle) * 0.06 for row in replicates]
        sizes = np.concatenate([np.where(found.clear(least), 9, 4) for found in matches])
        figure.add_scatter(
            x=np.concatenate([found.steps + offset for found, offset in zip(matches, offsets, strict=True)]),
            y=np.concatenate([found.iterates for found in matches]),
            mode="markers",
            marker={"color": colour, "symbol": symbol_of(index), "size": sizes},
            name=name,
        )
        trend = fit_trend(matches, least)
        for kind, dash in (("linear", "dash"), ("exponential", "dot")):
            fit = trend.fits.get(kind)
            if fit is None or trend.kind == "none":
                continue
            chosen = trend.kind == kind
            steps = np.linspace(trend.steps[0], trend.steps[-1], 40)
            style = {"color": colour, "dash": dash, "width": 1.8 if chosen else 1}
            label = f"{name}: {_rate_label(fit)}{', chosen' if chosen else ''}"
            figure.add_scatter(x=steps, y=rounded(fit.iterates(steps)), mode="lines", line=style, name=label)
    return with_decimal_ticks(figure)


def error_by_step(errors: Sequence[StepErrors]) -> go.Figure:
    """Error after every loop, layer or iterate: nets with their 95 % intervals over replicates, solvers dashed."""
    if not errors:
        return missing_figure(NO_NET)
    figure = blank("loop, layer or iterate (count)", ERROR_TITLE)
    for index, cell in enumerate(dict.fromkeys(row.name for row in errors if row.replicate)):
        curves = np.stack([row.errors for row in errors if row.name == cell and row.replicate], axis=1)
        mean_line(figure, safe(cell), index, np.arange(1.0, len(curves) + 1), curves)
    for order, row in enumerate(row for row in errors if not row.replicate):
        dashed_line(figure, safe(row.name), order, range(1, len(row.errors) + 1), row.errors)
    return with_decimal_ticks(figure)


def _rate_label(fit: TrendFit) -> str:
    linear = fit.form == "linear"
    rate, *ends = (value if linear else np.exp(value) for value in (fit.rate, *(fit.interval or ())))
    text = f"{rate:.2f} a step" if linear else f"times {rate:.2f} a step"
    return f"{text} ({ends[0]:.2f} to {ends[1]:.2f})" if ends else text


def _columns(iterates: int) -> NDArray[np.int64]:
    """The iterates that a heat map shows."""
    if iterates <= MOST_COLUMNS:
        return np.arange(1, iterates + 1)
    return np.unique(np.geomspace(1, iterates, MOST_COLUMNS).round().astype(np.int64))
