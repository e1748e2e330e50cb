"""The interface of a solver: a predictor without trainable weights."""

from typing import Any, ClassVar

from loopscale.core.config import Family
from loopscale.core.prompt import Predictor
from loopscale.tasks.base import Task


class Solver(Family, Predictor, package="loopscale.solvers"):
    """A classical algorithm, batched over prompts and over every prefix of a prompt.

    Solvers compute in float64 and return float64, for tokens of any precision. Their errors may fall far below the
    resolution of float32.
    """

    facts = ("solves", "oracle", "uses_pairs")
    solves: ClassVar[type]
    """The type of `Batch.problem` that the solver takes. This type pairs solvers with tasks."""
    oracle: ClassVar[bool] = False
    """True if the solver reads hidden variables of the prompt, such as the true component labels. An oracle need not
    predict 0 before the first pair. Constants of the task (σ, Φ) do not count, because a net can learn them. Reports
    mark oracles as unreachable references."""
    uses_pairs: ClassVar[bool] = True
    """False if no earlier pair changes a prediction, as for play without regard to rewards."""

    def takes(self, problem: Any) -> bool:
        """True if the solver is for problems of this type."""
        return isinstance(problem, self.solves)

    @classmethod
    def stepwise(cls, problem: Any) -> tuple["Solver", ...]:
        """The instances that approach the solution step by step, as a net does layer by layer.

        A plan compares their errors after few and after many steps. The settings of an instance must not be tuned to
        the prompts. Empty for closed forms, and for problems that the algorithm is not meant for.
        """
        return ()

    def work(self, problem: Any) -> int:
        """About how many numbers a step computes for each pair of a query and a point. A plan bounds its samples."""
        return 1

    def accepts(self, problem: Any) -> bool:
        """True if the solver can run on this problem: the type fits, and the settings find all that they need."""
        return self.takes(problem)

    @property
    def guesses_from_prior(self) -> bool:
        """True if the solver predicts from a prior before the first pair. All other solvers predict 0 there."""
        return False

    def room_below(self, task: Task) -> float | None:
        """An upper bound on the distance by which any predictor's mean raw error can be below this solver's.

        The mean is over prompts and queries. 0 for the Bayes predictor of the task, and for an oracle. `None` if no
        bound is known.
        """
        return None
