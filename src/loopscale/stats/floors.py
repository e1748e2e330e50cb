"""The least possible error of a task and its ignorance, averaged over one set of prompts: numbers without torch."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from loopscale.stats.contrasts import Array
from loopscale.stats.emergence import reducible_share

How = Literal["bayes", "exact", "bound", "reference", "none"]


@dataclass(frozen=True)
class MeanFloor:
    """A floor on average over prompts. All errors are divided by the variance of the target."""

    how: How
    """bayes: the error of the Bayes predictor. exact: 0. bound: nothing is below. reference: the error of the best
    known algorithm, and a net may be below. none: neither a floor nor a reference is known."""
    name: str
    """The kind of the solver that has this error; "fixed guess" if no algorithm is better than a fixed guess."""
    error: Array
    """The least error known at every query [points]; NaN if `how` is none."""
    ignorance: Array
    """The error of the best fixed guess at every query [points]."""

    @property
    def measure(self) -> str:
        """The name of `error - floor` in texts."""
        if self.how == "none":
            return "error"
        return "regret" if self.how in ("bayes", "exact") else f"error above the {self.how} {self.name}"

    @property
    def has_room(self) -> bool:
        """Whether enough of the ignorance is reducible, on average over queries."""
        return bool(np.isfinite(self.shares(self.error.mean(keepdims=True))).all())

    def shares(self, error: Array, query: Literal["mean", "last"] = "mean") -> Array:
        """The reducible share of errors on this set of prompts: a training's reports of `error` or `error_last`."""
        floor, ignorance = (
            float(values.mean() if query == "mean" else values[-1]) for values in (self.error, self.ignorance)
        )
        return reducible_share(error, floor, ignorance)
