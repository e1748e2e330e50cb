"""A genetic algorithm for two objectives, error and FLOPs [@deb2002]."""

from loopscale.studies.searches.base import Search, optuna


class NSGA2(Search, kind="nsga2"):
    """Reports list the points that no other point beats in both objectives. Replicates use the point of least error.

    The search needs `objectives: [error, flops]` and no scheduler.
    """

    stateful = True
    weighs = ("error", "flops")

    def restore(self, study: "optuna.Study", size: int) -> None:
        """Select the parents of each generation in the records again.

        Optuna caches the parents with the study, and lists cached parents in another order than new ones.
        """
        sampler = self.sampler(0, size)
        bred = [trial for trial in study.get_trials(deepcopy=False) if trial.system_attrs]
        for generation in sorted({sampler.get_trial_generation(study, trial) for trial in bred}):
            sampler.get_parent_population(study, generation)

    def adopt(self, study: "optuna.Study", trial: "optuna.Trial", size: int) -> None:
        """Count the trial in the present generation, so that the trial may be a parent."""
        self.sampler(0, size).get_trial_generation(study, study.get_trials(deepcopy=False)[trial.number])

    def sampler(self, seed: int, size: int) -> "optuna.samplers.NSGAIISampler":
        # Optuna's default generation of 50 points would be larger than most searches, and the first one is random.
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=min(50, max(4, size // 4)))
