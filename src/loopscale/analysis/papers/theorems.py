"""Theorems as tables and figures: what bounds give, and how far solvers and constructions are from what is stated."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import torch

from loopscale.analysis.figures.style import (
    DASHES,
    GREYS,
    blank,
    colour_of,
    rounded,
    safe,
    symbol_of,
    with_decimal_ticks,
)
from loopscale.evaluate import Evaluation, evaluate
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task
from loopscale.theory.bounds.base import Bound
from loopscale.theory.constructions.base import Construction
from loopscale.theory.constructions.verification import EXACT, TOLERANCE, approach, distances, order

LEAST = 1e-18
"""Stands for no distance at all, and for all values below it."""

Named = str | Mapping[str, Any]
"""A member of a family as a study writes it: its kind, or `{kind: .., setting: ..}`."""


def catalogue(*papers: str) -> pd.DataFrame:
    """Every bound whose source names one of the papers, by default all: what it gives, and how it is claimed."""
    found = [each for each in Bound.choices().values() if not papers or any(p in each.source for p in papers)]
    rows = [(each.kind, each.of, each.claim, _first_line(each), each.source) for each in found]
    return pd.DataFrame(rows, columns=["bound", "of", "claim", "says", "source"]).set_index("bound")


def verified(construction: Construction, seed: int = 0) -> dict[str, Any]:
    """A construction run on random problems, and whether its theorem holds there; see `loopscale verify`.

    `steps` has the typical (geometric mean) and the largest distance over prompts after every step; `limit` where the
    theorem holds in one: the distance at each value, and the order. Raises ValueError for settings that fit nothing.
    """
    example, limit = construction.example(torch.Generator().manual_seed(seed)), construction.limit
    steps = [
        {"step": step, "typical": each.log().mean().exp().item(), "largest": each.max().item()}
        for step, each in enumerate(distances(construction, example), 1)
        if not each.isnan().any()
    ]
    said: dict[str, Any] = {
        "construction": construction.kind, "algorithm": construction.algorithm, "source": construction.source,
        "settings": construction.model_dump(), "net": construction.model(example.prompt).model_dump(),
        "prompts": len(example.tokens), "tokens": example.prompt.length, "dim_in": example.prompt.dim_in,
        "steps": steps, "limit": None, "holds": all(step["largest"] <= EXACT for step in steps),
    }  # fmt: skip
    if limit:
        near = approach(construction, limit, seed)
        measured = order(limit, near)
        rows = [
            {limit.setting: value, "distance": gap} for value, gap in zip(limit.values, near, strict=True)
        ]
        said["limit"] = {
            "setting": limit.setting,
            "stated": limit.order,
            "measured": measured,
            "values": rows,
        }
        said["holds"] = math.isclose(measured, limit.order, rel_tol=TOLERANCE)
    return said


def table(*constructions: Named, seed: int = 0) -> pd.DataFrame:
    """A line for each: its net, its largest distance from the algorithm, and how its theorem came out."""
    rows = []
    for each in constructions:
        said = verified(_member(Construction, each), seed)
        limit, largest = said["limit"], max(step["largest"] for step in said["steps"])
        stated = f"order {limit['stated']:g} in {limit['setting']}" if limit else "exact"
        measured = f"order {limit['measured']:.2f}" if limit else "exact" if said["holds"] else "not exact"
        rows.append(
            (_label(each), said["algorithm"], stated, measured, largest, said["holds"], said["source"])
        )
    columns = ["construction", "runs", "stated", "measured", "largest distance", "holds", "source"]
    return pd.DataFrame(rows, columns=columns).set_index("construction")


def along(
    setting: str,
    values: Sequence[int | float],
    bounds: Iterable[Named],
    name: str = "",
    log_x: bool = True,
    **shared: Any,
) -> go.Figure:
    """Bounds against one of their settings; `shared` are settings for all that have them.

    Where a bound does not hold is a gap, and where it is 0 or below what float64 tells from it. Raises ValueError for
    one that holds nowhere.
    """
    chosen = [(_label(each), _member(Bound, each, shared)) for each in bounds]
    figure = blank(name or setting, " or ".join(dict.fromkeys(bound.of for _, bound in chosen)), log_x)
    for index, (label, bound) in enumerate(chosen):
        y = np.array([_value(bound, setting, value) for value in values])
        if np.isnan(y).all():
            bound.at(**{setting: values[0]}).value()  # says why
        y[y < LEAST] = math.nan
        line = {"color": colour_of(index), "width": 2.2}
        mode = "lines+markers" if len(values) < 40 else "lines"
        marker = {"size": 6, "symbol": symbol_of(index)}
        figure.add_scatter(x=values, y=rounded(y), mode=mode, name=safe(label), line=line, marker=marker)
    return with_decimal_ticks(figure)


def risks(
    task: Named, pairs: Iterable[tuple[Named, Named]], steps: int = 1, prompts: int = 2048
) -> go.Figure:
    """Solvers' excess risks by pairs seen, measured (markers), on the bounds that give them exactly (lines)."""
    figure = blank("pairs seen before the query (count)", "excess risk (target's units²)", log_x=False)
    posed = _member(Task, task)
    trial = {f"task.{name}": value for name, value in posed.model_dump().items() if name != "kind"}
    for index, (solver, bound) in enumerate(pairs):
        curve = evaluate(_member(Solver, solver), posed, Evaluation(loops=steps, prompts=prompts))
        x, colour = np.array(posed.seen), colour_of(index)
        given = {"kind": bound} if isinstance(bound, str) else dict(bound)
        exact = Bound.fill(given.pop("kind"), given, trial)
        y = np.array([_value(exact, "point", int(point)) for point in x])
        figure.add_scatter(
            x=x, y=rounded(y), mode="lines", line={"color": colour, "width": 1.6}, name=f"{exact.kind}, exact"
        )
        marker = {"size": 7, "color": colour, "symbol": symbol_of(index)}
        found = curve.raw[-1] - posed.noise_variance
        figure.add_scatter(x=x, y=rounded(found), mode="markers", marker=marker, name=safe(_label(solver)))
    return with_decimal_ticks(figure)


def distance(*constructions: Named, seed: int = 0) -> go.Figure:
    """How far each net is from its algorithm after every step; LEAST stands for no distance at all."""
    figure = blank("step of the algorithm (count)", "largest distance from the algorithm", log_x=False)
    for index, each in enumerate(constructions):
        steps = verified(_member(Construction, each), seed)["steps"]
        style = {"color": colour_of(index), "width": 2}
        marker = {"size": 7, "symbol": symbol_of(index)}
        y = [max(step["largest"], LEAST) for step in steps]
        x = [step["step"] for step in steps]
        figure.add_scatter(x=x, y=y, mode="lines+markers", name=safe(_label(each)), line=style, marker=marker)
    return with_decimal_ticks(figure)


def limits(*constructions: Named, seed: int = 0) -> go.Figure:
    """The distance from the algorithm as the limit is neared, and a line of the order that the theorem states."""
    chosen = [verified(_member(Construction, each), seed)["limit"] for each in constructions]
    figure = blank(
        " or ".join(dict.fromkeys(limit["setting"] for limit in chosen)), "distance from the algorithm"
    )
    for index, (each, limit) in enumerate(zip(constructions, chosen, strict=True)):
        x = np.array([row[limit["setting"]] for row in limit["values"]])
        y = np.array([row["distance"] for row in limit["values"]])
        marker = {"size": 9, "color": colour_of(index), "symbol": symbol_of(index)}
        figure.add_scatter(x=x, y=y, mode="markers", marker=marker, name=safe(_label(each)))
        power = limit["stated"] * np.sign(np.log(y[-1] / y[0]) * np.log(x[-1] / x[0]))
        stated = {"color": GREYS[index % 5], "dash": DASHES[index % 5], "width": 1.5}
        line = y[-1] * (x / x[-1]) ** power
        figure.add_scatter(x=x, y=line, mode="lines", line=stated, name=f"order {limit['stated']:g}")
    return with_decimal_ticks(figure)


def _member(family: Any, named: Named, shared: Mapping[str, Any] = {}) -> Any:
    given = {"kind": named} if isinstance(named, str) else dict(named)
    taken = {
        name: value for name, value in shared.items() if name in family.choices()[given["kind"]].model_fields
    }
    return family.model_validate(taken | given)


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


def _first_line(member: type[Bound]) -> str:
    about = inspect.cleandoc(member.__doc__ or inspect.getmodule(member).__doc__ or "")
    return " ".join(about.split("\n\n")[0].split())
