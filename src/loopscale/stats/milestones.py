"""Milestones of a training: the plateau is left, or the regret falls below a level.

A milestone is passed between two reports, so the steps until then are an interval. A training that never passes is
censored at its last report [@turnbull1976].

A milestone is a measure, and its name says all of it: `emerged_at`, `reached 0.05`, `reached 0.05 in flops`. In a
study's file, `of: reached` has the level under `regret`, and the unit under `basis`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from loopscale.stats.learning import Emergence, EmergenceRule, History, emergence

Unit = Literal["steps", "flops", "seconds"]
EMERGED_AT = "emerged_at"
REACHED = "reached"
KINDS = (EMERGED_AT, REACHED)
"""The milestones that a study's file can name."""
_NAME = re.compile(rf"(?:{EMERGED_AT}|{REACHED} (?P<regret>\S+))(?: in (?P<unit>flops|seconds))?")
_UNITS = {"steps": "steps", "flops": "FLOPs", "seconds": "seconds"}


@dataclass(frozen=True)
class Milestone:
    """An event that a training passes at most once."""

    regret: float | None = None
    """The milestone is a mean regret below this level at two consecutive reports. None: the training emerges."""
    unit: Unit = "steps"
    """Whether the steps, the FLOPs or the seconds until the milestone are the measure."""

    @classmethod
    def parse(cls, measure: str) -> "Milestone | None":
        """The milestone of a measure's name; None for any other measure."""
        found = _NAME.fullmatch(measure)
        if not found:
            return None
        level = found["regret"]
        return cls(None if level is None else float(level), cast("Unit", found["unit"] or "steps"))

    @property
    def measure(self) -> str:
        """The name of the measure."""
        name = EMERGED_AT if self.regret is None else f"{REACHED} {self.regret:.12g}"
        return name if self.unit == "steps" else f"{name} in {self.unit}"

    @property
    def words(self) -> str:
        """The measure in a text."""
        event = "emergence" if self.regret is None else f"a regret of {self.regret:.3g}"
        return f"{_UNITS[self.unit]} until {event}"

    @property
    def verb(self) -> str:
        """What trainings do that pass, in a text."""
        return "emerge" if self.regret is None else f"reach a regret of {self.regret:.3g}"

    def passed(self, history: History) -> Emergence | None:
        """The two reports between which a training passed, in steps.

        Returns
        -------
        Emergence or None
            None if the floor is unknown, if a report is no number, or if the plateau is asked for and the task has no
            room.
        """
        if self.regret is None:
            return emergence(history.steps, history.share)
        regret = np.asarray(history.error, np.float64) - history.floor
        return emergence(history.steps, regret, EmergenceRule(below=self.regret))


def is_milestone(measure: str) -> bool:
    """True for measures that censor a training on the plateau, and need no training that has learnt."""
    return Milestone.parse(measure) is not None


def measure_of(question: Mapping[str, Any]) -> str:
    """The measure of a law or a claim, as plain data. Without `of` a law is of the error."""
    of, unit = str(question.get("of") or "error"), question.get("basis") or "steps"
    if of not in KINDS:
        return of
    return Milestone(float(question["regret"]) if of == REACHED else None, unit).measure


def check_regret(of: str, level: float | None) -> None:
    """Raise ValueError unless `of: reached`, and nothing else, comes with its level."""
    if of == REACHED and level is None:
        raise ValueError("reached is the time until the regret is below a level; write regret: 0.05")
    if of != REACHED and level is not None:
        raise ValueError(f"regret is the level of reached, and this is of {of}; leave out regret")
