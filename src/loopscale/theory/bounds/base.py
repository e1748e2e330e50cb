"""The base class of bounds: a number that a theorem gives for named settings, and its slope in a setting."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import NonNegativeInt, PositiveInt
from typing_extensions import override

from loopscale.theory.statement import Statement

Claim = Literal["=", "~", "<=", ">="]
"""Exact at finite size, exact in a limit, an upper bound, a lower bound."""

Quantity = Literal[
    "excess",  # squared error minus σ², averaged over all queries of a prompt
    "excess at a point",  # squared error minus σ² at the query that follows `point` pairs
    "residual",  # error after the iterations, divided by the initial error
    "gap",  # objective or loss minus its minimum
    "distance",  # to the result of exact arithmetic, or to the result of the imitated algorithm
    "steps",  # a sufficient, necessary or equivalent number
    "coefficient",
    "moment",
    "tangent",  # tangent, sine and cosine of the angle to the target direction, whose sign does not matter
    "sine",
    "cosine",
    "squared cosine",
    "probability",
    "misclassification",  # share of points in the wrong cluster
    "cross entropy",  # of the labels, in nats
    "agreement",  # similarity of two clusterings, 1 if they are equal
    "parameter error",  # Euclidean norm of the estimate minus the parameter
    "squared parameter error",
    "prediction error",  # |prediction - target|
    "generalisation gap",  # loss of the pretrained model minus the lowest loss in the model class
    "regret of play",  # expected reward below that of the best player, or of the named expert
    "layers",  # a sufficient, necessary or equivalent number
    "threshold",  # value of a setting at which the behaviour changes
    "prompts",  # number of pretraining prompts
]
UNMEASURED: dict[Quantity, str] = {
    "coefficient": "coefficients",
    "moment": "moments",
    "layers": "sufficient layers",
    "threshold": "thresholds",
}
"""Quantities that are no error, no play and no time of a trial."""


class Bound(Statement, package="loopscale.theory.bounds", allow_inf_nan=False):
    """A statement of the theory, evaluated in float64 without random draws.

    A setting has the name of the trial's setting with the same meaning, so that `fill` can copy its value
    from a trial. Settings outside the conditions of the statement raise ValueError, at the latest in `value`.
    """

    facts = ("source", "claim", "of", "floor_of", "hidden_constant")
    claim: ClassVar[Claim]
    of: ClassVar[Quantity]
    floor_of: ClassVar[str | None] = None
    """The task, if any, on which no predictor has a smaller mean `excess at a point`."""
    hidden_constant: ClassVar[bool] = False
    """True if the source leaves a constant open. The constant is then 1, and only the shape can be compared."""
    without_study: ClassVar[str] = ""
    """The reason why no study of the package compares a law with the bound; empty if there is none."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Wrap `value`: an overflow of float64 raises ValueError, like a violated condition."""
        super().__init_subclass__(**keywords)
        if "value" in vars(cls):
            cls.value = _refuse_overflow(cls.value)  # pyright: ignore[reportAttributeAccessIssue]

    @classmethod
    @override
    def claimed(cls) -> str:
        symbol = {"<=": "≤", ">=": "≥"}.get(cls.claim, cls.claim)
        return f"{symbol} shape" if cls.hidden_constant else symbol

    @classmethod
    @override
    def subject(cls) -> str:
        return cls.of

    @classmethod
    def reason_without_study(cls) -> str:
        """The declared reason, or the reason that follows from the quantity; empty if there is none."""
        return cls.without_study or (
            f"no trial measures {UNMEASURED[cls.of]}" if cls.of in UNMEASURED else ""
        )

    @abstractmethod
    def value(self) -> float:
        """Evaluate the statement. Raises ValueError outside its conditions."""

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """Names of the settings."""
        return tuple(cls.model_fields)

    @classmethod
    def fill(cls, kind: str, given: Mapping[str, Any], trial: Mapping[str, Any]) -> "Bound":
        """Build the bound `kind` from given settings, and the others from a trial's settings of the same name.

        `trial` has dotted paths. A short path (`task.dim`) takes precedence over a longer one
        (`training.curriculum.dim`). Settings in neither mapping keep their defaults. Raises ValueError if the
        kind is unknown, or if two paths of equal length end in the same name and have different values
        (`task.width`, `model.width`).
        """
        member = type(Bound.model_validate({"kind": kind}))
        paths: dict[str, str] = {}
        for path in sorted(trial, key=lambda path: path.count(".")):
            name = path.rpartition(".")[2]
            if name not in member.model_fields or name in given:
                continue
            first = paths.setdefault(name, path)
            if path.count(".") == first.count(".") and trial[path] != trial[first]:
                raise ValueError(f"{kind}: give {name!r}, because {first} and {path} have different values")
        taken = {name: trial[path] for name, path in paths.items()}
        return Bound.model_validate({"kind": kind} | taken | dict(given))

    def at(self, **changes: int | float | None) -> "Bound":
        """The same statement with some settings changed."""
        return type(self).model_validate(self.model_dump() | changes)

    def along(self, setting: str, values: Iterable[int | float] | np.ndarray) -> Float[np.ndarray, " values"]:
        """Values of the bound for several values of one setting."""
        return np.array([self.at(**{setting: value}).value() for value in np.asarray(list(values)).tolist()])

    def slope(self, setting: str, over: tuple[int | float, int | float] | None = None) -> float:
        """Slope d log value / d log setting between two values of the setting.

        Without `over`, the two values are the neighbouring integers, or 1 % below and above a real number. At
        the end of the domain, the current value replaces the missing neighbour. Raises ValueError if the
        setting or the bound is not positive and finite at both values.
        """
        ends = over or self._neighbours(setting)
        if min(ends) <= 0:
            raise ValueError(f"{self.kind} has no slope in {setting} between {ends}: 0 has no logarithm")
        low, high = self.along(setting, ends)
        if not (0 < low < math.inf and 0 < high < math.inf):
            raise ValueError(
                f"{self.kind} has no slope in {setting}: its values at {ends} are {low:g} and {high:g}"
            )
        return math.log(high / low) / math.log(ends[1] / ends[0])

    def _neighbours(self, setting: str) -> tuple[int | float, int | float]:
        value = getattr(self, setting) if setting in self.settings() else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(
                f"{self.kind} has no number {setting!r}; its settings are {', '.join(self.settings())}"
            )
        below, above = (value - 1, value + 1) if isinstance(value, int) else (value / 1.01, value * 1.01)
        ends = [x if x > 0 and self._is_finite(setting, x) else value for x in (below, above)]
        if ends[0] == ends[1]:
            raise ValueError(
                f"{self.kind} has no slope in {setting}: the bound has no value close to {value:g}"
            )
        return ends[0], ends[1]

    def _is_finite(self, setting: str, value: int | float) -> bool:
        try:
            return math.isfinite(self.at(**{setting: value}).value())
        except ValueError:
            return False

    def require(self, holds: bool, condition: str) -> None:
        """Raise ValueError with the condition and the settings unless the condition holds."""
        if not holds:
            raise ValueError(f"{self.kind} requires {condition}; its settings are {self._settings_text()}")

    def _settings_text(self) -> str:
        return ", ".join(f"{name} {getattr(self, name)}" for name in self.settings())


def _refuse_overflow(value: Callable[[Any], float]) -> Callable[[Any], float]:
    @wraps(value)
    def checked(bound: Bound) -> float:
        try:
            return value(bound)
        except ArithmeticError as problem:
            settings = bound._settings_text()
            raise ValueError(f"{bound.kind} exceeds the range of float64 for {settings}") from problem

    return checked


class InContext(Bound):
    """A statement about a prediction from the pairs before a query: `point` pairs, N in the papers."""

    dim: PositiveInt = 20
    """d, the dimension of x."""
    points: PositiveInt = 40
    """Number of pairs in the prompt."""
    point: NonNegativeInt | None = None
    """N, the number of pairs before the query. By default the query is the last pair, so that N = points - 1."""

    @property
    def seen(self) -> int:
        """N, the number of pairs before the query."""
        return self.points - 1 if self.point is None else self.point
