"""The data with which a construction is checked: random problems with their solution, and the limit of the theorem."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from loopscale.core.prompt import Prompt

NOT_STATED = "not stated"


@dataclass(frozen=True)
class Stated:
    """The statement of the source itself, in words: formulas, numbers at the size of the net, or `NOT_STATED`."""

    accuracy: str
    """How the net approximates the algorithm."""
    layers: str = NOT_STATED
    heads: str = NOT_STATED
    width: str = NOT_STATED

    @classmethod
    def of_loops(cls, step: str, layers: str, heads: str) -> "Stated":
        """The form of the theorems on AlgoFormer."""
        close = f"one loop is one {step}, arbitrarily close for c to 0 and C to infinity; no rate"
        return cls(close, layers, heads)


@dataclass(frozen=True)
class Limit:
    """The limit in which a construction runs its algorithm."""

    setting: str
    """The name of the setting that goes to its limit: a scale goes to 0, a number of pieces to infinity."""
    order: int | float
    """The exponent of the distance between net and algorithm, as a power of the scale or of 1 / pieces.

    The exponent is derived here. No source states one.
    """
    values: tuple[int | float, ...]
    """Values, from coarse to fine, at which the order is measured. Coarser values are not yet in the asymptotic
    range. At finer values rounding exceeds the distance."""

    @property
    def power(self) -> str:
        """The distance up to a constant: `scale^4`, `pieces^-2`."""
        falls = self.values[-1] > self.values[0]
        return f"{self.setting}^{'-' if falls else ''}{self.order:g}"


@dataclass(frozen=True)
class Example:
    """Random prompts for a construction, and the iterates of its algorithm."""

    tokens: Float[Tensor, "prompts tokens dim_in"]
    """The input of the net."""
    expected: Float[Tensor, "steps prompts tokens dim_out"]
    """The output of the algorithm after every step. NaN where the output of the net is not checked."""

    @property
    def prompt(self) -> Prompt:
        """The geometry of the prompts."""
        return Prompt(self.tokens.shape[1], self.tokens.shape[2], self.expected.shape[3])

    @classmethod
    def at(
        cls,
        checked: slice,
        tokens: Float[Tensor, "prompts tokens dim_in"],
        outputs: Float[Tensor, "steps prompts checked dim_out"],
    ) -> "Example":
        """An example in which the outputs are checked at a slice of the tokens only."""
        expected = outputs.new_full((len(outputs), *tokens.shape[:2], outputs.shape[3]), torch.nan)
        expected[:, :, checked] = outputs
        return cls(tokens, expected)

    @classmethod
    def at_last(
        cls, tokens: Float[Tensor, "prompts tokens dim_in"], outputs: Float[Tensor, "steps prompts dim_out"]
    ) -> "Example":
        """An example in which the outputs are checked at the last token only."""
        return cls.at(slice(-1, None), tokens, outputs[:, :, None])
