"""Whether the nets of a study have learnt, and whether their training is over: one state for each training."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from loopscale.stats.contrasts import Array, PooledVariance
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


@dataclass(frozen=True)
class Learnt:
    """How many trainings have left the plateau, and how many are still falling."""

    emerged: int
    of: int
    """Trainings on tasks with a floor and with room. The others have no state."""
    falling: int = 0
    over: int = 0
    """Trainings that have emerged and whose regret is falling, or no longer falls. The others are unclear."""

    @classmethod
    def count(cls, states: Iterable[LearningState | None]) -> "Learnt":
        judged = [state for state in states if state is not None and state.emergence is not None]
        words = [state.word for state in judged]
        emerged = len(words) - words.count("not learnt")
        return cls(emerged, len(words), words.count("falling"), words.count("over"))

    def __add__(self, other: "Learnt") -> "Learnt":
        return Learnt(
            self.emerged + other.emerged,
            self.of + other.of,
            self.falling + other.falling,
            self.over + other.over,
        )

    @property
    def all(self) -> bool:
        """True if no training is known to stand on the plateau."""
        return self.emerged == self.of

    @property
    def words(self) -> str:
        """The trainings on the plateau, in words; empty if no training has a state."""
        if not self.of:
            return ""
        runs = "1 run stands" if self.of == 1 else f"{self.of} runs stand"
        return f"{self.of - self.emerged} of {runs} on the plateau"


def pooled_scatter(histories: Sequence[History], rule: EmergenceRule | None = None) -> PooledVariance | None:
    """The scatter between reports, pooled over the trainings whose task has room. Without room, regret is noise."""
    has_room = [history for history in histories if emergence(history.steps, history.share, rule)]
    return report_scatter([(history.steps, history.error - history.floor) for history in has_room])


def learning_state(
    history: History, scatter: PooledVariance | None, rule: EmergenceRule | None = None
) -> LearningState:
    """The state of one training.

    Parameters
    ----------
    history
        With at least one report.
    scatter
        `pooled_scatter` of the study, or of this training alone. None leaves the end of the training unknown.
    rule
        By default two consecutive reports below .5.
    """
    share = history.share
    left = emergence(history.steps, share, rule)
    slope = trend(history.steps, history.error - history.floor, scatter) if left and scatter else None
    return LearningState(not math.isnan(history.floor), float(share[-1]), left, slope)


def learning_states(histories: Sequence[History], rule: EmergenceRule | None = None) -> list[LearningState]:
    """The states of a study's trainings, with the scatter pooled over them. Each has at least one report."""
    scatter = pooled_scatter(histories, rule)
    return [learning_state(history, scatter, rule) for history in histories]
