"""Theorems as tables and figures: the values of bounds, and the distance of constructions from their algorithms."""

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import torch

from loopscale.analysis.figures.style import DASHES, MUTED, blank, safe, series, with_decimal_ticks
from loopscale.analysis.table import Sentences, StyledTable
from loopscale.core.bibliography import bibliography, cited_keys, spell_citations
from loopscale.evaluate import Evaluation, evaluate
from loopscale.solvers.base import Solver
from loopscale.stats.contrasts import Array
from loopscale.tasks.base import Task
from loopscale.theory.bounds.base import Bound
from loopscale.theory.constructions.base import Construction
from loopscale.theory.constructions.example import Limit, Stated
from loopscale.theory.constructions.verification import (
    EXACT_DIFFERENCE,
    MeasuredOrder,
    approach,
    distances,
    order,
)

LEAST_ERROR = 1e-18
"""Figures show this value for a distance of 0, and a gap for a bound below it."""

Named = str | Mapping[str, Any]
"""A member of a family as a study writes it: its kind, or `{kind: .., setting: ..}`."""


@dataclass(frozen=True)
class StepDistance:
    """The typical (geometric mean) and the largest distance over prompts after a step."""

    step: int
    typical: float
    largest: float


@dataclass(frozen=True, eq=False)
class LimitDistances:
    """The largest distance at each value of the limit's setting, [values, prompts], and the order measured there."""

    limit: Limit
    distances: Array
    order: MeasuredOrder

    @property
    def typical(self) -> Array:
        """The geometric mean over prompts, [values]."""
        return np.exp(np.log(self.distances).mean(1))

    def to_dict(self) -> dict[str, Any]:
        setting = self.limit.setting
        rows = zip(self.limit.values, self.typical.tolist(), strict=True)
        return {
            "setting": setting,
            "expected": self.limit.order,
            "measured": self.order.value,
            "interval": [self.order.low, self.order.high],
            "values": [{setting: value, "distance": distance} for value, distance in rows],
        }


@dataclass(frozen=True)
class Verification:
    """A construction that ran on random problems."""

    construction: Construction
    stated: Stated
    """The statement of the construction's source."""
    net: Mapping[str, Any]
    """The settings of the construction's net."""
    prompts: int
    """The number of random problems."""
    tokens: int
    """The number of tokens of a problem."""
    dim_in: int
    """The dimension of the inputs of a problem."""
    steps: Sequence[StepDistance]
    limit: LimitDistances | None
    """None for a theorem that holds exactly."""
    holds: bool
    """True if the net is exact, or if the measured order agrees with the derived order."""

    @property
    def largest(self) -> float:
        """The largest distance after any step."""
        return max(step.largest for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        return {
            "construction": self.construction.kind,
            "algorithm": self.construction.algorithm,
            "source": self.construction.spelled_source(),
            "stated": vars(self.stated),
            "settings": self.construction.model_dump(),
            "net": self.net,
            "prompts": self.prompts,
            "tokens": self.tokens,
            "dim_in": self.dim_in,
            "steps": [vars(step) for step in self.steps],
            "limit": self.limit.to_dict() if self.limit else None,
            "holds": self.holds,
        }


def verify(construction: Construction, seed: int = 0) -> Verification:
    """Run a construction on random problems, and check its theorem there; see `loopscale verify`.

    Raises ValueError for settings that do not fit together.
    """
    example, limit = construction.example(torch.Generator().manual_seed(seed)), construction.limit
    steps = [
        StepDistance(step, prompts.log().mean().exp().item(), prompts.max().item())
        for step, prompts in enumerate(distances(construction, example), 1)
        if not prompts.isnan().any()
    ]
    near, holds = None, all(step.largest <= EXACT_DIFFERENCE for step in steps)
    if limit:
        at_values = approach(construction, limit, seed)
        near = LimitDistances(limit, at_values, order(limit, at_values))
        holds = near.order.agrees(limit)
    prompt = example.prompt
    net, size = construction.model(prompt).model_dump(), (len(example.tokens), prompt.length, prompt.dim_in)
    return Verification(construction, construction.stated(prompt), net, *size, steps, near, holds)


def bounds_table(*papers: str) -> pd.DataFrame:
    """Every bound whose source names one of the papers, by default all: its quantity, its claim and its source.

    A paper is given by its authors as in the sources, or by a part of its title.
    """
    chosen = [
        bound
        for bound in Bound.choices().values()
        if not papers or any(paper in _source_with_titles(bound) for paper in papers)
    ]
    rows = [
        (bound.kind, bound.of, bound.claim, _first_line(bound), bound.spelled_source()) for bound in chosen
    ]
    return StyledTable(
        pd.DataFrame(rows, columns=["bound", "of", "claim", "says", "source"]).set_index("bound")
    )


def verification_table(*constructions: Named, seed: int = 0) -> pd.DataFrame:
    """One row for each construction: its largest distance from the algorithm, and the outcome of its theorem."""
    rows = []
    for named in constructions:
        verified = verify(_member(Construction, named), seed)
        near, exact = verified.limit, "exact" if verified.holds else "not exact"
        expected = f"order {near.limit.order:g} in {near.limit.setting}" if near else "exact"
        measured = f"order {near.order.value:.2f}" if near else exact
        about = verified.construction
        row = (_label(named), about.algorithm, expected, measured)
        rows.append((*row, verified.largest, verified.holds, about.spelled_source()))
    columns = ["construction", "runs", "expected", "measured", "largest distance", "holds", "source"]
    return StyledTable(pd.DataFrame(rows, columns=columns).set_index("construction"))


def answer(seed: int = 0) -> Sentences:
    """How many constructions run their algorithm, with their default settings. One sentence, in about a minute."""
    verified = [verify(_member(Construction, kind), seed) for kind in Construction.choices()]
    exact = sum(each.holds and each.limit is None for each in verified)
    in_limit = sum(each.holds and each.limit is not None for each in verified)
    return Sentences(
        [
            f"The weights of {exact + in_limit} of {len(verified)} constructions run their algorithm: {exact} exactly, "
            f"and {in_limit} in a limit, with the derived order."
        ]
    )


def bounds_along(
    setting: str,
    values: Sequence[int | float],
    bounds: Iterable[Named],
    name: str = "",
    log_x: bool = True,
    **shared: Any,
) -> go.Figure:
    """Bounds against one of their settings; `shared` are settings for all bounds that have them.

    A line has a gap where its bound does not hold, and where the bound is 0 or below the precision of float64. Raises
    ValueError for a bound that holds nowhere.
    """
    chosen = [(_label(named), _member(Bound, named, shared)) for named in bounds]
    figure = blank(name or setting, " or ".join(dict.fromkeys(bound.of for _, bound in chosen)), log_x)
    for index, (label, bound) in enumerate(chosen):
        y = np.array([_value(bound, setting, value) for value in values])
        if np.isnan(y).all():
            bound.at(**{setting: values[0]}).value()  # raises with the reason
        y[y < LEAST_ERROR] = math.nan
        mode = "lines+markers" if len(values) < 40 else "lines"
        series(figure, index, values, y, safe(label), mode, size=6, width=2.2)
    return with_decimal_ticks(figure)


def excess_risks(
    task: Named, pairs: Iterable[tuple[Named, Named]], steps: int = 1, prompts: int = 2048
) -> go.Figure:
    """Excess risks of solvers by pairs seen: measured (markers) on the bounds that give them exactly (lines).

    Parameters
    ----------
    pairs
        Each solver with its bound.
    """
    figure = blank("pairs seen before the query (count)", "excess risk (target's units²)", log_x=False)
    posed = _member(Task, task)
    trial = {f"task.{name}": value for name, value in posed.model_dump().items() if name != "kind"}
    for index, (solver, bound) in enumerate(pairs):
        curve = evaluate(_member(Solver, solver), posed, Evaluation(loops=steps, prompts=prompts))
        x = np.array(posed.seen)
        settings = {"kind": bound} if isinstance(bound, str) else dict(bound)
        exact = Bound.fill(settings.pop("kind"), settings, trial)
        y = np.array([_value(exact, "point", int(point)) for point in x])
        series(figure, index, x, y, f"{exact.kind}, exact", "lines", width=1.6)
        series(figure, index, x, curve.raw[-1] - posed.noise_variance, safe(_label(solver)), size=7)
    return with_decimal_ticks(figure)


def distance_by_step(*constructions: Named, seed: int = 0) -> go.Figure:
    """The distance of each net from its algorithm after every step; `LEAST_ERROR` stands for no distance."""
    figure = blank("step of the algorithm (count)", "largest distance from the algorithm", log_x=False)
    for index, named in enumerate(constructions):
        steps = verify(_member(Construction, named), seed).steps
        x, y = [step.step for step in steps], [max(step.largest, LEAST_ERROR) for step in steps]
        series(figure, index, x, y, safe(_label(named)), "lines+markers", size=7)
    return with_decimal_ticks(figure)


def distance_near_limit(*constructions: Named, seed: int = 0) -> go.Figure:
    """The distance from the algorithm near the limit, and a line of the order that is derived for it.

    Raises ValueError for a construction without a limit.
    """
    near = list[tuple[str, LimitDistances]]()
    for named in constructions:
        limit = verify(_member(Construction, named), seed).limit
        if limit is None:
            raise ValueError(f"{_label(named)} holds exactly, without a limit")
        near.append((_label(named), limit))
    settings = dict.fromkeys(distances.limit.setting for _, distances in near)
    figure = blank(" or ".join(settings), "distance from the algorithm")
    for index, (label, measured) in enumerate(near):
        x, y = np.array(measured.limit.values, dtype=np.float64), measured.typical
        series(figure, index, x, y, safe(label))
        power = measured.limit.order * np.sign(np.log(y[-1] / y[0]) * np.log(x[-1] / x[0]))
        style = {"color": MUTED[index % 5], "dash": DASHES[index % 5], "width": 1.5}
        expected = y[-1] * (x / x[-1]) ** power
        figure.add_scatter(x=x, y=expected, mode="lines", line=style, name=f"order {measured.limit.order:g}")
    return with_decimal_ticks(figure)


def _member(family: Any, named: Named, shared: Mapping[str, Any] | None = None) -> Any:
    settings = {"kind": named} if isinstance(named, str) else dict(named)
    fields = family.choices()[settings["kind"]].model_fields
    taken = {name: value for name, value in (shared or {}).items() if name in fields}
    return family.model_validate(taken | settings)


def _label(named: Named) -> str:
    if isinstance(named, str):
        return named
    rest = ", ".join(f"{name} {value}" for name, value in named.items() if name not in ("kind", "name"))
    return " ".join(filter(None, [str(named.get("name", named["kind"])), f"({rest})" if rest else ""]))


def _value(bound: Bound, setting: str, value: int | float) -> float:
    try:
        return bound.at(**{setting: value}).value()
    except ValueError:
        return math.nan


def _source_with_titles(bound: type[Bound]) -> str:
    titles = [bibliography()[key].title for key in cited_keys(bound.source)]
    return "; ".join([bound.spelled_source(), *titles])


def _first_line(member: type[Bound]) -> str:
    about = spell_citations(inspect.cleandoc(member.__doc__ or inspect.getmodule(member).__doc__ or ""))
    return " ".join(about.split("\n\n")[0].split())
