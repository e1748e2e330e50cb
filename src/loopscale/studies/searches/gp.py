"""Bayesian optimisation with a Gaussian process [@snoek2012]."""

from loopscale.studies.searches.base import OptunaSampler, Search


class GaussianProcess(Search, kind="gp"):
    """Suits few trials and few ranges: the time for a point grows with the cube of the number of earlier points."""

    def sampler(self, seed: int, size: int) -> OptunaSampler:
        from optuna.samplers import GPSampler  # here, because Optuna loads slowly

        return GPSampler(seed=seed)
