"""A model around a plain PyTorch module, which predicts once at every position.

class MyModel(PlainModel, kind="my_model"):
    width: PositiveInt = 64

    def module(self, prompt: Prompt) -> nn.Module:
        return MyModule(prompt.dim_in, prompt.dim_out, self.width)
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from typing_extensions import override

from loopscale.core.plugins import contract_error, owner_in_plugin
from loopscale.core.prompt import Prompt
from loopscale.models.base import Model, Net, Outputs, States, Tokens

Made = TypeVar("Made")


class PlainModel(Model):
    """A model whose net is one PyTorch module. The whole module is one step.

    A subclass has a `kind`, its settings, and the method `module`. The settings `training.loops`, `window` and
    `truncate` have no effect.
    """

    @property
    @override
    def depth(self) -> int:
        return 1

    @abstractmethod
    def module(self, prompt: Prompt) -> nn.Module:
        """A new module for prompts of this shape, with PyTorch's own initial weights.

        `forward` maps the tokens [batch, length, `prompt.dim_in`] to predictions [batch, length, `prompt.dim_out`]. A
        prompt may be shorter than `prompt.length`. If the module has a method `states` from tokens to hidden states
        [batch, length, width], probes read these states. Otherwise probes read the predictions.
        """

    @override
    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        return PlainNet(self, prompt, rng)


class PlainNet(Net):
    """The one step of a plain module."""

    def __init__(self, model: PlainModel, prompt: Prompt, rng: torch.Generator) -> None:
        super().__init__()
        self.depth = 1
        self.model, self.dim_in, self.dim_out = model, prompt.dim_in, prompt.dim_out
        module = seeded(lambda: model.module(prompt), rng)
        if not isinstance(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]: of a plugin
            what = f"returns {type(module).__name__}, which is no torch.nn.Module"
            raise contract_error(type(model), "module", what)
        if unfit := unfit_call(module.forward, 1):
            raise contract_error(owner_in_plugin(type(module), type(model)), "forward", unfit)
        self.module = module

    @override
    def forward(self, tokens: Tokens, steps: int, first: int = 1, truncate: bool = False) -> Outputs:
        self.check(steps, first)
        predictions = self.module(tokens)
        needed = (*tokens.shape[:-1], self.dim_out)
        found = getattr(predictions, "shape", type(predictions).__name__)
        if found != needed:
            found = tuple(found) if isinstance(found, torch.Size) else found
            what = f"makes a module that gives {found}, not {needed} for [batch, length, dim_out]"
            raise contract_error(type(self.model), "module", what)
        # Errors are measured in single precision, also if autocast computes the last layer in reduced precision.
        return predictions.to(tokens.dtype)[None]

    @override
    def hidden_matrices(self) -> set[str]:
        """Without layers as wide as a token at their input or as a prediction at their output: these are the ends."""
        shapes = {name: weight.shape for name, weight in self.named_parameters()}
        return {
            name
            for name in super().hidden_matrices()
            if shapes[name][1] != self.dim_in and shapes[name][0] != self.dim_out
        }

    @override
    def states(self, tokens: Tokens, steps: int) -> States:
        self.check(steps, 1)
        return getattr(self.module, "states", self.module)(tokens)[None]


def unfit_call(forward: Callable[..., Any], given: int) -> str:
    """Why `forward` cannot be called with the tokens alone, or with the module and the tokens; empty if it can be.

    Parameters
    ----------
    given
        Number of the arguments of the call.
    """
    try:
        signature = inspect.signature(forward)
    except (TypeError, ValueError):  # compiled functions have no signature
        return ""
    try:
        signature.bind(*[None] * given)
    except TypeError as problem:
        names = ", ".join(signature.parameters)
        return f"takes ({names}), and the caller gives one tensor alone ({problem})"
    return ""


def seeded(make: Callable[[], Made], rng: torch.Generator) -> Made:
    """The module from `make`, on the CPU. PyTorch's layers draw their initial weights, and `rng` determines them.

    The state of PyTorch's global generator is restored. Under `torch.device("meta")` nothing is drawn.
    """
    with torch.random.fork_rng(devices=()):
        if torch.get_default_device().type != "meta":
            seed = int(torch.randint(2**62, (), generator=rng))
            torch.default_generator.manual_seed(seed)  # `torch.manual_seed` would seed every GPU too
        return make()
