"""A device beside the CPU, for tests without a GPU. Its tensors are CPU tensors that report the device `pretend`.

The real code runs on real numbers. Every operation passes through the dispatcher of torch, where these tests count the
events that make a GPU wait for the host or the host wait for a GPU. The device has no speed, no streams and no memory
of its own: it says nothing about a real GPU.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "pretend"
aten = torch.ops.aten

DATA_DEPENDENT = {"nonzero", "masked_select", "unique_dim", "_unique2", "equal", "repeat_interleave"}
"""Operations whose result has a size that the host must know, or is a value on the host."""

_seeds: set[int] = set()
"""Seeds of the generators of the device. Operations see a generator without its class."""

events: Counter[str] = Counter()
"""read: the host reads a value or a size from the device. send: the host copies a tensor to the device."""


class _Module(_DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


@cache
def _register() -> None:
    _setup_privateuseone_for_python_backend(NAME, _Module())


class Generator(torch.Generator):
    """A generator of the device: a generator of the CPU that reports another device."""

    @property
    def device(self) -> torch.device:  # pyright: ignore[reportIncompatibleVariableOverride]
        return torch.device(NAME, 0)

    def manual_seed(self, seed: int) -> "Generator":
        _seeds.add(seed)
        super().manual_seed(seed)
        return self


@contextmanager
def pretend_device() -> Iterator[str]:
    """The name of the device, which exists inside the context. `events` start at zero."""
    _register()
    events.clear()
    with torch.autograd.set_multithreading_enabled(False), _Functions(), _Operations():
        yield NAME


class OnDevice(Tensor):
    """A tensor of the device."""

    content: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]

    @staticmethod
    def __new__(cls, content: Tensor) -> "OnDevice":
        tensor = Tensor._make_wrapper_subclass(
            cls,
            content.shape,
            strides=content.stride(),
            storage_offset=content.storage_offset(),
            dtype=content.dtype,
            device=torch.device(NAME, 0),
        )
        tensor.content = content
        return tensor

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run(func, args, kwargs or {})


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run(func, args, kwargs or {})


class _Functions(TorchFunctionMode):
    """Functions that the dispatcher does not show: `torch.tensor` with a device, lists as indices, LSTMs."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and _is_here(kwargs.get("device")):
            events["send"] += 1
            return OnDevice(func(*args, **kwargs | {"device": "cpu"}))
        if func is Tensor.__getitem__ and isinstance(args[0], OnDevice):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(part, list) for part in index):
                events["send"] += 1
            index = tuple(OnDevice(torch.tensor(part)) if isinstance(part, list) else part for part in index)
            return func(args[0], index)
        if func in (torch.lstm, torch._VF.lstm) and isinstance(args[0], OnDevice):
            from torch._decomp.decompositions import lstm_impl

            return lstm_impl(*args, **kwargs)
        return func(*args, **kwargs)


def _is_here(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the operation on the CPU. The result is on the device if an argument is, or if the caller asks for that."""
    inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    here = [tensor for tensor in inputs if isinstance(tensor, OnDevice)]
    name, target = func._schema.name.removeprefix("aten::"), kwargs.get("device")
    leaves = target is not None and not _is_here(target)
    if here and (name == "_local_scalar_dense" or name in DATA_DEPENDENT or (name == "_to_copy" and leaves)):
        events["read"] += 1
    if name == "index" and here and any(t is not None and t.dtype == torch.bool for t in args[1]):
        events["read"] += 1
    if name == "_to_copy" and not here and _is_here(target):
        events["send"] += 1
    if name == "copy_" and isinstance(args[0], OnDevice) != isinstance(args[1], OnDevice):
        events["send" if isinstance(args[0], OnDevice) else "read"] += 1
    if here and name not in ("_to_copy", "copy_"):
        strays = [tensor for tensor in inputs if not isinstance(tensor, OnDevice) and tensor.dim()]
        assert not strays, f"{name} takes a tensor of the device and a tensor of the CPU, which a GPU refuses"
    if (rng := kwargs.get("generator")) is not None:
        on_device = bool(here) or _is_here(target)
        assert on_device == (rng.initial_seed() in _seeds), f"{name} draws with a generator of another device"
    result = func(*tree_map(_on_cpu, args), **tree_map(_on_cpu, kwargs))
    if leaves or not (here or _is_here(target)):
        return result
    same = {id(tensor.content): tensor for tensor in here}
    return tree_map(_moved_back(same), result)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, OnDevice):
        return value.content
    return torch.device("cpu") if isinstance(value, torch.device) and _is_here(value) else value


def _moved_back(same: dict[int, OnDevice]) -> Callable[[Any], Any]:
    """An operation in place returns its argument, and any other operation a new tensor."""

    def move(value: Any) -> Any:
        if type(value) is not Tensor:
            return value
        return same[id(value)] if id(value) in same else OnDevice(value)

    return move
