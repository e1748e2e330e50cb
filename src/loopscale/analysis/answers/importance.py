"""How much each tuned setting mattered in a cell, by Optuna's PED-ANOVA (Watanabe, Bansal, Hutter 2023).

It asks by which settings the better trials differ from all: so it needs neither a model of the error nor
scikit-learn. Optuna takes the best tenth as the better ones. Of ten trials that is one, whose distance from the others
depends on the range and on nothing that was measured (seen: the same answer from any errors), so here it is the best
quarter, and at least two.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportAttributeAccessIssue=false

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

from loopscale.analysis.answers.ranges import tuned
from loopscale.analysis.tables import StudyTable, finished, plain
from loopscale.studies.optuna_terms import distribution

LEAST = 4
"""Finished trials without which a cell has no importance at all."""
RELIABLE = 10
"""Finished trials below which it is said to be unreliable."""
BETTER = 0.25
"""The share of trials that count as the better ones."""


@dataclass(frozen=True)
class Importance:
    """One cell's. `shares` sum to 1 by setting, largest first; empty with the reason in `note`."""

    cell: str
    label: str
    trials: int
    shares: Mapping[str, float]
    note: str = ""

    @property
    def reliable(self) -> bool:
        """Whether there are trials enough to rest anything on it."""
        return self.trials >= RELIABLE


def importance(study: StudyTable, trials: pd.DataFrame) -> list[Importance]:
    """Of every cell in which something is tuned, in the study's order; pruned and diverged trials do not count."""
    spaces = {path: distribution(axis) for path, axis in tuned(study).items()}
    found = []
    for cell in study["cells"]:
        rows = finished(trials, "tuning", cell["key"])
        mine = {path: space for path, space in spaces.items() if path in rows and rows[path].notna().all()}
        if len(spaces) and len(rows):
            found.append(_of(cell, rows, mine))
    return found


def _of(cell: Mapping[str, Any], rows: pd.DataFrame, space: Mapping[str, BaseDistribution]) -> Importance:
    count = len(rows)
    said = {"cell": cell["key"], "label": cell["label"], "trials": count, "shares": {}}
    if count < LEAST:
        return Importance(**said, note=f"{count} finished trials, and fewer than {LEAST} say nothing")
    if len(space) < 2:
        return Importance(**said, note="a single tuned setting is all that could matter")
    if rows["error"].nunique() < 2:
        return Importance(**said, note="all errors are the same")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    try:
        study.add_trials([_trial(row, space) for _, row in rows.iterrows()])
    except ValueError:  # of an older study file, with other ranges
        return Importance(**said, note="some trials lie outside the ranges that the study has now")
    evaluator = PedAnovaImportanceEvaluator(target_quantile=max(BETTER, 2 / count))
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # experimental, and divisions by the spread of a setting with one value
        shares = get_param_importances(study, evaluator=evaluator)
    note = "" if count >= RELIABLE else f"{count} finished trials, and fewer than {RELIABLE} are unreliable"
    return Importance(cell["key"], cell["label"], count, {k: float(v) for k, v in shares.items()}, note)


def _trial(row: pd.Series, space: Mapping[str, BaseDistribution]) -> optuna.trial.FrozenTrial:
    params = {path: _value(row[path], kind) for path, kind in space.items()}
    return optuna.trial.create_trial(params=params, distributions=dict(space), value=float(row["error"]))


def _value(value: Any, kind: BaseDistribution) -> Any:
    """As the range has it: a table has one type for a whole column."""
    value = plain(value)
    if not isinstance(kind, CategoricalDistribution):
        return value
    same = [choice for choice in kind.choices if choice == value or str(choice) == str(value)]
    return same[0] if same else value
