"""What a task is."""

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from loopscale.core.config import Family
from loopscale.core.prompt import Batch, Predictor, Prompt


class Task(Family, package="loopscale.tasks"):
    """A distribution over prompts, and how far a prediction is from the truth."""

    @property
    @abstractmethod
    def prompt(self) -> Prompt:
        """The geometry of every prompt that `sample` draws."""

    @property
    def whole(self) -> bool:
        """Whether every query may see every token: no target, and nothing that tells one, stands in the prompt.

        Only then may a net that looks ahead, an encoder, be trained on it.
        """
        return False

    @property
    def seen(self) -> tuple[int, ...]:
        """How many pairs of the prompt each query has seen: 0, 1, 2 .. unless a task says otherwise."""
        return tuple(range(len(self.sample(1, torch.Generator().manual_seed(0)).queries)))

    @property
    def tables(self) -> tuple[str, ...]:
        """The real data that its prompts are of, by name: what was trained on is not tested on."""
        return ()

    @property
    def idle(self) -> frozenset[str]:
        """Settings that change no prompt, as the others are: tasks that differ in these alone are one."""
        return frozenset()

    @property
    @abstractmethod
    def variance(self) -> float:
        """The raw error of predicting nothing: where it is squared, the mean square of one coordinate of the
        (noisy) target; log K for a cross entropy over K labels.
        """

    @property
    @abstractmethod
    def noise_variance(self) -> float:
        """The part of `variance` that nobody can predict, σ²; 0 where none is known. `excess` = raw error - σ²."""

    @property
    def variances(self) -> float | Float[Tensor, " points"]:
        """The raw error of predicting nothing at every query, where it is not `variance` at all of them."""
        return self.variance

    @abstractmethod
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        """Fresh prompts, each an independent draw of the problem and of its data; float32, on the CPU."""

    @abstractmethod
    def easier(self, dim: int, points: int) -> "Task":
        """The task with `dim` coordinates at work and `points` pairs, in tokens of the same size.

        For a curriculum (Garg et al. 2022, section A.2). Raises ValueError where the task is not so large.
        """

    def raw_error(
        self, prediction: Float[Tensor, "*steps batch points dim_out"], batch: Batch
    ) -> Float[Tensor, "*steps batch points"]:
        """The error at every query in units of its own: squared, and averaged over the target's coordinates, unless
        the task has another.
        """
        return (prediction - batch.targets).square().mean(-1)

    def error(
        self, prediction: Float[Tensor, "*steps batch points dim_out"], batch: Batch
    ) -> Float[Tensor, "*steps batch points"]:
        """The error at every query, scaled so that predicting nothing at all costs 1."""
        raw, variances = self.raw_error(prediction, batch), self.variances
        if isinstance(variances, Tensor):  # under a curriculum the batch is shorter than the task
            variances = variances[: raw.shape[-1]].to(raw)
        return raw / variances

    def loss(
        self, prediction: Float[Tensor, "*steps batch points dim_out"], batch: Batch
    ) -> Float[Tensor, "*steps batch points"]:
        """What training lowers: the error, or what stands in for one that has no useful gradient."""
        return self.error(prediction, batch)

    def measures(
        self, prediction: Float[Tensor, "steps batch points dim_out"], batch: Batch
    ) -> dict[str, Float[Tensor, "steps batch"]]:
        """What else is recorded of a prediction, a number a prompt, by name."""
        return {}

    def probes(
        self, predictor: Predictor, batch: Batch, steps: int
    ) -> dict[str, Float[Tensor, "steps some"]]:
        """What else is recorded that takes guesses on other prompts than the batch's own, which the predictor is asked
        for here: a number for each of as many prompts as the task likes, by name.
        """
        return {}
