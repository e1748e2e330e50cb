"""Whether the nets of a study have learnt, and whether their training is over: one state for each training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from loopscale.stats.contrasts import Array
from loopscale.stats.emergence import Emergence, EmergenceRule, emergence, reducible_share
from loopscale.stats.trend import Trend, report_scatter, trend

Word = Literal["no floor", "no room", "not learnt", "falling", "over", "unclear"]


@dataclass(frozen=True)
class History:
    """The reports of one training, with the floor and the ignorance on the same prompts."""

    steps: Array
    """Steps of the reports [reports], ascending."""
    error: Array
    """The validation error, averaged over queries [reports]."""
    floor: float
    """NaN if unknown."""
    ignorance: float

    @property
    def share(self) -> Array:
        """The reducible share of each report [reports]."""
        return reducible_share(self.error, self.floor, self.ignorance)


@dataclass(frozen=True)
class LearningState:
    """What the reports of one training say."""

    floor_known: bool
    share: float
    """The reducible share of the last report; NaN if the task has no floor or no room."""
    emergence: Emergence | None
    """None if the task has no floor or no room."""
    trend: Trend | None
    """None if the training has too few reports. Under a cosine schedule the trend describes this schedule alone."""

    @property
    def word(self) -> Word:
        if self.emergence is None:
            return "no room" if self.floor_known else "no floor"
        if not self.emergence.emerged:
            return "not learnt"
        return self.trend.ending if self.trend else "unclear"


def learning_states(histories: Sequence[History], rule: EmergenceRule | None = None) -> list[LearningState]:
    """The states of a study's trainings.

    The scatter between reports is pooled over the trainings whose task has room. Without room, the regret is noise.

    Parameters
    ----------
    histories
        Each with at least one report.
    rule
        By default two consecutive reports below .5.
    """
    emerged = [emergence(history.steps, history.share, rule) for history in histories]
    regrets = [(history.steps, history.error - history.floor) for history in histories]
    pooled = [reports for reports, found in zip(regrets, emerged, strict=True) if found]
    scatter = report_scatter(pooled)
    return [
        LearningState(
            not math.isnan(history.floor),
            float(history.share[-1]),
            found,
            trend(*reports, scatter) if found and scatter else None,
        )
        for history, reports, found in zip(histories, regrets, emerged, strict=True)
    ]
