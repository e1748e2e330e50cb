"""The iterate of an algorithm that is most similar to a step of a net."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loopscale.stats.contrasts import Array

LEAST_SIMILARITY = 0.8
"""A step matches an iterate from this similarity on."""
SIMILARITY, MATCH, HALF_MATCH = "similarity_", "match_", "half_match_"
"""Prefixes of the metrics of a training, before the kind of a solver."""
TIE = 1e-6
"""Similarities that differ by less are equal: a converged iteration repeats itself."""


@dataclass(frozen=True, eq=False)
class Matches:
    """The best-matching iterates of the steps of one net; steps and iterates count from 1."""

    steps: NDArray[np.int64]
    iterates: NDArray[np.int64]
    similarity: Array
    last: NDArray[np.bool_]
    """True where the match is the last iterate. A later iterate might match better."""

    def clear(self, least: float = LEAST_SIMILARITY) -> NDArray[np.bool_]:
        """True at the steps that match an iterate, and not the last one."""
        return (self.similarity >= least) & ~self.last


def best_matches(similarity: Array) -> Matches:
    """The most similar iterate of every step, the first among equals; from similarities [steps, iterates]."""
    best = np.argmax(similarity >= similarity.max(1, keepdims=True) - TIE, axis=1)
    steps = np.arange(len(similarity))
    return Matches(steps + 1, best + 1, similarity[steps, best], best == similarity.shape[1] - 1)


def between_iterates(similarity: Array) -> Array:
    """The best-matching iterate of every step as a real number, from similarities [steps, iterates].

    A parabola through the similarities of the best match and its neighbours has its top within half an iterate of the
    best match. Whole numbers would be equal in all replicates, and so a comparison of nets would have no noise.
    """
    matches = best_matches(similarity)
    refined = matches.iterates.astype(np.float64)
    for step, best in enumerate(matches.iterates - 1):
        if 0 < best < similarity.shape[1] - 1:
            before, top, after = similarity[step, best - 1 : best + 2]
            curvature = before - 2 * top + after
            if curvature < -TIE:
                refined[step] += np.clip((before - after) / (2 * curvature), -0.5, 0.5)
    return refined
