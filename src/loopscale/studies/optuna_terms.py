"""Ranges and outcomes in Optuna's terms. Import this module only where a search begins: Optuna loads slowly."""

import warnings

from loopscale.studies.space import Axis, Choice, Integer

with warnings.catch_warnings():  # in a notebook, Optuna's progress bar asks for another package
    warnings.filterwarnings("ignore", message="IProgress not found")
    from optuna import distributions
    from optuna.trial import TrialState


def distribution(axis: Axis) -> distributions.BaseDistribution:
    if isinstance(axis, Choice):
        return distributions.CategoricalDistribution(axis.choice)
    if isinstance(axis, Integer):
        return distributions.IntDistribution(*axis.integer, log=axis.scale == "log")
    return distributions.FloatDistribution(*axis.real, log=axis.scale == "log")


def trial_state(outcome: str, error: float) -> tuple[TrialState, float | None]:
    """Optuna's state and value of a trial, given its outcome and its error.

    A diverged trial is complete with the worst value. Samplers ignore failed trials, and would return to their region.
    """
    match outcome:
        case "finished":
            return TrialState.COMPLETE, error
        case "pruned":
            return TrialState.PRUNED, None
        case "diverged" | "out_of_memory":
            return TrialState.COMPLETE, float("inf")
        case _:
            return TrialState.FAIL, None
