"""A model from any PyTorch module that maps states to states of the same shape.

class Mixer(nn.Module):
    def __init__(self, dim: int = 64, layers: int = 2) -> None: ...
    def forward(self, states: Tensor) -> Tensor: ...

wrap(Mixer)    # the model `mixer`, with the settings `dim` and `layers`
"""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from pydantic import create_model
from torch import Tensor, nn
from typing_extensions import override

from loopscale.core.argument_settings import argument_settings, code_of
from loopscale.core.member_faults import snake_case
from loopscale.core.plugins import UnusableMember, calling_module, contract_error, owner_in_plugin
from loopscale.core.prompt import Prompt
from loopscale.models.base import Model, Net
from loopscale.models.layers import End
from loopscale.models.plain import PlainModel, PlainNet, unfit_call

DIM = 64
"""Coordinates of a state, if the module has no default."""


def wrap(
    module_class: type[nn.Module], *, kind: str = "", dim: str = "dim", looks_ahead: bool = False
) -> type[Model]:
    """Make a model of a module class. A file that a study names under `plugins` calls this function.

    The net is a linear layer from tokens to states, the module, and a linear layer from states to predictions. The
    arguments of `__init__` are the settings of the model, with their annotations and defaults.

    Parameters
    ----------
    module_class
        `forward` maps states [batch, tokens, dim] to states [batch, tokens, dim]. A position reads no later position.
    kind
        The name of the model in a study. By default the name of the class in small letters: `my_mixer` for MyMixer.
    dim
        The argument of `__init__` for the number of coordinates of a state. Without a default, the default is 64.
    looks_ahead
        True if a position reads later positions, as in an encoder.

    Returns
    -------
    type[Model]
        The model. The model belongs to the module that calls `wrap`.

    Raises
    ------
    UnusableMember
        The class is no module class, an argument cannot be a setting, or `forward` needs further arguments. In a plugin
        the error is one line with file and line.
    KindTaken
        Another model has this kind.
    """
    if not (isinstance(module_class, type) and issubclass(module_class, nn.Module)):  # pyright: ignore[reportUnnecessaryIsInstance]
        shown = module_class.__name__ if isinstance(module_class, type) else repr(module_class)
        raise UnusableMember(
            f"{shown} is no class of modules", "wrap a class that derives from torch.nn.Module"
        )
    name = module_class.__name__
    if unfit := unfit_call(module_class.forward, 2):
        what = f"{name}.forward {unfit}"
        raise UnusableMember(what, "write def forward(self, states)", code_of(module_class.forward))
    made = create_model(
        name,
        __base__=WrappedModel,
        __module__=calling_module(),
        __doc__=module_class.__doc__ or f"The module {name} between two linear layers.",
        __cls_kwargs__={"kind": kind or snake_case(name), "allow_inf_nan": False},
        **_settings(module_class, dim),
    )
    made.wrapped, made.dim_argument, made.encodes = module_class, dim, looks_ahead
    return made


class WrappedModel(PlainModel):
    """A model around a module from states to states."""

    wrapped: ClassVar[type[nn.Module]]
    """The class of the module."""
    dim_argument: ClassVar[str] = "dim"
    """The setting for the number of coordinates of a state."""
    encodes: ClassVar[bool] = False
    """True if a position reads later positions."""

    @property
    @override
    def looks_ahead(self) -> bool:
        return self.encodes

    @override
    def module(self, prompt: Prompt) -> nn.Module:
        return BetweenEnds(self, prompt)

    @override
    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        return WrappedNet(self, prompt, rng)

    @override
    def __reduce__(self) -> tuple[Callable[..., Model], tuple[dict[str, Any]]]:
        """By kind and settings, because the name of this class in its module is the name of the wrapped class."""
        return Model.model_validate, (self.model_dump(),)


class BetweenEnds(nn.Module):
    """A module from states to states, between a read-in and a read-out."""

    def __init__(self, model: WrappedModel, prompt: Prompt) -> None:
        super().__init__()
        settings = {name: getattr(model, name) for name in type(model).model_fields}
        self.model, width = model, settings[model.dim_argument]
        self.read_in = End(prompt.dim_in, width)
        self.inner = model.wrapped(**settings)
        self.read_out = End(width, prompt.dim_out)

    @override
    def forward(self, tokens: Tensor) -> Tensor:
        return self.read_out(self.states(tokens))

    def states(self, tokens: Tensor) -> Tensor:
        """The states before the read-out, [batch, tokens, dim]. Raises PluginError for another shape."""
        before = self.read_in(tokens)
        after = self.inner(before)
        found = getattr(after, "shape", type(after).__name__)
        if found != before.shape:
            found = tuple(found) if isinstance(found, torch.Size) else found
            what = f"gives {found}, not {tuple(before.shape)} for [batch, tokens, {self.model.dim_argument}]"
            raise contract_error(owner_in_plugin(self.model.wrapped, type(self.model)), "forward", what)
        return after


class WrappedNet(PlainNet):
    """The net of a wrapped module."""

    @override
    def hidden_matrices(self) -> set[str]:
        """Without the two ends, which are known here and need no guess by their shapes."""
        return Net.hidden_matrices(self)


def _settings(module_class: type[nn.Module], dim: str) -> dict[str, Any]:
    """The fields of the model, by name. Raises UnusableMember."""
    name, init = module_class.__name__, module_class.__init__
    arguments = list(inspect.signature(init).parameters.values())[1:]
    if dim not in [each.name for each in arguments]:
        what = f"{name}.__init__ has no argument {dim}, the coordinates of a state"
        named = [each.name for each in arguments if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        example = f'wrap({name}, dim="{named[0] if named else "width"}")'
        remedy = f"add {dim}: int, or name the argument, as in {example}"
        raise UnusableMember(what, remedy, code_of(init))
    return argument_settings(init, f"{name}.__init__", 1, WrappedModel, {dim: DIM})
