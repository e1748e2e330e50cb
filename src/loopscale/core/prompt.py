"""The interface between tasks and predictors: the shape of a prompt, a batch of prompts, a predictor."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

Pairing = Literal["interleaved", "beside"]
"""How a pair (x, y) is written. interleaved: two tokens, x then y. beside: one token (x, mask, y); the mask is 1 if y
is known."""


@dataclass(frozen=True)
class Prompt:
    """The shape of a task's prompts. A model knows nothing else about the task."""

    length: int
    """Tokens of a prompt."""
    dim_in: int
    """Coordinates of a token; 1 if tokens are numbers of a vocabulary."""
    dim_out: int
    """Coordinates of a prediction; the size of the vocabulary if there is one."""
    pairs: Pairing | None = None
    """How pairs (x, y) are written; `None` for prompts without pairs. x fills the first coordinates of a token, y the
    last `dim_out`."""
    vocabulary: int | None = None
    """Tokens are integers 0 .. `vocabulary` - 1, and a prediction has the logit of each; `None` for real tokens."""

    @property
    def beside(self) -> bool:
        """Whether a pair is one token."""
        return self.pairs == "beside"


@dataclass(frozen=True)
class Batch:
    """Sampled prompts. Only a task builds a batch."""

    tokens: Float[Tensor, "batch length dim_in"] | Int[Tensor, "batch length 1"]
    """The input of models: integers if the prompt has a vocabulary."""
    targets: Float[Tensor, "batch points dim_out"] | Int[Tensor, "batch points"]
    """What a prediction should be: a token's number if the prompt has a vocabulary."""
    queries: Int[Tensor, " points"]
    """Positions of the tokens where a prediction is asked for, one for each point."""
    problem: Any
    """The input of classical algorithms, such as a `Regression`."""
    weights: Float[Tensor, "batch points"] | None = None
    """The weight of every query in the error of its prompt; 0 for a query without a target, as in padding. `None` if
    every query has an error of its own."""
    weighted: Int[Tensor, " answered"] | None = field(init=False)
    """The queries whose weight is not 0, numbered through all prompts. Like `asked`, known from the original on the
    CPU, so a net on a GPU need not wait for their number."""
    asked: int = field(init=False)
    """Number of tokens up to the last query. A batch on a GPU takes the number from its original on the CPU, because
    reading the queries would wait for the GPU. Without an original it is the number of all tokens."""

    def __post_init__(self) -> None:
        known = self.queries.device.type == "cpu"
        asked = int(self.queries.max()) + 1 if known else self.tokens.shape[1]
        object.__setattr__(self, "asked", asked)
        weighted = None
        if self.weights is not None and self.weights.device.type == "cpu":
            weighted = self.weights.flatten().nonzero().squeeze(-1)
        object.__setattr__(self, "weighted", weighted)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Batch":
        """The same prompts on `device`. These prompts are drawn on the CPU, so all devices see the same numbers."""
        return self._on(torch.device(device), dtype, _moved(self.problem, torch.device(device), dtype))

    def for_nets(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Batch":
        """The same prompts on `device`, without the problem, which nets and losses never read."""
        return self._on(torch.device(device), dtype, None)

    def _on(self, device: torch.device, dtype: torch.dtype | None, problem: Any) -> "Batch":
        queries = self.queries
        if queries.device != device:
            numbers = cast(list[int], queries.tolist())  # pyright: ignore[reportUnknownMemberType]
            queries = _positions(tuple(numbers), device)
        return self.changed(lambda part: _moved(part, device, dtype), queries, problem)

    def changed(
        self, change: Callable[[Tensor], Tensor], queries: Tensor | None = None, problem: Any = None
    ) -> "Batch":
        """The prompts with changed tokens, targets and weights of the same shapes.

        Parameters
        ----------
        queries
            The same queries on another device. By default those of this batch.
        problem
            The changed problem. By default the prompts lose their problem.
        """
        weights = None if self.weights is None else change(self.weights)
        other = self.asking(change(self.tokens), change(self.targets), queries, problem, weights)
        weighted = None if self.weighted is None else change(self.weighted)
        object.__setattr__(other, "weighted", weighted)
        return other

    def asking(
        self,
        tokens: Tensor,
        targets: Tensor,
        queries: Tensor | None = None,
        problem: Any = None,
        weights: Tensor | None = None,
    ) -> "Batch":
        """Other prompts with the queries of this batch. `queries` are the same queries on another device."""
        other = Batch(tokens, targets, self.queries if queries is None else queries, problem, weights)
        object.__setattr__(other, "asked", self.asked)
        return other


@lru_cache(maxsize=64)
def _positions(positions: tuple[int, ...], device: torch.device) -> Int[Tensor, " points"]:
    """The positions as a tensor, kept because every batch of a task has the same queries."""
    return torch.tensor(positions, device=device)


def _moved(value: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    if isinstance(value, Tensor):
        # The host goes on while a GPU reads pinned memory. A copy to the host must be complete.
        later = device.type != "cpu"
        return value.to(device, dtype if value.is_floating_point() else None, non_blocking=later)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {
            part.name: _moved(getattr(value, part.name), device, dtype) for part in fields(value) if part.init
        }
        return replace(value, **parts)
    return value


class Predictor(ABC):
    """A trained net or a classical algorithm. A predictor answers every query after every step."""

    @abstractmethod
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        """The predictions after 1, 2 .. `steps` loops, layers or iterations."""
