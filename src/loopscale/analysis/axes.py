"""What a law or a figure runs along: settings that go together are one axis, and some axes are derived.

A component such as `training: [{loops: 8, window: 6}, {loops: 4, window: 4}]` varies two settings in step. Neither
varies alone, so they are one axis, named by both. `prompts`, seen in training, and `flops`, spent on it, are not
written in any cell: they follow from what is.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from loopscale.analysis.tables import StudyTable, answers, json_key, numbers
from loopscale.studies.cells import labels

CURVES = ("loop", "point")
"""Axes of the curve that every trial leaves."""
FLOPS, PROMPTS = "flops", "prompts"
OF_PROMPTS = ("training.steps", "training.batch_size")
"""What the prompts seen in training are the product of."""
COSTLY = ("model.", "training.")
"""Where the numbers are set that a training's FLOPs follow from, at one task."""


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def numeric(study: StudyTable) -> list[str]:
    """The settings that have at least two numbers as values, in the order of the study."""
    values = _values(study)
    paths = dict.fromkeys(path for each in values for path in each)
    return [path for path in paths if len({each[path] for each in values if is_number(each.get(path))}) >= 2]


def in_step(study: StudyTable, path: str) -> tuple[str, ...]:
    """The numeric settings whose value is settled by that of `path` in every cell of the study."""
    found = []
    for other in numeric(study):
        seen = defaultdict[Any, set[Any]](set)
        for each in _values(study):
            if path in each:
                seen[each[path]].add(each.get(other))
        if other != path and seen and all(len(values) == 1 for values in seen.values()):
            found.append(other)
    return tuple(found)


def independent(study: StudyTable, least: int = 2) -> list[str]:
    """One setting for every axis with at least `least` numbers: of settings in step with one another, the first."""
    chosen: list[str] = []
    for path in numeric(study):
        count = len({each[path] for each in _values(study) if is_number(each.get(path))})
        settled = any(
            path in in_step(study, other)
            for other in numeric(study)
            if other != path and _leads(study, other, path)
        )
        if count >= least and not settled:
            chosen.append(path)
    return chosen


def axis_name(along: str, beside: Sequence[str] = ()) -> str:
    """What an axis is called in figures, with its unit where it has one."""
    units = {
        "loop": "loop (count)",
        "point": "pairs seen before the query (count)",
        FLOPS: "training cost (FLOPs)",
        PROMPTS: "prompts seen in training (count)",
    }
    return units.get(along, " with ".join([along, *(path.rpartition(".")[2] for path in beside)]))


def combinations(
    study: StudyTable, trials: pd.DataFrame, along: str
) -> dict[str, list[tuple[Mapping[str, Any], pd.DataFrame]]]:
    """Cells that differ along one axis alone, with the trials that speak for each, under what they share.

    Along `flops` these differ in any number of the model and of training; of them the cells that no other beats in
    both error and FLOPs are kept: the others say nothing of what so many FLOPs can reach.
    """
    if along == FLOPS:
        mine = {path for path in numeric(study) if path.startswith(COSTLY)}
    else:
        mine = {along, *in_step(study, along), *(OF_PROMPTS if along == PROMPTS else ())}
    found: dict[str, list[tuple[Mapping[str, Any], pd.DataFrame]]] = {}
    for cell, label in zip(study["cells"], rest(study["cells"], mine), strict=True):
        found.setdefault(label, []).append((cell, answers(trials, cell["key"])[0]))
    return {label: _unbeaten(cells) for label, cells in found.items()} if along == FLOPS else found


def rest(cells: Sequence[Mapping[str, Any]], but: Collection[str]) -> list[str]:
    """For every cell what sets it apart besides these settings, in the words of its label; nothing where all agree."""
    others = [{path: value for path, value in cell["values"].items() if path not in but} for cell in cells]
    found = {json_key(other): other for other in others}
    told = dict(zip(found, labels(list(found.values()), ""), strict=True))
    return [told[json_key(other)] for other in others]


def place(row: pd.Series, along: str) -> float:
    """Where on the axis a trial lies; NaN where it has no such number."""
    if along == PROMPTS:
        return float(np.prod(numbers([row.get(path) for path in OF_PROMPTS])))
    return float(numbers([row.get(along)])[0])


def _unbeaten(
    cells: list[tuple[Mapping[str, Any], pd.DataFrame]],
) -> list[tuple[Mapping[str, Any], pd.DataFrame]]:
    known = [
        (numbers(rows["flops"]).mean(), numbers(rows["error"]).mean(), each)
        for each in cells
        if len(rows := each[1])
    ]
    kept, lowest = [], np.inf
    for flops, error, each in sorted(known, key=lambda one: one[:2]):
        if np.isfinite(flops) and error < lowest:
            lowest = error
            kept.append(each)
    return kept


def _leads(study: StudyTable, one: str, other: str) -> bool:
    """Of two settings in step, whether `one` names the axis: it settles the other and not the reverse, or is first."""
    back = one in in_step(study, other)
    order = numeric(study)
    return not back or order.index(one) < order.index(other)


def _values(study: StudyTable) -> list[Mapping[str, Any]]:
    return [cell["values"] for cell in study["cells"]]
