"""A study as one self-contained page: the question, the answer, figures, laws, standings, cost, fates, provenance."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from loopscale.analysis.answers.best import front
from loopscale.analysis.answers.cost import costs
from loopscale.analysis.answers.findings import Findings, find
from loopscale.analysis.answers.importance import importance
from loopscale.analysis.report.page import render, text
from loopscale.analysis.report.pictures import pictures
from loopscale.analysis.tables import StudyTable, several_objectives

MOST_FATES = 3000
"""Rows of the table of fates; a larger study's finished tuning trials beyond it are only counted."""
MOST_REASONS = 40


def report(
    study: StudyTable,
    trials: pd.DataFrame,
    curves: pd.DataFrame,
    history: pd.DataFrame,
    provenance: Mapping[str, Any] | None = None,
    found: Findings | None = None,
) -> str:
    """The page. `provenance`: commit, versions, the study's file and the like, shown as given, a mapping as a table.

    `found` are the study's findings, computed here if they are not given.
    """
    found = found or find(study, trials, curves, history)
    mattered = importance(study, trials)
    fates = trials[trials["role"] != "baseline"]
    cells, total = costs(study, trials)
    return render(
        "report.html.j2",
        list(pictures(study, trials, curves, history, found.laws, mattered)),
        study=study,
        found=found,
        impossible=[one.text for one in found.impossible],
        mattered=[one for one in mattered if one.note],
        points=front(trials, study) if several_objectives(study) else [],
        counts=fates["outcome"].fillna("running").replace("", "running").value_counts().to_dict(),
        reasons=_reasons(fates),
        fates=_fates(fates),
        omitted=max(len(fates) - MOST_FATES, 0),
        costs=[*cells, total],
        provenance={name: text(value) for name, value in (provenance or {}).items()},
    )


def _fates(trials: pd.DataFrame) -> list[dict[str, Any]]:
    """Those that say something went wrong first, so that what is cut off is what went well."""
    finished = trials["outcome"].eq("finished") & trials["role"].eq("tuning")
    rows = trials.assign(_last=finished).sort_values(["_last", "label", "role", "number"], kind="stable")
    return [
        {
            **{
                name: "" if pd.isna(row[name]) else row[name] for name in ("trial", "label", "role", "detail")
            },
            "outcome": _outcome(row),
            "seed": "" if pd.isna(row["seed"]) else int(row["seed"]),
            "step": "" if pd.isna(row["step"]) else int(row["step"]),
            "error": None if pd.isna(row["error"]) else float(row["error"]),
        }
        for _, row in rows.head(MOST_FATES).iterrows()
    ]


def _reasons(trials: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Why trials have not finished: outcome, the last line of the reason, and how many, most frequent first."""
    rows = trials[trials["outcome"].ne("finished")]
    counts = Counter((_outcome(row), _reason(row)) for _, row in rows.iterrows())
    return [(outcome, reason, count) for (outcome, reason), count in counts.most_common(MOST_REASONS)]


def _outcome(row: pd.Series) -> str:
    return (
        "running" if pd.isna(row["outcome"]) or not row["outcome"] else str(row["outcome"]).replace("_", " ")
    )


def _reason(row: pd.Series) -> str:
    """Of a traceback, the line that says what it was."""
    detail = row["detail"]
    lines = [line.strip() for line in detail.splitlines() if line.strip()] if isinstance(detail, str) else []
    if lines:
        return lines[-1]
    at = "" if pd.isna(row["step"]) else f" at step {int(row['step']):,}"
    known = {"pruned": f"behind the others of its cell{at}", "running": f"under way{at}"}
    return known.get(_outcome(row), f"no reason was given{at}")
