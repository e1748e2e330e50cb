"""Adam without the import of torch's compiler, which takes half a second of processor time at a worker's start."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, overload

import torch
from torch import Tensor
from typing_extensions import override


@contextmanager
def without_compiler() -> Iterator[None]:
    """Keep torch from importing `torch._dynamo` inside the context.

    Optimisers and kernels of the meta device import the module, only to exclude themselves from `torch.compile`. A
    stand-in leaves these functions as they are. After the context an import finds the real module. If the real module
    is already imported, it stays. A test checks that the stand-in suffices for the installed torch.
    """
    name = "torch._dynamo"
    if name in sys.modules:
        yield
        return
    stand_in = ModuleType(name)
    vars(stand_in).update(disable=lambda function, *_, **__: function, graph_break=lambda *_, **__: None)
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]


class Adam(torch.optim.Adam):
    """torch's Adam in one fused kernel. Only calls of the optimiser see the stand-in, so a net may be compiled."""

    def __init__(self, weights: Iterable[Tensor], lr: float) -> None:
        with without_compiler():
            # Time of a step for 28 tensors (width 32, one thread): fused 0.3 ms, foreach 0.9 ms, default 1.1 ms.
            super().__init__(weights, lr=lr, fused=True)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @override
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        with without_compiler():
            return super().step(closure)

    @override
    def zero_grad(self, set_to_none: bool = True) -> None:
        with without_compiler():
            super().zero_grad(set_to_none)

    @override
    def state_dict(self) -> dict[str, Any]:
        with without_compiler():
            return super().state_dict()

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        with without_compiler():
            super().load_state_dict(state_dict)
