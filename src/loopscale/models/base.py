"""The base classes of models. A model is a config that builds a net for prompts of a given shape."""

from abc import abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from loopscale.core.config import Family
from loopscale.core.prompt import Batch, Predictor, Prompt

Tokens = Float[Tensor, "batch length dim_in"]
Outputs = Float[Tensor, "supervised batch length dim_out"]
"""Predictions at every position after every supervised step."""
Answers = Float[Tensor, "supervised batch points dim_out"]
"""Predictions at the queries after every supervised step."""
States = Float[Tensor, "steps batch length width"]


class Outer:
    """A layer that reads tokens or writes predictions. Its weights are no hidden matrices."""


class Net(nn.Module, Predictor):
    """A net that predicts at every position after every step. A step is a loop, or a layer if the depth is fixed."""

    depth: int | None = None
    """Number of steps; `None` for a looped net, which can run any number of steps."""

    @abstractmethod
    def forward(self, tokens: Tokens, steps: int, first: int = 1, truncate: bool = False) -> Outputs:
        """The output at every position after each of the steps `first` .. `steps`.

        Earlier steps run without read-out, and with `truncate` also without gradient. Raises ValueError if `steps`
        exceeds `depth`, or if `first` is outside 1 .. `steps`.
        """

    def answers(self, batch: Batch, steps: int, first: int = 1, truncate: bool = False) -> Answers:
        """`forward` at the queries alone. A net overrides this method if fewer positions cost less."""
        return self(batch.tokens, steps, first, truncate)[:, :, batch.queries]

    def answerer(self, steps: int) -> Callable[[Batch], Float[Tensor, "batch points dim_out"]]:
        """A function that answers prompts after the last of `steps`. A net overrides this method if prompts that grow
        from call to call cost less. The function then keeps values of the prompts, so use it for one game only."""
        return lambda batch: self.answers(batch, steps, first=steps)[0]

    @abstractmethod
    def states(self, tokens: Tokens, steps: int) -> States:
        """The hidden state at every token after steps 1 .. `steps`, before the read-out. The input of probes.

        Raises ValueError if `steps` exceeds `depth` or is below 1.
        """

    def recompute(self) -> None:
        """From now on, compute inner values again in the backward pass instead of keeping them.

        Raises ValueError for a net whose model is not `recomputable`.
        """
        raise ValueError("this net keeps all values of the forward pass; leave training.recompute out")

    def hidden_matrices(self) -> set[str]:
        """The names of the matrices from hidden states to hidden states, for optimizers of matrices.

        By default the matrices of linear and recurrent layers that are not `Outer`. A net overrides this method if
        other weights are matrices, or if such a layer reads tokens or writes predictions.
        """
        return {
            f"{path}.{name}"
            for path, layer in self.named_modules()
            if isinstance(layer, nn.Linear | nn.RNNBase | nn.MultiheadAttention)
            and not isinstance(layer, Outer)
            for name, weight in layer.named_parameters(recurse=False)
            if weight.ndim == 2
        }

    def check(self, steps: int, first: int) -> None:
        """Raises ValueError for invalid arguments of `forward`."""
        if self.depth is not None and steps > self.depth:
            raise ValueError(
                f"{steps} steps are more than this net's {self.depth} layers; write 1 .. {self.depth}"
            )
        if not 1 <= first <= steps:
            raise ValueError(f"first {first} is outside the steps; write 1 .. {steps}")

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        return self.answers(batch, steps)


class Model(Family, package="loopscale.models"):
    @property
    def depth(self) -> int | None:
        """Depth of the net; `None` for a looped net. Known without building the net."""
        return None

    @property
    def truncatable(self) -> bool:
        """Whether every weight receives a gradient if earlier loops run without gradient."""
        return True

    @property
    def recomputable(self) -> bool:
        """Whether the net can compute inner values again in the backward pass, with `Net.recompute`."""
        return False

    @property
    def looks_ahead(self) -> bool:
        """Whether a token sees later tokens, as in an encoder."""
        return False

    @property
    def reads_in_parts(self) -> bool:
        """Whether `Net.answerer` reads a growing prompt in parts, so that a token costs once and not in every call."""
        return False

    @property
    def recurrent(self) -> bool:
        """True if the net takes the tokens one after the other, so that each further token costs the same."""
        return False

    @property
    def kept_factor(self) -> float:
        """Memory saved for the backward pass, relative to the sum over elementary operations.

        Above 1 for fused kernels with a workspace.
        """
        return 1.0

    def priced(self) -> "Model":
        """The model whose steps cost the same, shared by models that differ in their initial weights only."""
        return self

    def require(self, prompt: Prompt) -> None:
        """Raises ValueError for prompts that the model cannot read. A trial calls this before training.

        By default a model reads real tokens alone.
        """
        if prompt.vocabulary is not None:
            raise ValueError(
                f"model {self.kind} reads real numbers, and not the tokens of a vocabulary; write gpt2, looped or "
                "algoformer"
            )

    @abstractmethod
    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        """A net with new weights, float32, on the CPU. `rng` determines every weight.

        Must also work under `torch.device("meta")`, where costs are counted before training.
        """
