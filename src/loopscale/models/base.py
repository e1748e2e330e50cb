"""What a model is: a config that builds a net for prompts of a given geometry."""

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from loopscale.core.config import Family
from loopscale.core.prompt import Batch, Predictor, Prompt


class Net(nn.Module, Predictor):
    """Weights that guess at every position after every step: a loop, or a layer where the depth is fixed."""

    depth: int | None = None
    """How many steps there are; `None` where the net loops and may run for as long as one likes."""

    @abstractmethod
    def forward(
        self, tokens: Float[Tensor, "batch length dim_in"], steps: int, first: int = 1, truncate: bool = False
    ) -> Float[Tensor, "supervised batch length dim_out"]:
        """The output at every position after steps `first` .. `steps`, so `steps - first + 1` of them.

        Steps before `first` are run but not read out; with `truncate` no gradient flows back through them.
        Raises ValueError for `steps` beyond `depth`, or `first` not within 1 .. `steps`.
        """

    @abstractmethod
    def states(
        self, tokens: Float[Tensor, "batch length dim_in"], steps: int
    ) -> Float[Tensor, "steps batch length width"]:
        """What the net holds at every token of the prompt after steps 1 .. `steps`, before it is read out: what a
        probe reads.

        Raises ValueError for `steps` beyond `depth`, or fewer than 1.
        """

    def check(self, steps: int, first: int) -> None:
        """Raises ValueError for steps that `forward` has not got."""
        if self.depth is not None and steps > self.depth:
            raise ValueError(
                f"{steps} steps are more than this net's {self.depth} layers; 1 .. {self.depth} are valid"
            )
        if not 1 <= first <= steps:
            raise ValueError(f"first {first} is not among the steps; write 1 .. {steps}")

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        return self(batch.tokens, steps)[:, :, batch.queries]


class Model(Family, package="loopscale.models"):
    @property
    def depth(self) -> int | None:
        """The net's depth, known before it is built; `None` where it loops."""
        return None

    @property
    def truncatable(self) -> bool:
        """Whether a gradient cut before the last loops still reaches every weight."""
        return True

    @property
    def looks_ahead(self) -> bool:
        """Whether a token sees those after it, as in an encoder."""
        return False

    @property
    def kept_factor(self) -> float:
        """What its kernels keep for the backward pass over what the operations do that they are made of."""
        return 1.0

    def require(self, prompt: Prompt) -> None:
        """Raises ValueError, in one line, for prompts that it cannot read. A trial asks before anything is spent."""

    @abstractmethod
    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        """A net with fresh weights, float32, on the CPU; `rng` fixes every weight.

        Must also work under `torch.device("meta")`, where costs are counted before anything is spent.
        """
