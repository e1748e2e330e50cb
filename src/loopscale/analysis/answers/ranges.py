"""Whether a better point may lie beyond a range: cells whose best value is at the end of where the study looked.

A comparison of cells is fair as far as each is at its best. One that is best at the end of a range may be better still
beyond it, and by how much nothing in the records says (Godbole, Dahl, Gilmer, Shallue, Nado: Deep Learning Tuning
Playbook, 2023, on search space boundaries).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from loopscale.analysis.answers.best import Best
from loopscale.analysis.tables import StudyTable
from loopscale.studies.space import Axis, Space

NEAR = 0.05
"""So much of a range, on its scale, is its end."""


@dataclass(frozen=True)
class AtEnd:
    """Cells that are best at one end of a range."""

    path: str
    end: float
    side: str
    """`lowest` or `highest`."""
    labels: tuple[str, ...]
    """Of the cells, in the order given."""

    def __str__(self) -> str:
        cells = ", ".join(label or "the only cell" for label in self.labels)
        return f"the best {self.path} of {cells} is at the {self.side} end of its range, {self.end:g}"


def tuned(study: StudyTable) -> dict[str, Axis]:
    """What the study tunes, and where; nothing where its description does not say it in our words."""
    try:
        return TypeAdapter(Space).validate_python(dict(study.get("nuisance") or {}))
    except ValidationError:
        return {}


def at_ends(study: StudyTable, found: Sequence[Best]) -> list[AtEnd]:
    """The ends at which cells are best, range by range. An end of 0 is none: there is nothing beyond it to try."""
    return [
        AtEnd(path, end, side, labels)
        for path, axis in tuned(study).items()
        for side, end, low, high in (
            ("lowest", axis.ends[0], 0.0, NEAR),
            ("highest", axis.ends[-1], 1 - NEAR, 1.0),
        )
        if end and (labels := tuple(one.label for one in found if low <= _place(axis, one, path) <= high))
    ]


def _place(axis: Axis, best: Best, path: str) -> float:
    """NaN, which is at no end, where the cell has no such number."""
    value = best.settings.get(path)
    return axis.place(value) if isinstance(value, int | float) else math.nan
