"""The axis of a law: its place for a cell, its values along a curve, and the settings that it needs.

A law runs along a numeric scientific setting, or along an axis of this family. A law names the axis by its kind.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from loopscale.core.config import Family
from loopscale.questions.measures import CURVE_MEASURES, CurveMeasure

Array, Counts = NDArray[np.float64], NDArray[np.int64]


class LawAxis(Family, package="loopscale.questions.axes"):
    """An axis that a law can run along. Without a curve, the place of a cell is the product of its factors."""

    facts = ("title",)
    title: ClassVar[str] = ""
    """The title in figures, with the unit in parentheses. Empty for the name of the setting."""
    curve: ClassVar[bool] = False
    """True if every run has a whole curve along the axis."""
    at_query: ClassVar[bool] = False
    """True if a value of the curve belongs to one query, and is no mean over queries."""
    rate_form: ClassVar[str] = ""
    """The form of the rates whose noise plans know. For curves alone."""
    logarithmic: ClassVar[bool] = False
    """True if figures show the axis on a logarithmic scale for every form."""
    factors: ClassVar[tuple[str, ...]] = ()
    """The settings whose product is the place of a cell."""
    measured: ClassVar[bool] = False
    """True if the place is the run's measure of the axis's name. Then only cells count that no other cell beats with
    less of this measure."""
    varied: ClassVar[tuple[str, ...]] = ()
    """The settings in which the cells of one law may differ. A text that ends with a dot stands for all numeric
    settings below. The study must vary a number of one of them."""
    is_training: ClassVar[bool] = False
    """True if a step along the axis is more training."""
    not_held_out: ClassVar[str] = ""
    """The reason why no value of the axis can be held out; empty if values can."""

    @property
    def rate_measure(self) -> str:
        """The name of the rates along the curve in the table of noise."""
        return f"rate along {self.kind}"

    def may_vary(self, numeric: Iterable[str]) -> set[str]:
        """The settings in which the cells of one law may differ; `numeric` are the numeric settings of the study."""
        whole = {path for path in self.varied if not path.endswith(".")}
        return whole | {path for path in numeric if path.startswith(self.varied)}

    def place(self, value: Callable[[str], object]) -> float:
        """The place of a cell or run, from its settings and measures by name; NaN if a factor is no number."""
        return math.prod(as_number(value(name)) for name in self.factors or (self.kind,))

    def curve_places(self, trained: int, seen: Sequence[int]) -> list[float]:
        """The places of a curve before its training, from the trained loops and the pairs before each query."""
        loops, points = np.arange(1, trained + 1), np.array(seen)
        grid = np.zeros((len(loops), len(points)))
        return self.along_curve(loops, points, grid, len(loops), CURVE_MEASURES["error"])[0].tolist()

    def along_curve(
        self, loops: Counts, points: Counts, grid: Array, trained: int, measure: CurveMeasure
    ) -> tuple[Array, Array]:
        """The places of a run's curve, and the measure there.

        Parameters
        ----------
        loops, points
            The loops of the curve, and the pairs seen before each query, in ascending order.
        grid
            The values of the curve [loops, points].
        trained
            The loop at which the net is judged.
        """
        raise NotImplementedError(f"a run has no curve along {self.kind}")


class Setting(LawAxis):
    """A numeric scientific setting."""

    path: str

    @override
    def place(self, value: Callable[[str], object]) -> float:
        return as_number(value(self.path))


def axis_of(along: str) -> LawAxis:
    """The axis that a law names: a member of the family, or a setting by its dotted path."""
    member = None if "." in along else LawAxis.member(along)
    return member() if member else Setting(path=along)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_number(value: object) -> float:
    """A number as a float; NaN for anything else."""
    return float(value) if isinstance(value, int | float) and is_number(value) else math.nan
