"""A model from any PyTorch module that maps states to states of the same shape.

class Mixer(nn.Module):
    def __init__(self, dim: int = 64, layers: int = 2) -> None: ...
    def forward(self, states: Tensor) -> Tensor: ...

wrap(Mixer)    # the model `mixer`, with the settings `dim` and `layers`
"""

import inspect
import re
import sys
from collections.abc import Callable
from types import CodeType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, cast, get_args, get_origin, get_type_hints

import torch
from pydantic import Field, PositiveInt, TypeAdapter, ValidationError, create_model
from torch import Tensor, nn
from typing_extensions import override

from loopscale.core.plugins import UnusableMember, contract_error, owner_in_plugin
from loopscale.core.prompt import Prompt
from loopscale.models.base import Model, Net
from loopscale.models.layers import End
from loopscale.models.plain import PlainModel, PlainNet, unfit_call

DIM = 64
"""Coordinates of a state, if the module has no default."""
PLAIN = (int, float, bool, str, NoneType)
WRITABLE = "int, float, bool, str, Literal, a tuple of these, or one of these and None"


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
        raise UnusableMember(what, "write def forward(self, states)", _code(module_class.forward))
    made = create_model(
        name,
        __base__=WrappedModel,
        __module__=sys._getframe(1).f_globals["__name__"],
        __doc__=module_class.__doc__ or f"The module {name} between two linear layers.",
        __cls_kwargs__={"kind": kind or _snake_case(name), "allow_inf_nan": False},
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


def _snake_case(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return words.lower().strip("_")


def _settings(module_class: type[nn.Module], dim: str) -> dict[str, Any]:
    """The fields of the model, by name. Raises UnusableMember."""
    name, init = module_class.__name__, module_class.__init__
    code = _code(init)
    arguments = list(inspect.signature(init).parameters.values())[1:]
    if dim not in [each.name for each in arguments]:
        what = f"{name}.__init__ has no argument {dim}, the coordinates of a state"
        named = [each.name for each in arguments if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        example = f'wrap({name}, dim="{named[0] if named else "width"}")'
        raise UnusableMember(what, f"add {dim}: int, or name the argument, as in {example}", code)
    try:
        hints = get_type_hints(init, include_extras=True)
    except Exception as problem:  # an annotation may be any expression
        what = f"an annotation of {name}.__init__ cannot be read ({type(problem).__name__}: {problem})"
        raise UnusableMember(what, f"write {WRITABLE}", code) from problem
    return {
        each.name: _field(name, each, hints, dim, code)
        for each in arguments
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }


def _field(
    owner: str, argument: inspect.Parameter, hints: dict[str, Any], dim: str, code: CodeType | None
) -> tuple[Any, Any]:
    """The type and the default of a setting. Raises UnusableMember."""
    name, default = argument.name, argument.default
    subject = f"the argument {name} of {owner}.__init__"

    def unusable(what: str, remedy: str) -> UnusableMember:
        return UnusableMember(f"{subject} {what}", remedy, code)

    if argument.kind is argument.POSITIONAL_ONLY:
        raise unusable("has no name for callers", "remove the / from the arguments")
    if name.startswith("_") or hasattr(WrappedModel, name):
        raise unusable(
            "has a name that every model uses itself", "rename the argument, as to layers for depth"
        )
    if name not in hints:
        raise unusable("has no annotation", f"write {name}: int, or {WRITABLE}")
    if not is_plain(hints[name]):
        shown = inspect.formatannotation(hints[name])
        raise unusable(f"has the annotation {shown}, which no study can write", f"write {WRITABLE}")
    kind: Any = PositiveInt if name == dim and hints[name] is int else hints[name]
    if default is argument.empty:
        if name != dim:
            raise unusable("has no default", f"write a default, as in {name}: int = 4")
        default = DIM
    try:
        TypeAdapter(kind).validate_python(default, strict=True)
    except ValidationError:
        shown = inspect.formatannotation(hints[name])
        raise unusable(f"has the default {default!r}, which is no {shown}", "correct the default") from None
    return kind, Field(default, description=f"The argument {name} of {owner}.")


def is_plain(annotation: Any) -> bool:
    """Whether a study can write every value of a type, and records can keep the value."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return is_plain(parts[0])
    if origin in (Union, UnionType):
        return all(map(is_plain, parts))
    if origin is tuple:
        return all(is_plain(part) for part in parts if part is not Ellipsis)
    return origin is Literal or annotation in PLAIN


def _code(function: Any) -> CodeType | None:
    return cast("CodeType | None", getattr(function, "__code__", None))
