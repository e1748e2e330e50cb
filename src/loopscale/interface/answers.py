"""The answers of a study: the best configuration of every cell, and the verdicts on its claims."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from loopscale.interface import types
from loopscale.interface.foreign_errors import with_loopscale_errors
from loopscale.interface.recorded import meeting, recorded
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store


@dataclass(frozen=True)
class BestCells:
    """The best configuration of every cell, with mean and interval over its replicates."""

    results: "types.Results"
    """The results without their curves."""
    cells: "Sequence[types.Best]"
    points: "Sequence[types.Best] | None"
    """With two objectives, the points that no other point beats in both error and FLOPs; None with one objective."""
    study: str
    """The study's file or name."""
    _store: Store = field(repr=False)

    @cached_property
    def claims(self) -> "Sequence[types.JudgedClaim]":
        """The claims with their verdicts."""
        from loopscale.analysis.answers.claims import judged_claims

        return judged_claims(self.with_curves) if self.results.claim_specs else ()

    @cached_property
    def with_curves(self) -> "types.Results":
        """The results with their curves, which claims, laws and comparisons with algorithms need."""
        return recorded(self._store, self.study)

    @cached_property
    def table(self) -> "types.DataFrame":
        """The cells as a data frame. A notebook shows its notes below."""
        from loopscale.analysis.answers.best_cells import best_columns, best_notes
        from loopscale.analysis.table import CaptionedTable, frame

        return CaptionedTable(frame(best_columns(self.results), self.cells), best_notes(self.cells))

    def document(self) -> dict[str, Any]:
        """Plain data, as in JSON."""
        cells = [as_object(row, self.points) for row in self.cells]
        claims = [claim.to_dict() for claim in self.claims]
        return {"study": self.results.name, "cells": cells, "claims": claims}

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str | None:
        return self.table._repr_html_()  # pyright: ignore[reportCallIssue]: the stubs do not know the method


@with_loopscale_errors
def best(
    study: "types.Study | str | Path", store: Store | str | Path | None = None, where: str = ""
) -> BestCells:
    """The best configuration of every cell, and the verdicts on the study's claims.

    Parameters
    ----------
    study
        A study, the file of a study, or the name of a study.
    store
        The records: an open store, a folder, or an address. By default those of the command line.
    where
        An SQL condition. Only cells whose trial meets the condition are left. No number changes.

    Raises
    ------
    StudyError
        There are neither records nor a file of the study.
    StoreError
        The study has no records, or the records cannot be read.
    QueryError
        The condition is no SQL condition on trials.
    """
    from loopscale.analysis.answers.best_cells import best as best_of
    from loopscale.analysis.answers.best_cells import front

    place = store if isinstance(store, Store) else open_store(store)
    named = str(study) if isinstance(study, str | Path) else study.name
    results = recorded(place, named, curves=False)
    kept = meeting(place, results.name, where) if where else None
    # The noise is pooled over all cells, so hidden cells still count.
    cells = [row for row in best_of(results) if kept is None or row.trial in kept]
    points = None
    if results.two_objectives:
        points = [point for point in front(results) if kept is None or point.trial in kept]
    return BestCells(results, cells, points, named, place)


def as_object(answer: "types.Best", points: Sequence["types.Best"] | None = None) -> dict[str, Any]:
    """A cell for programs: its settings under `settings`, and each setting also under its own dotted path.

    `points` are the points that no other point beats, if the study has two objectives.
    """
    plain = answer.to_dict()
    record = {"cell": plain["cell"], "label": plain["label"], **answer.settings, **plain}
    if points is None:
        return record
    kept = ("settings", "error", "flops", "trial")
    of_cell = [point.to_dict() for point in points if point.cell == answer.cell]
    return record | {"points": [{name: point[name] for name in kept} for point in of_cell]}
