"""The seam between tasks and whatever predicts: a prompt's geometry, a batch of prompts, a predictor."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

Pairing = Literal["interleaved", "beside"]
"""Of pairs: x and y are tokens that follow one another; or one token, (x, whether its y is known, y)."""


@dataclass(frozen=True)
class Prompt:
    """All that a model may know of a task: tokens in a prompt, coordinates of a token and of a target, and whether it
    holds pairs.
    """

    length: int
    dim_in: int
    dim_out: int
    pairs: Pairing | None = None
    """How pairs of an x and a y that is asked for stand in it, y in the last `dim_out` coordinates of a token, after
    those of x. `None` where there are none, whatever the sizes are.
    """

    @property
    def beside(self) -> bool:
        """Whether a pair is one token."""
        return self.pairs == "beside"


@dataclass(frozen=True)
class Batch:
    """Sampled prompts. Models read `tokens`, solvers read `problem`; only a task writes either.

    `queries` are the positions of the tokens at which a prediction is asked for, one for every point.
    """

    tokens: Float[Tensor, "batch length dim_in"]
    targets: Float[Tensor, "batch points dim_out"]
    queries: Int[Tensor, " points"]
    problem: Any

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Batch":
        """The same prompts elsewhere. Draws are made on the CPU and moved, so that every device sees the same."""
        return _moved(self, torch.device(device), dtype)


def _moved(value: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, dtype if value.is_floating_point() else None)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: _moved(getattr(value, field.name), device, dtype) for field in fields(value)}
        return replace(value, **parts)
    return value


class Predictor(ABC):
    """A trained net or a classical algorithm, alike: a guess at every query, after every step."""

    @abstractmethod
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        """The guesses after 1, 2 .. `steps` loops, layers or iterations."""
