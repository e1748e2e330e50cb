"""What a bound is: a number that a theorem gives for named settings, and its slope along each of them."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import NonNegativeInt, PositiveInt

from loopscale.core.config import Family

Claim = Literal["=", "~", "<=", ">="]
"""Exact at finite size, exact in a limit, an upper bound, a lower bound."""

Quantity = Literal[
    "excess",
    "excess at a point",
    "residual",
    "gap",
    "distance",
    "steps",
    "coefficient",
    "moment",
    "tangent",
    "sine",
    "cosine",
    "squared cosine",
    "probability",
    "misclassification",
    "cross entropy",
    "agreement",
    "parameter error",
    "squared parameter error",
    "prediction error",
    "generalisation gap",
    "regret",
    "layers",
    "threshold",
    "prompts",
]
"""What a bound speaks of. `excess` is the raw error - σ², averaged over all queries of a prompt; `at a point`, at the
query that has seen `point` pairs. `residual`: how much is left of the first error, as a factor. `gap`: f - f*.
`distance`: from what exact arithmetic, or the algorithm that is imitated, gives. `steps`: how many are needed, or are
the same as; `layers` likewise; `prompts`: of pretraining, how many are needed.

`tangent`, `sine`, `cosine`: of the angle to the direction sought, whichever its sign. `misclassification`: share of
points in the wrong cluster. `cross entropy`: of the labels, in nats. `agreement`: of two clusterings, 1 if they are
the same. `parameter error`: length of what an estimate is off by. `prediction error`: |prediction - what it is for|.
`generalisation gap`: loss of what pretraining finds - the best of the class. `regret`: expected reward missed,
against the best there is or against the expert named. `threshold`: of the setting at which one thing turns into
another."""


class Bound(Family, package="loopscale.theory.bounds", allow_inf_nan=False):
    """A statement of the theory. Everything is float64; nothing is drawn.

    Settings are named as a trial's where they mean the same, so that those left unset can be taken from it
    (`fill`). Settings that the statement does not cover are a ValueError, at the latest when `value` is
    called.
    """

    claim: ClassVar[Claim]
    of: ClassVar[Quantity]
    source: ClassVar[str]
    """The paper, and the theorem in it; "derived" where no paper prints it."""
    floor_of: ClassVar[str | None] = None
    """The task on which no predictor at all has less of this `excess at a point`, on average over prompts."""
    hidden_constant: ClassVar[bool] = False
    """Whether the source leaves a constant open (here 1): then only its shape may be compared, never its
    height.
    """

    def __init_subclass__(cls, **how: Any) -> None:
        """Numbers too large or too small for float64 are settings that a statement does not cover either."""
        super().__init_subclass__(**how)
        if "value" in vars(cls):
            cls.value = _within_numbers(cls.value)  # pyright: ignore[reportAttributeAccessIssue]

    @abstractmethod
    def value(self) -> float:
        """What the statement gives for these settings. Raises ValueError outside its conditions."""

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(cls.model_fields)

    @classmethod
    def fill(cls, kind: str, given: Mapping[str, Any], trial: Mapping[str, Any]) -> "Bound":
        """The bound `kind` with the settings `given`, and the others taken by name from a trial's.

        `trial` has dotted paths (`task.dim`), of which the shorter goes before one within a part
        (`training.curriculum.dim`); what neither names stays at its default. Raises ValueError for a name that the
        trial has in two such places with different values (`task.width`, `model.width`), and for an unknown kind.
        """
        chosen = type(Bound.model_validate({"kind": kind}))
        taken: dict[str, Any] = {}
        depths: dict[str, int] = {}
        for path in sorted(trial, key=lambda path: path.count(".")):
            name, depth = path.rpartition(".")[2], path.count(".")
            if name not in chosen.model_fields or name in given or depths.setdefault(name, depth) < depth:
                continue
            if taken.setdefault(name, trial[path]) != trial[path]:
                raise ValueError(f"{kind}: give {name!r}, the trial has it in two places, {path} for one")
        return Bound.model_validate({"kind": kind} | taken | dict(given))

    def at(self, **changes: int | float | None) -> "Bound":
        """The same statement with some settings changed."""
        return type(self).model_validate(self.model_dump() | changes)

    def along(self, setting: str, values: Iterable[int | float] | np.ndarray) -> Float[np.ndarray, " values"]:
        """The bound for each of these values of one setting."""
        return np.array([self.at(**{setting: value}).value() for value in np.asarray(list(values)).tolist()])

    def slope(self, setting: str, over: tuple[int | float, int | float] | None = None) -> float:
        """d log value / d log setting: between the ends of `over`, else here.

        Here means between the integers on either side, or 1 % on either side of a real number; one side
        only at the end of the domain. Raises ValueError where there is no slope: for a value that is not
        positive and finite.
        """
        ends = over or self._beside(setting)
        if min(ends) <= 0:
            raise ValueError(f"{self.kind} has no slope in {setting} between {ends}: 0 has no logarithm")
        low, high = self.along(setting, ends)
        if not (0 < low < math.inf and 0 < high < math.inf):
            raise ValueError(f"{self.kind} has no slope in {setting}: it is {low:g} and {high:g} at {ends}")
        return math.log(high / low) / math.log(ends[1] / ends[0])

    def _beside(self, setting: str) -> tuple[int | float, int | float]:
        here = getattr(self, setting) if setting in self.settings() else None
        if isinstance(here, bool) or not isinstance(here, int | float):
            raise ValueError(f"{self.kind} has no number {setting!r}; there is {', '.join(self.settings())}")
        below, above = (here - 1, here + 1) if isinstance(here, int) else (here / 1.01, here * 1.01)
        ends = [x if x > 0 and self._holds(setting, x) else here for x in (below, above)]
        if ends[0] == ends[1]:
            raise ValueError(f"{self.kind} holds at {setting} = {here:g} alone, of what is near")
        return ends[0], ends[1]

    def _holds(self, setting: str, value: int | float) -> bool:
        try:
            return math.isfinite(self.at(**{setting: value}).value())
        except ValueError:
            return False

    def require(self, holds: bool, condition: str) -> None:
        """Raises ValueError, naming the condition and the settings, unless it holds."""
        if not holds:
            settings = ", ".join(f"{name} {getattr(self, name)}" for name in self.settings())
            raise ValueError(f"{self.kind} holds for {condition}; not for {settings}")


def _within_numbers(value: Callable[[Any], float]) -> Callable[[Any], float]:
    @wraps(value)
    def guarded(bound: Bound) -> float:
        try:
            return value(bound)
        except ArithmeticError as problem:
            settings = ", ".join(f"{name} {getattr(bound, name)}" for name in bound.settings())
            raise ValueError(f"{bound.kind} is beyond the numbers of float64 for {settings}") from problem

    return guarded


class InContext(Bound):
    """A statement about what can be predicted from the pairs before a query; `point` = those pairs, N in the
    papers.
    """

    dim: PositiveInt = 20
    """d, coordinates of x."""
    points: PositiveInt = 40
    """Pairs in the prompt."""
    point: NonNegativeInt | None = None
    """Pairs seen before the query; by default those before the last one, points - 1."""

    @property
    def seen(self) -> int:
        """N."""
        return self.points - 1 if self.point is None else self.point
