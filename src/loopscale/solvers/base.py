"""What a solver is: a predictor with nothing to train."""

from typing import ClassVar

from loopscale.core.config import Family
from loopscale.core.prompt import Predictor


class Solver(Family, Predictor, package="loopscale.solvers"):
    """A classical algorithm, in float64, batched over prompts and over every prefix of a prompt."""

    solves: ClassVar[type]
    """The type of `Batch.problem` that it takes: this, and no table, pairs solvers with tasks."""
