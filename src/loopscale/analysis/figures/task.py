"""What figures of one task have in common: the runs to draw, and what stands beside them."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

from collections.abc import Iterator, Sequence

import pandas as pd

from loopscale.analysis.answers.impossible import floors_of
from loopscale.analysis.figures.style import safe
from loopscale.analysis.tables import StudyTable, answers, baselines_of, curve_at, solver_name


def drawn(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, cells: Sequence[str]
) -> list[tuple[int, str, pd.DataFrame]]:
    """The runs that speak for each of the cells, with the cell's number in the study and its label."""
    found = []
    for index, cell in enumerate(study["cells"]):
        rows, _ = answers(trials, cell["key"])
        rows = rows[rows["trial"].isin(curves["trial"])]
        if cell["key"] in cells and len(rows):
            found.append((index, safe(cell["label"]), rows))
    return found


def classical(
    trials: pd.DataFrame, curves: pd.DataFrame, runs: Sequence[tuple[int, str, pd.DataFrame]]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """The curves of the classical algorithms on the task of the cells drawn, which share it."""
    for _, row in baselines_of(trials, runs[0][2].iloc[0]).iterrows() if runs else ():
        curve = curve_at(curves, row["trial"])
        if len(curve):
            yield safe(solver_name(row)), curve


def floors(
    curves: pd.DataFrame, runs: Sequence[tuple[int, str, pd.DataFrame]]
) -> Iterator[tuple[str, pd.Series]]:
    """What no predictor beats on the task of the cells drawn, which share it, by pairs seen."""
    if runs:
        row = runs[0][2].iloc[0]
        yield from floors_of(row, curve_at(curves, row["trial"]))


def by(curve: pd.DataFrame, axis: str, of: str = "error") -> pd.Series:
    """The mean over what is not `axis`."""
    return curve.groupby(axis)[of].mean()
