"""How much each tuned setting matters in a cell, by Optuna's PED-ANOVA [@watanabe2023].

PED-ANOVA measures in which settings the better trials differ from all trials. It needs neither a model of the error
nor scikit-learn. By default Optuna counts the best tenth as the better trials. Of ten trials this is one trial, and
the answer then does not depend on the errors. Here the better trials are the best quarter, and at least two.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution

from loopscale.analysis.answers.best_cells import tuned_ranges
from loopscale.analysis.recorded.results import Results, TrialResult, plain
from loopscale.studies.searches.base import distribution

LEAST_TRIALS = 4
"""Cells with fewer finished trials have no importance."""
RELIABLE = 10
"""With fewer finished trials the importance is marked as unreliable."""
BETTER = 0.25
"""The share of trials that count as the better ones."""


@dataclass(frozen=True)
class Importance:
    """The importance of the tuned settings in one cell."""

    cell: str
    label: str
    trials: int
    """The number of finished trials."""
    shares: Mapping[str, float]
    """The importance by setting, the largest first, with sum 1. If empty, `note` gives the reason."""
    note: str = ""
    """A warning, or the reason why there are no shares."""

    @property
    def reliable(self) -> bool:
        return self.trials >= RELIABLE


def importance(results: Results) -> list[Importance]:
    """The importance in every cell with finished tuning trials. Pruned and diverged trials do not count."""
    spaces = {path: distribution(axis) for path, axis in tuned_ranges(results).items()}
    of_cells = []
    for cell in results.cells:
        trials = [trial for trial in cell.tuning if trial.finished]
        if spaces and trials:
            common = set.intersection(*(set(trial.settings) for trial in trials))
            in_cell = {path: space for path, space in spaces.items() if path in common}
            shares, note = _shares(trials, in_cell)
            of_cells.append(Importance(cell.key, cell.label, len(trials), shares, note))
    return of_cells


def _shares(trials: list[TrialResult], space: Mapping[str, BaseDistribution]) -> tuple[dict[str, float], str]:
    """The shares by setting, and a note."""
    count = len(trials)
    if count < LEAST_TRIALS:
        return {}, f"{count} finished trials, but at least {LEAST_TRIALS} are needed"
    if len(space) < 2:
        return {}, "only one setting is tuned"
    if len({trial["error"] for trial in trials}) < 2:
        return {}, "all errors are the same"
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    try:
        study.add_trials([_optuna_trial(trial, space) for trial in trials])
    except ValueError:  # recorded under an older study file with other ranges
        return {}, "some trials lie outside the study's present ranges"
    # Few studies tune two settings, and Optuna's module imports scikit-learn for another measure: a second.
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    evaluator = PedAnovaImportanceEvaluator(target_quantile=max(BETTER, 2 / count))
    with warnings.catch_warnings():
        # The evaluator is marked as experimental, and divides by the spread of a setting with one value.
        warnings.simplefilter("ignore")
        shares = get_param_importances(study, evaluator=evaluator)
    note = "" if count >= RELIABLE else f"{count} finished trials, unreliable with fewer than {RELIABLE}"
    return {path: float(share) for path, share in shares.items()}, note


def _optuna_trial(trial: TrialResult, space: Mapping[str, BaseDistribution]) -> optuna.trial.FrozenTrial:
    params = {path: _choice(trial.settings[path], kind) for path, kind in space.items()}
    return optuna.trial.create_trial(params=params, distributions=dict(space), value=trial["error"])


def _choice(value: Any, kind: BaseDistribution) -> Any:
    """The value in the type of its range. The column of the table may have changed the type."""
    value = plain(value)
    if not isinstance(kind, CategoricalDistribution):
        return value
    return next((choice for choice in kind.choices if choice == value or str(choice) == str(value)), value)
