"""What a solver is: a predictor with nothing to train."""

from typing import Any, ClassVar

from loopscale.core.config import Family
from loopscale.core.prompt import Predictor
from loopscale.tasks.base import Task


class Solver(Family, Predictor, package="loopscale.solvers"):
    """A classical algorithm, batched over prompts and over every prefix of a prompt.

    It computes in float64 and answers in float64, whatever the tokens are in: its error may fall far below
    what float32 resolves, and that fall is what it is drawn for.
    """

    solves: ClassVar[type]
    """The type of `Batch.problem` that it takes: this, and no table, pairs solvers with tasks."""
    oracle: ClassVar[bool] = False
    """Whether it is told what is drawn for a prompt and stands nowhere in it, and so need not guess 0 before the first
    pair. What is the same in all prompts, as a task's σ or its Φ, a net can learn: who is told that is none.
    """

    def takes(self, problem: Any) -> bool:
        """Whether it is for problems of this type."""
        return isinstance(problem, self.solves)

    def accepts(self, problem: Any) -> bool:
        """Whether it can be run on this problem: it is of the type, and has what the settings ask for."""
        return self.takes(problem)

    @property
    def guesses_from_prior(self) -> bool:
        """Whether it knows where targets lie before any is seen; every other solver guesses 0 there."""
        return False

    def room_below(self, task: Task) -> float | None:
        """How far below this solver's raw error on the task, over prompts and queries, any predictor can be on average.

        0 for the task's Bayes predictor, and for an oracle; `None` where nothing is known.
        """
        return None
