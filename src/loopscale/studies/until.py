"""The key `until` of a study: the study trains replicates until its claims are decided.

The key changes no trial. A study with the key trains its replicates first. It then judges its claims, and trains more
replicates of the cells that an undecided claim needs. The numbers of replicates are fixed before the
first run, because results must not choose when they are looked at.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, PositiveInt, model_validator

from loopscale.core.config import Config
from loopscale.stats.looks import LookSchedule
from loopscale.studies.mistakes import quoted
from loopscale.studies.trees import is_tree

DECIDED = "decided"
"""The value of `until` that takes all settings from their defaults."""
MOST_REPLICATES = 10_000


class UntilDecided(Config):
    """When the study looks at its claims, and when it gives a claim up."""

    looks: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = LookSchedule.seeds
    """Replicates of a cell at each look, ascending. The first look is at `replicates`, whatever this list says."""
    most: Annotated[PositiveInt, Field(le=MOST_REPLICATES)] | None = None
    """The most replicates of a cell; by default the last look."""
    futile: Annotated[float, Field(ge=0, lt=1)] = LookSchedule.futile
    """A claim is futile if the chance of a verdict at the last look is smaller. A futile claim gets no replicates."""
    own_noise: bool = False
    """Judge each pair by its own noise. Use this if the noise differs between cells; small effects take more seeds."""

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if list(self.looks) != sorted(set(self.looks)):
            listed = ", ".join(map(str, sorted(set(self.looks))))
            raise ValueError(f"the looks are not ascending; write looks: [{listed}]")
        if self.looks[-1] > MOST_REPLICATES:
            raise ValueError(f"the last look is at {self.looks[-1]:,}; write {MOST_REPLICATES:,} or less")
        return self

    def schedule(self, replicates: int) -> LookSchedule:
        """The looks of a study that starts with so many replicates. Raises ValueError for less than 2."""
        seeds = [replicates, *(seeds for seeds in self.looks if seeds > replicates)]
        if self.most is not None:
            seeds = [number for number in seeds if number < self.most] + [self.most]
        return LookSchedule(tuple(seeds), 0.0 if self.own_noise else LookSchedule.prior, self.futile)


def read_until(data: Any) -> Any:
    """Complete the notation `until: decided`. Raises ValueError for another word."""
    if data is None or is_tree(data) or isinstance(data, UntilDecided):
        return data
    if data != DECIDED:
        raise ValueError(f"until is {quoted(data)}; write until: {DECIDED}, or its settings as a mapping")
    return {}


def question_hash(question: Mapping[str, Any], study: Mapping[str, Any]) -> str:
    """The identity of a claim or law, with the evaluation that it is judged by."""
    return _hash([question, study.get("evaluate")])


def family_hash(study: Mapping[str, Any]) -> str:
    """A hash of all that decides the words of a study besides its runs.

    `study` is the study's document, or the study as plain data.
    """
    return _hash({name: study.get(name) for name in ("claims", "laws", "until", "replicates", "evaluate")})


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def look_schedule(study: Mapping[str, Any]) -> LookSchedule | None:
    """The looks of a recorded study, or None if the study has none."""
    until = study.get("until")
    if until is None:
        return None
    return UntilDecided.model_validate(until).schedule(int(study.get("replicates") or 1))
