"""The key `until` of a study: the study trains replicates until its claims and laws are decided.

The key changes no trial. A study with the key trains its replicates first. The study then judges its claims, and the
laws that have a theory. An undecided claim or law gets more replicates in its own cells. The numbers of replicates are
fixed before the first run, because results must not choose the times of the looks. The key may also permit longer
trainings of nets that have not learnt, or whose errors still fall. The key may also hold values of an axis in reserve.
A law along the axis that stays open orders cells with these values.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Self, cast

from pydantic import Field, PositiveInt, model_validator

from loopscale.core.config import Config, is_tree
from loopscale.notation.mistakes import quoted
from loopscale.stats.looks import LookSchedule

DECIDED = "decided"
"""The value of `until` that takes all settings from their defaults."""
MOST_REPLICATES = 10_000
MOST_STEPS = 64
"""The largest factor of the steps."""
HASHED = ("claims", "laws", "until", "replicates", "evaluate")
"""The parts of a study that decide its words, besides its runs."""
OF_UNTIL: dict[str, Any] = {"steps": 1, "values": {}}
"""Settings of `until` that are younger than the hashes, with the values that say nothing."""
LATER_OF_CLAIMS: dict[str, Any] = {"over": [], "regret": None, "level": None}
LATER_OF_LAWS: dict[str, Any] = {"regret": None, "basis": "steps"}
"""Settings of claims and laws that are younger than the hashes, with the values that say nothing."""


class UntilDecided(Config):
    """When the study looks at its claims and laws, and when it gives one up."""

    looks: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = LookSchedule.seeds
    """Replicates of a cell at each look, ascending. The first look is always at `replicates`."""
    most: Annotated[PositiveInt, Field(le=MOST_REPLICATES)] | None = None
    """The most replicates of a cell; by default the last look."""
    futile: Annotated[float, Field(ge=0, lt=1)] = LookSchedule.futile
    """A claim or law with a smaller chance of a verdict at the last look is futile, and gets no replicates."""
    steps: Annotated[PositiveInt, Field(le=MOST_STEPS)] = 1
    """The largest factor of the steps: 1, 2, 4, .. The study trains nets again at twice the steps, up to this factor.
    These are nets that have not learnt, and nets of undecided questions whose errors still fall."""
    values: dict[str, Annotated[tuple[int | float, ...], Field(min_length=1)]] = {}
    """Values of one scientific axis in reserve, as in `{training.loops: [16, 32]}`. A law along the axis that stays
    open orders the cells with these values, if they decide the law for fewer FLOPs than replicates."""
    own_noise: bool = False
    """Judge each pair of cells by its own noise. Use this if the noise differs; small effects then take more seeds."""

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if list(self.looks) != sorted(set(self.looks)):
            listed = ", ".join(map(str, sorted(set(self.looks))))
            raise ValueError(f"the looks are not ascending; write looks: [{listed}]")
        if self.looks[-1] > MOST_REPLICATES:
            raise ValueError(f"the last look is at {self.looks[-1]:,}; write {MOST_REPLICATES:,} or less")
        if self.steps & (self.steps - 1):
            lower = 2 ** (self.steps.bit_length() - 1)
            raise ValueError(
                f"steps is {self.steps}, but every order doubles the steps; write steps: {lower}"
            )
        if len(self.values) > 1:
            raise ValueError(f"values names {len(self.values)} axes; name one")
        return self

    @property
    def factors(self) -> tuple[int, ...]:
        """The permitted factors of the steps, ascending from 1."""
        return tuple(2**doublings for doublings in range(self.steps.bit_length()))

    def schedule(self, replicates: int) -> LookSchedule:
        """The looks of a study that starts with `replicates`. Raises ValueError for less than 2."""
        seeds = [replicates, *(seeds for seeds in self.looks if seeds > replicates)]
        if self.most is not None:
            seeds = [number for number in seeds if number < self.most] + [self.most]
        prior = 0.0 if self.own_noise else LookSchedule.prior
        return LookSchedule(tuple(seeds), prior, self.futile, len(self.factors))


def read_until(data: Any) -> Any:
    """Complete the notation `until: decided`. Raises ValueError for another word."""
    if data is None or is_tree(data) or isinstance(data, UntilDecided):
        return data
    if data != DECIDED:
        raise ValueError(f"until is {quoted(data)}; write until: {DECIDED}, or its settings as a mapping")
    return {}


def in_reserve(until: Mapping[str, Any] | UntilDecided | None, values: Mapping[str, Any]) -> bool:
    """True if a cell with these values is trained only if a law stays open.

    Parameters
    ----------
    until
        The key of the study, or the same as plain data.
    values
        The scientific settings of the cell, by dotted path.
    """
    if until is None:
        return False
    reserve = until.values if isinstance(until, UntilDecided) else until.get("values") or {}
    return any(values.get(axis) in reserved for axis, reserved in reserve.items())


def question_hash(question: Mapping[str, Any], study: Mapping[str, Any]) -> str:
    """The identity of a claim or law, with the evaluation that it is judged by."""
    younger = LATER_OF_LAWS if "along" in question else LATER_OF_CLAIMS
    return _hash([_without_absent(question, younger), _evaluate(study)])


def family_hash(study: Mapping[str, Any]) -> str:
    """A hash of all that decides the words of a study besides its runs.

    `study` is the study's document, or the study as plain data.
    """
    hashed = {name: study.get(name) for name in HASHED} | {"evaluate": _evaluate(study)}
    if isinstance(hashed["until"], Mapping):
        hashed["until"] = _without_absent(cast("Mapping[str, Any]", hashed["until"]), OF_UNTIL)
    for name, younger in (("claims", LATER_OF_CLAIMS), ("laws", LATER_OF_LAWS)):
        if questions := cast("list[Mapping[str, Any]] | None", hashed.get(name)):
            hashed[name] = [_without_absent(question, younger) for question in questions]
    return _hash(hashed)


def _without_absent(settings: Mapping[str, Any], absent: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as hashes see them: without later settings that say nothing."""
    return {name: value for name, value in settings.items() if name not in absent or value != absent[name]}


def _evaluate(study: Mapping[str, Any]) -> Any:
    """The evaluation of a study as hashes see it: without further measures where it names none."""
    evaluate = study.get("evaluate")
    if not isinstance(evaluate, Mapping):
        return evaluate
    settings = cast("Mapping[str, Any]", evaluate)
    if settings.get("measures"):
        return settings
    return {
        name: value for name, value in settings.items() if name != "measures"
    }  # as before the setting existed


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def look_schedule(study: Mapping[str, Any]) -> LookSchedule | None:
    """The looks of a recorded study, or None if the study has none."""
    until = study.get("until")
    if until is None:
        return None
    return UntilDecided.model_validate(until).schedule(int(study.get("replicates") or 1))
