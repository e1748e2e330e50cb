"""Held-out tests of laws: the cells that a law is fitted to, and the cells that it has to predict.

A law holds out the largest values of its axis, or named values. Every combination of the other settings is a law of its
own, and so a test of its own. If too few fitted values remain in a combination, the combination has no test, and its
law is fitted to all cells.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from loopscale.questions.axes.base import Setting, axis_of
from loopscale.questions.runs import Runs
from loopscale.stats.milestones import EMERGED_AT, Milestone, measure_of
from loopscale.stats.prediction import LEAST_PREDICTING, why_not_judged
from loopscale.studies.axes import AnyCell, HasValues, cells_along, numbers, varied_along

HoldOut = int | Sequence[int | float]
"""How many of the largest values are held out, or which values."""


@dataclass(frozen=True)
class HeldOutTest:
    """One held-out test of a law."""

    of: str
    """The measure of the law."""
    along: str
    """The axis of the law."""
    label: str
    """The settings that the cells share, in words."""
    fitted: Mapping[str, float]
    """The value of each fitted cell on the axis, by the key of the cell."""
    held_out: Mapping[str, float]
    """The value of each held-out cell on the axis, by the key of the cell."""

    @property
    def fitted_values(self) -> int:
        return len(set(self.fitted.values()))

    @property
    def unjudged(self) -> dict[float, str]:
        """The held-out values whose prediction has no level, with the reason."""
        fitted = np.array(sorted(set(self.fitted.values())))
        reasons = {at: why_not_judged(fitted, at) for at in sorted(set(self.held_out.values()))}
        return {at: reason for at, reason in reasons.items() if reason}


def held_out_tests(
    laws: Sequence[Mapping[str, Any]], cells: Sequence[HasValues], shared: Mapping[str, Any]
) -> list[HeldOutTest]:
    """The tests of all laws with `hold_out`. Laws that differ only in forms or theory share their tests.

    Parameters
    ----------
    laws
        The laws as plain data. A study records laws in this form.
    shared
        The settings that cells take from outside their values, by dotted path.
    """
    tests: dict[tuple[str, str, str], HeldOutTest] = {}
    for law in laws:
        if law.get("hold_out") is None or axis_of(law["along"]).not_held_out:
            continue
        for test in tests_of_law(law, cells, shared):
            tests.setdefault((test.of, test.along, test.label), test)
    return list(tests.values())


def tests_of_law(
    law: Mapping[str, Any], cells: Sequence[AnyCell], shared: Mapping[str, Any]
) -> Iterator[HeldOutTest]:
    """The tests of one law with `hold_out`."""
    of, along = measure_of(law), law["along"]
    values = held_out_values(law["hold_out"], axis_values(cells, along, shared))
    for label, group in cells_along(cells, varied_along(cells, along)).items():
        places = {cell.key: place_of_cell(cell, along, shared) for cell in group}
        held_out = {key: place for key, place in places.items() if place in values}
        fitted = {key: place for key, place in places.items() if key not in held_out and math.isfinite(place)}
        test = HeldOutTest(of, along, label, fitted, held_out)
        if held_out and test.fitted_values >= LEAST_PREDICTING:
            yield test


def held_out_values(hold_out: HoldOut, values: Sequence[float]) -> set[float]:
    """The held-out values; `values` are in ascending order."""
    if isinstance(hold_out, int):
        return set(values[max(0, len(values) - hold_out) :])
    return {float(value) for value in hold_out}


def axis_values(cells: Sequence[HasValues], along: str, shared: Mapping[str, Any]) -> list[float]:
    """The values of the axis, in ascending order."""
    if isinstance(axis_of(along), Setting):
        return sorted(map(float, numbers(cells, along)))
    places = {place_of_cell(cell, along, shared) for cell in cells}
    return sorted(place for place in places if math.isfinite(place))


def place_of_cell(cell: HasValues, along: str, shared: Mapping[str, Any]) -> float:
    """The value of a cell on the axis; NaN if the cell has no number there."""
    return axis_of(along).place(partial(setting_of_cell, cell, shared))


def setting_of_cell(cell: HasValues, shared: Mapping[str, Any], path: str) -> Any:
    """A setting of a cell, which may come from outside its values; None without it."""
    return cell.values.get(path, shared.get(path))


def waits_for(tests: Sequence[HeldOutTest]) -> dict[str, set[str]]:
    """The cells that each held-out cell waits for, by keys."""
    waiting: dict[str, set[str]] = {}
    for test in tests:
        for key in test.held_out:
            waiting.setdefault(key, set()).update(test.fitted)
    return waiting


def fitted_runs(test: HeldOutTest, runs: Runs[Any]) -> dict[float, tuple[float, ...]]:
    """The fitted runs by value, as `records.predictions.predict_from` takes them.

    A run is a log error or, for a law of the emergence, both ends of its interval.
    """
    cells, passed = {cell.key: cell for cell in runs.cells}, runs.passed(Milestone())
    fitted: dict[float, tuple[float, ...]] = {}
    for key, place in sorted(test.fitted.items(), key=lambda item: item[1]):
        of_cell = cells[key].runs
        if test.of == EMERGED_AT:
            numbers = [end for run in of_cell if (known := passed(run)) for end in (known.after, known.by)]
        else:
            numbers = [math.log(value) for run in of_cell if 0 < (value := run[test.of]) < math.inf]
        fitted[place] = (*fitted.get(place, ()), *numbers)
    return fitted


def has_circle(waiting: Mapping[str, set[str]]) -> bool:
    """True if cells wait for each other, so that none of them can ever start."""
    left = {key: set(others) & waiting.keys() for key, others in waiting.items()}
    while left:
        free = {key for key, others in left.items() if not others & left.keys()}
        if not free:
            return True
        left = {key: others for key, others in left.items() if key not in free}
    return False
