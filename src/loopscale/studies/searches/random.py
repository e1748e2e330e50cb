"""Points drawn uniformly from the ranges [@bergstra2012]."""

from loopscale.studies.searches.base import Search, optuna


class RandomSearch(Search, kind="random"):
    """No result changes a later point, so a resumed search repeats its points with any number of workers."""

    adaptive = False
    order_free = True

    def sampler(self, seed: int, size: int) -> "optuna.samplers.BaseSampler":
        return optuna.samplers.RandomSampler(seed=seed)
