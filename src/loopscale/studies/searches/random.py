"""Points drawn uniformly from the ranges [@bergstra2012]."""

from loopscale.studies.searches.base import OptunaSampler, Search


class RandomSearch(Search, kind="random"):
    """No result changes a later point, so a resumed search repeats its points with any number of workers."""

    adaptive = False
    order_free = True

    def sampler(self, seed: int, size: int) -> OptunaSampler:
        from optuna.samplers import RandomSampler  # here, because Optuna loads slowly

        return RandomSampler(seed=seed)
