"""The ranges that a study tunes. Both ends of a range are included."""

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from loopscale.core.config import Config, same_value
from loopscale.notation.mistakes import quoted

LARGEST = 2**53
"""Records and samplers store whole numbers as floats, which are exact up to this number."""

MOST_LISTED = 10_000
"""Points of whole numbers and choices up to which all points are listed."""
MOST_STEPS = 1_000_000
"""Steps of a range. More have no use, and samplers count them."""
MOST_DRAWS = 10_000
"""Random points among which a feasible point must be."""

Points = Annotated[int, Field(ge=2, le=10_000)]
Scale = Literal["linear", "log"]


def _single_value(data: Any) -> Any:
    if isinstance(data, list | tuple | Mapping):
        raise ValueError(f"a value to choose is {quoted(data)}; write single values, as in choice: [1, 2, 4]")
    return data


Scalar = Annotated[str | bool | int | float | None, BeforeValidator(_single_value)]
Whole = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]


class Choice(Config):
    """One of several values, as in `model.heads: {choice: [1, 2, 4]}`."""

    choice: tuple[Scalar, ...]
    """The values, each once. Their order has no meaning."""

    @property
    def ends(self) -> tuple[Any, ...]:
        """All values: any of them may be an extreme."""
        return self.choice

    @property
    def values(self) -> tuple[Any, ...]:
        """All values, in order."""
        return self.choice

    @property
    def size(self) -> float:
        return len(self.choice)

    def place(self, value: float) -> float:
        """NaN: values without an order have no place."""
        return math.nan

    def grid(self) -> tuple[Any, ...]:
        return self.choice

    def draw(self, numbers: random.Random) -> Any:
        return numbers.choice(self.choice)

    def read(self, value: Any) -> Any:
        """The value as a point has it. Raises ValueError if the value is not among the choices."""
        for each in self.choice:
            if same_value(each, value):
                return each
        raise ValueError(
            f"{quoted(value)} is not among {quoted(list(self.choice))}; write one of these values"
        )

    @model_validator(mode="after")
    def _values_differ(self) -> Self:
        if not self.choice:
            raise ValueError("choice is empty; write the values to choose from, as in choice: [1, 2, 4]")
        if len({(isinstance(value, bool), value) for value in self.choice}) < len(self.choice):
            raise ValueError("choice has a value twice; write every value once")
        return self


class Integer(Config):
    """A whole number in a range, as in `model.width: {integer: [16, 128], scale: log}`."""

    integer: tuple[Whole, Whole]
    """The lowest and the highest value, both included."""
    scale: Scale = "linear"
    """linear: equal differences are equally likely. log: equal ratios are equally likely."""
    points: Points | None = None
    """Number of values that a grid takes from the range; other searches ignore it."""
    step: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Distance of neighbouring values, from the lowest value on. The default is 1."""

    @property
    def ends(self) -> tuple[int, int]:
        return self.integer

    @property
    def values(self) -> Sequence[int]:
        """All values, in order."""
        low, high = self.integer
        return range(low, high + 1, self.step or 1)

    @property
    def size(self) -> float:
        low, high = self.integer
        return (high - low) // (self.step or 1) + 1

    def place(self, value: float) -> float:
        """Position of a value within the range, on its scale: 0 at the lowest end, 1 at the highest."""
        return _place(value, self)

    def grid(self) -> tuple[int, ...]:
        """The values of a grid, each once. Raises ValueError without `points` or `step`."""
        if self.step:
            return tuple(self.values)
        return tuple(dict.fromkeys(int(value) for value in np.rint(_spread(self))))

    def draw(self, numbers: random.Random) -> int:
        """A random value. All values are equally likely on a linear scale, and equal ratios on a log scale."""
        low, high = self.integer
        if self.step:
            return numbers.choice(self.values)
        if self.scale == "linear":
            return numbers.randint(low, high)
        return min(
            high, max(low, round(math.exp(numbers.uniform(math.log(low - 0.5), math.log(high + 0.5)))))
        )

    def read(self, value: Any) -> int:
        """The value as a point has it. Raises ValueError if the value is outside the range."""
        return int(_inside(value, self))

    @model_validator(mode="after")
    def _low_before_high(self) -> Self:
        _check_ends(self)
        return self


class Real(Config):
    """A number in a range, as in `training.lr: {real: [1e-4, 1e-2], scale: log}`."""

    real: tuple[float, float]
    """The lowest and the highest value, both included."""
    scale: Scale = "linear"
    """linear: equal differences are equally likely. log: equal ratios are equally likely."""
    points: Points | None = None
    """Number of values that a grid takes from the range; other searches ignore it."""
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Distance of neighbouring values, from the lowest value on. By default all numbers of the range may be tried."""

    @property
    def ends(self) -> tuple[float, float]:
        return self.real

    @property
    def values(self) -> tuple[float, ...]:
        """All values of a range with a step, in order. Raises ValueError without a step."""
        if not self.step:
            raise ValueError(f"the range {list(self.real)} has no list of values; write step: n with it")
        low, high = self.real
        return (*(float(f"{low + n * self.step:.12g}") for n in range(int(self.size) - 1)), high)

    @property
    def size(self) -> float:
        low, high = self.real
        return round((high - low) / self.step) + 1 if self.step else math.inf

    def place(self, value: float) -> float:
        """Position of a value within the range, on its scale: 0 at the lowest end, 1 at the highest."""
        return _place(value, self)

    def grid(self) -> tuple[float, ...]:
        """The values of a grid, each once: rounding can make neighbours equal.

        Raises ValueError without `points` or `step`.
        """
        if self.step:
            return self.values
        low, high = self.real
        inner = np.clip(_spread(self)[1:-1], low, high).tolist()
        return tuple(dict.fromkeys((low, *inner, high)))

    def draw(self, numbers: random.Random) -> float:
        """A random value: uniform on the range's scale."""
        low, high = self.real
        if self.step:
            return self.nearest(low + self.step * numbers.randrange(int(self.size)))
        if self.scale == "linear":
            return numbers.uniform(low, high)
        return min(high, max(low, math.exp(numbers.uniform(math.log(low), math.log(high)))))

    def read(self, value: Any) -> float:
        """The value as a point has it. Raises ValueError if the value is outside the range."""
        return self.nearest(float(_inside(value, self)))

    def nearest(self, value: float) -> float:
        """The value of the range next to a number: with a step, the number without its rounding error."""
        if not self.step:
            return value
        low, high = self.real
        return min(high, max(low, float(f"{low + self.step * round((value - low) / self.step):.12g}")))

    @model_validator(mode="after")
    def _low_before_high(self) -> Self:
        _check_ends(self)
        return self


def _place(value: float, axis: Integer | Real) -> float:
    low, high = axis.ends
    if axis.scale == "log":
        return math.log(value / low) / math.log(high / low) if value > 0 else -math.inf
    return (value - low) / (high - low)


def _inside(value: Any, axis: Integer | Real) -> float:
    low, high = axis.ends
    number = isinstance(value, int | float) and not isinstance(value, bool)
    whole = isinstance(axis, Integer)
    if not number or not low <= value <= high or (whole and value != int(value)):
        noun = "whole number" if whole else "number"
        raise ValueError(
            f"{quoted(value)} is not in [{low}, {high}]; write a {noun} of the range, or widen it"
        )
    if axis.step and not _is_whole((value - low) / axis.step):
        raise ValueError(
            f"{quoted(value)} is no whole number of steps of {axis.step} from {low}; write such a value, or remove step"
        )
    return value


def _is_whole(steps: float) -> bool:
    """True for a whole number, up to rounding."""
    return abs(steps - round(steps)) <= 1e-9 * max(1.0, abs(steps))


def _spread(axis: Integer | Real) -> list[float]:
    """`points` equally spaced values, on the range's scale. Raises ValueError without `points`."""
    low, high = axis.ends
    if axis.points is None:
        raise ValueError(f"a grid over {[low, high]} needs points: n, how many values to take from the range")
    spaced = np.geomspace if axis.scale == "log" else np.linspace
    return spaced(low, high, axis.points).tolist()


def _check_ends(axis: Integer | Real) -> None:
    low, high = axis.ends
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError(f"the range [{low}, {high}] has no end; write two finite numbers")
    if low == high:
        raise ValueError(f"the range [{low}, {high}] holds one value; put it under fixed")
    if low > high:
        raise ValueError(f"the range [{low}, {high}] is reversed; write [{high}, {low}]")
    if axis.scale == "log" and low <= 0:
        raise ValueError(f"a log scale cannot begin at {low}; begin above 0 or write scale: linear")
    if axis.step:
        _check_step(axis, axis.step)


def _check_step(axis: Integer | Real, step: float) -> None:
    low, high = axis.ends
    steps = (high - low) / step
    if axis.scale == "log":
        raise ValueError("a log scale has no step; remove step, or write choice: [...]")
    if axis.points is not None:
        raise ValueError("points and step both say which values to take; keep one of the two")
    if steps > MOST_STEPS:
        raise ValueError(
            f"the range [{low}, {high}] has {steps:,.3g} steps of {step}; write a larger step, or none"
        )
    if not _is_whole(steps):
        last = float(f"{low + math.floor(steps) * step:.12g}")
        last = int(last) if isinstance(axis, Integer) else last
        remedy = f"write [{low}, {last}]" if last > low else "write a smaller step"
        raise ValueError(f"the range [{low}, {high}] is no whole number of steps of {step}; {remedy}")


Axis = Choice | Integer | Real
FORMS: dict[str, type[Axis]] = {"choice": Choice, "integer": Integer, "real": Real}


def _axis(data: Any) -> Any:
    """Pick the form by its key, so that mistakes are reported for this form only."""
    if isinstance(data, Axis):
        return data
    forms = [form for form in FORMS if isinstance(data, Mapping) and form in data]
    if len(forms) != 1:
        raise ValueError(
            "a range needs one of choice, integer, real; write it as in {real: [1e-4, 1e-2], scale: log}"
        )
    return FORMS[forms[0]].model_validate(data)


Space = Annotated[
    dict[str, Annotated[Axis, BeforeValidator(_axis)]],
    Field(description="Ranges that are tuned in each cell separately: dotted path into the trial -> range."),
]


def finite_points(space: Mapping[str, Axis]) -> Iterator[dict[str, Any]] | None:
    """Every point of the ranges in order; None if there are more than MOST_LISTED."""
    if math.prod(axis.size for axis in space.values()) > MOST_LISTED:
        return None
    values = (axis.values for axis in space.values())
    return (dict(zip(space, each, strict=True)) for each in itertools.product(*values))


def draws(space: Mapping[str, Axis], name: str) -> Iterator[dict[str, Any]]:
    """MOST_DRAWS random points. `name` names the random numbers."""
    numbers = random.Random(name)
    return ({path: axis.draw(numbers) for path, axis in space.items()} for _ in range(MOST_DRAWS))


def held_point(space: Mapping[str, Axis], point: Mapping[str, Any]) -> dict[str, Any] | None:
    """The point with its values as the ranges have them, such as 1.0 for 1; None if a range does not hold its value.

    Ranges may be narrower, or of another type, than at the time of a record.
    """
    if point.keys() != space.keys():
        return None
    try:
        return {path: space[path].read(value) for path, value in point.items()}
    except ValueError:
        return None
