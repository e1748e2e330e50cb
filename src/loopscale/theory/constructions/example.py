"""A construction held against its algorithm: random problems, what the algorithm makes of them, how far the net is."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from loopscale.core.prompt import Prompt

if TYPE_CHECKING:
    from loopscale.theory.constructions.base import Construction

EXACT = 1e-10
"""How near exact weights are, in float64."""
TOLERANCE = 0.15
"""How near a measured order has to be to that of the theorem, relative to it: a fit has few points."""


@dataclass(frozen=True)
class Limit:
    """The limit in which a construction runs its algorithm."""

    setting: str
    order: int | float
    """The distance shrinks as this power of the setting, or of 1 / the setting where that is a number of pieces."""
    values: tuple[int | float, ...]
    """Where that can be seen, from coarse to fine: below the first, and above what rounding leaves."""


@dataclass(frozen=True)
class Example:
    """A random problem for a construction, and what its algorithm makes of it."""

    tokens: Float[Tensor, "prompts tokens dim_in"]
    """What the net reads."""
    expected: Float[Tensor, "steps prompts tokens dim_out"]
    """What it is to put out after every step; nan where it may put out anything."""

    @property
    def prompt(self) -> Prompt:
        """The geometry of the prompts."""
        return Prompt(self.tokens.shape[1], self.tokens.shape[2], self.expected.shape[3])

    @classmethod
    def at_last(
        cls, tokens: Float[Tensor, "prompts tokens dim_in"], guesses: Float[Tensor, "steps prompts dim_out"]
    ) -> "Example":
        """Where only what is put out at the last token counts."""
        steps, prompts, dim_out = guesses.shape
        expected = torch.full((steps, prompts, tokens.shape[1], dim_out), torch.nan, dtype=torch.float64)
        expected[:, :, -1] = guesses
        return cls(tokens, expected)


def distances(construction: "Construction", example: Example) -> Float[Tensor, "steps prompts"]:
    """The largest distance between net and algorithm in each prompt after every step, nan where nothing is expected.

    Raises ValueError where the problem does not fit the construction.
    """
    found = construction.net(example.prompt)(example.tokens, len(example.expected))
    gaps = (found - example.expected).abs()
    spoken = ~torch.isnan(example.expected)
    largest = torch.where(spoken, gaps, -1.0).amax((2, 3))
    return torch.where(spoken.any(-1).any(-1), largest, torch.nan)


def approach(construction: "Construction", limit: Limit, seed: int = 0) -> Float[np.ndarray, " values"]:
    """The distance after the last step at each of the limit's values, all on the same problem.

    The mean over prompts of its logarithm, as a number: how far a number lies from the next knot is chance.
    """
    found = []
    for value in limit.values:
        there = construction.model_validate(
            construction.model_dump() | {"kind": construction.kind, limit.setting: value}
        )
        last = distances(there, there.example(torch.Generator().manual_seed(seed)))[-1]
        found.append(last.log().mean().exp().item())
    return np.array(found)


def order(limit: Limit, found: Float[np.ndarray, " values"]) -> float:
    """The power of the setting, or of 1 / the setting, that the distances follow; nan where there is none left."""
    if not (found > 0).all():
        return math.nan
    return abs(float(np.polyfit(np.log(limit.values), np.log(found), 1)[0]))
