"""Tree-structured Parzen estimators [@bergstra2011]: points near good earlier points are likelier."""

from collections.abc import Iterator, Sequence

from loopscale.studies.searches.base import Search, optuna

FIRST = 5
"""Points that are drawn at random before the estimators are used."""


class TPE(Search, kind="tpe"):
    """The default search. Its first 5 points are random."""

    def sampler(self, seed: int, size: int) -> "optuna.samplers.BaseSampler":
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=FIRST)

    def warnings(self, points: Sequence[int], at_once: int) -> Iterator[str]:
        yield from super().warnings(points, at_once)
        if max(points) <= FIRST:
            yield (
                f"tpe's first {FIRST} points are random, and a cell has {max(points)}: this is a random search"
            )
