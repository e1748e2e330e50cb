"""Bayesian optimisation with a Gaussian process [@snoek2012]."""

from loopscale.studies.searches.base import Search, optuna


class GaussianProcess(Search, kind="gp"):
    """Suits few trials and few ranges: the time for a point grows with the cube of the number of earlier points."""

    def sampler(self, seed: int, size: int) -> "optuna.samplers.BaseSampler":
        return optuna.samplers.GPSampler(seed=seed)
