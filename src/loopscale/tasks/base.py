"""The base class of tasks."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
from jaxtyping import Float
from pydantic import PositiveInt, model_validator
from torch import Tensor
from typing_extensions import override

from loopscale.core.config import Family
from loopscale.core.prompt import Batch, Predictor, Prompt
from loopscale.core.prompt_sets import Purpose
from loopscale.core.seeds import stream

Prediction = Float[Tensor, "*steps batch points dim_out"]
Errors = Float[Tensor, "*steps batch points"]
"""One number per query; one number per prompt for batches with `weights`, whose queries share one error."""
Measures = dict[str, Float[Tensor, "*steps batch"]]
"""One number per prompt, by the name of the measure."""
"""The two sets of prompts that no training sees."""
Answer = Callable[[Batch], Float[Tensor, "batch points dim_out"]]
"""A predictor after its last step."""


@dataclass(frozen=True)
class FloorRule:
    """How the least possible error of a task is known. The room `regret` computes the error itself."""

    how: Literal["bayes", "exact", "bound", "reference"]
    """bayes: the solver is the Bayes predictor, and the error is a squared error. exact: the least error is 0. bound:
    no predictor is below the solver's error by more than the solver's `room_below`. reference: the solver is the best
    known algorithm, and a net may be better."""
    solver: dict[str, Any] | None = None
    """The settings of the solver; `None` for the prediction 0."""


@dataclass(frozen=True)
class Example:
    """An answer that a person can read."""

    given: str
    """What the prompt says, such as a sentence."""
    answer: str
    wanted: str
    """The right answer."""


class Task(Family, package="loopscale.tasks"):
    """A distribution over prompts, and the error of a prediction."""

    @property
    @abstractmethod
    def prompt(self) -> Prompt:
        """The shape of every prompt from `sample`."""

    @property
    def whole(self) -> bool:
        """Whether every query may see every token, because the prompt contains no answer.

        A net that looks ahead (an encoder) can only train on such a task.
        """
        return False

    @property
    def seen(self) -> tuple[int, ...]:
        """Number of pairs before each query; by default 0, 1, 2 .."""
        return tuple(range(len(self.sample(1, torch.Generator().manual_seed(0)).queries)))

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the real data in the prompts. Evaluation refuses tables that were used in training."""
        return ()

    @property
    @abstractmethod
    def variance(self) -> float:
        """The raw error of predicting zero.

        For a squared error, the mean square of one coordinate of the (noisy) target. For a cross entropy over K
        labels, log K.
        """

    @property
    @abstractmethod
    def noise_variance(self) -> float:
        """σ², the unpredictable part of `variance`; 0 if unknown. `excess` = raw error - σ²."""

    @property
    def variances(self) -> float | Float[Tensor, " points"]:
        """The raw error of predicting zero at every query. A tensor if this error differs between queries."""
        return self.variance

    @property
    def floor_rule(self) -> FloorRule | None:
        """How the least possible error is known; `None` if neither a floor nor a reference is known."""
        return None

    @property
    def fixed_guess(self) -> Float[Tensor, "points dim_out"]:
        """The best prediction that depends on the query's number alone, for targets [points, dim_out]. Its error is
        the ignorance of the task. By default 0, which is right if a target and its negative are equally likely."""
        return torch.zeros(self.sample(1, torch.Generator().manual_seed(0)).targets.shape[1:])

    @property
    def nothing_to_learn(self) -> tuple[str, str, str] | None:
        """Why all answers are equally good: the setting, the mistake, and the remedy. By default `None`.

        A study refuses its own tasks of this kind. A curriculum may start with one.
        """
        return None

    @abstractmethod
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        """Fresh prompts, float32, on the CPU. Every prompt is an independent draw of the problem and of its data."""

    def training_batch(self, size: int, seed: int, number: int) -> Batch:
        """The batch of a training, by its number from 1. By default fresh prompts.

        A task with a limited number of prompts takes them epoch by epoch.
        """
        return self.sample(size, stream(seed, "train", number))

    def typical_batch(self, size: int) -> Batch:
        """A batch with the sizes of an average step, from which the cost of a step is counted."""
        return self.sample(size, stream(0))

    def held_out(self, purpose: Purpose, prompts: int, block: range, rng: torch.Generator) -> Batch:
        """The prompts `block` of a set of `prompts` that no training sees. By default fresh prompts from `rng`.

        Parameters
        ----------
        purpose
            The set: `validate` for choices during a study, `evaluate` for its results.

        Raises
        ------
        ValueError
            The task has fewer prompts.
        """
        return self.sample(len(block), rng)

    @abstractmethod
    def easier(self, dim: int, points: int) -> "Task":
        """The task with `dim` non-zero coordinates and `points` pairs, in tokens of the same size.

        For a curriculum [@garg2022, section A.2]. Raises ValueError if the task itself is smaller.
        """

    def blank(self, batch: Batch) -> Float[Tensor, "batch points dim_out"]:
        """The prediction 0 at every query of a batch."""
        return torch.zeros(len(batch.targets), len(batch.queries), self.prompt.dim_out)

    def raw_error(self, prediction: Prediction, batch: Batch) -> Errors:
        """The unscaled error at every query. By default the squared error, averaged over the target's coordinates."""
        return (prediction - batch.targets).square().mean(-1)

    def error(self, prediction: Prediction, batch: Batch) -> Errors:
        """The error at every query, scaled so that predicting zero costs 1 on average."""
        raw, variances = self.raw_error(prediction, batch), self.variances
        if isinstance(variances, Tensor):  # under a curriculum the batch is shorter than the task
            variances = _variances_on(self.model_dump_json(), raw.device, raw.dtype)[: raw.shape[-1]]
        return raw / variances

    def loss(self, prediction: Prediction, batch: Batch) -> Errors:
        """The training loss: the error, or a substitute if the error has no useful gradient."""
        return self.error(prediction, batch)

    def measures(self, prediction: Prediction, batch: Batch) -> Measures:
        """Other measures of a prediction."""
        return {}

    def probes(self, predictor: Predictor, batch: Batch, steps: int) -> Measures:
        """Other measures of a predictor, from predictions on prompts outside the batch.

        The task chooses the number of prompts.
        """
        return {}

    @property
    def probe_names(self) -> tuple[str, ...]:
        """Names of the `probes`."""
        return ()

    @property
    def games(self) -> int:
        """Games that `outcomes` plays. In every game a predictor answers the prefix of every query once."""
        return 0

    def examples(self, answer: Answer) -> list[Example]:
        """A few answers that a person can read, for reports. By default none, as of tasks whose answers are numbers."""
        return []

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """Names of the `outcomes`."""
        return ()

    def outcomes(self, answer: Answer) -> dict[str, Float[Tensor, "games *points"]]:
        """Measures of acting: the predictor answers a prompt, the answer changes the next prompt, and so on.

        A measure has one number for each game, or a running total [games, points] over the queries of a game. Then the
        number of a game is the total after the last query. Records keep the running means of `play_regret` and
        `play_regret_greedy` in the curve.

        The task draws the games with a fixed seed. The final evaluation of a trial or a solver asks once, because
        acting costs many forward passes. A net acts after the loops of its training.
        """
        return {}


@lru_cache(maxsize=16)
def _variances_on(task: str, device: torch.device, dtype: torch.dtype) -> Float[Tensor, " points"]:
    """`variances` on `device`. Kept, because a copy to a GPU at every step would make the host wait."""
    return torch.as_tensor(Task.model_validate_json(task).variances).to(device, dtype)


class GradedTask(Task):
    """A task with `dim` coordinates and `points` pairs, points or chains."""

    dim: PositiveInt
    points: PositiveInt
    active: PositiveInt | None = None
    """Number of non-zero coordinates; `None` for all. A curriculum sets this number."""

    @model_validator(mode="after")
    def _active_within_dim(self) -> "GradedTask":
        if self.at_work > self.dim:
            raise ValueError(
                f"active {self.active} is more than the dim {self.dim} coordinates; write {self.dim} or less"
            )
        return self

    @property
    def at_work(self) -> int:
        """Number of coordinates that can be non-zero."""
        return self.active or self.dim

    @override
    def easier(self, dim: int, points: int) -> "GradedTask":
        for name, value, largest in (("dim", dim, self.at_work), ("points", points, self.points)):
            if not 1 <= value <= largest:
                raise ValueError(f"there is no easier task with {name} {value}; write {name} 1 .. {largest}")
        return type(self).model_validate(self.model_dump() | {"active": dim, "points": points})
