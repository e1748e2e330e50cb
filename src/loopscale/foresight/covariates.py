"""The settings that decide how long a net stays on the plateau, besides its task, its model and its recipe."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from loopscale.core.config import leaves
from loopscale.training.trial import Trial

USUAL_DIM, ENOUGH_LOOPS = 4, 4
"""Where a covariate is zero: the usual dimension, and the loops beyond which further ones change little."""


class Covariates(NamedTuple):
    """Settings of a training in doublings. A setting that a task or a model does not have is zero.

    Each doubling of a setting multiplies the step of emergence by one factor, for all tasks and models.
    """

    dim: float
    """Doublings of the task's dimension over `USUAL_DIM`."""
    condition: float
    """Doublings of the condition number of the inputs over 1."""
    loops: float
    """Doublings of T over `ENOUGH_LOOPS`: zero or negative."""

    @property
    def dimension(self) -> int:
        return round(USUAL_DIM * 2**self.dim)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Covariates":
        """The covariates of a trial's settings, by dotted path, those of its task included."""
        dim, condition, loops = (
            settings.get(path) or usual
            for path, usual in (
                ("task.dim", USUAL_DIM),
                ("task.condition", 1),
                ("training.loops", ENOUGH_LOOPS),
            )
        )
        return cls(
            math.log2(dim / USUAL_DIM),
            math.log2(condition),
            min(0.0, math.log2(loops / ENOUGH_LOOPS)),
        )

    @classmethod
    def of_trial(cls, trial: Trial) -> "Covariates":
        """The covariates of a planned trial."""
        return cls.of(dict(leaves(trial.settings)))


USUAL = Covariates(0.0, 0.0, 0.0)
