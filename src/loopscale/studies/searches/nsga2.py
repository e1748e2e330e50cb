"""A genetic algorithm for two objectives, error and FLOPs (Deb et al. 2002)."""

from loopscale.studies.searches.base import OptunaSampler, Search


class NSGA2(Search, kind="nsga2"):
    """Reports list the points that no other point beats in both objectives. Replicates use the point of least error.

    The search needs `objectives: [error, flops]` and no scheduler.
    """

    stateful = True
    weighs = ("error", "flops")

    def sampler(self, seed: int, size: int) -> OptunaSampler:
        from optuna.samplers import NSGAIISampler

        # Optuna's default generation of 50 points would be larger than most searches, and the first one is random.
        return NSGAIISampler(seed=seed, population_size=min(50, max(4, size // 4)))
