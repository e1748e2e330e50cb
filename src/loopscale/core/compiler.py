"""Optimizers of torch without the import of torch's compiler, which takes seconds of processor time."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


def _unchanged(function: Any, *_: Any, **__: Any) -> Any:
    return function


def _nothing(*_: Any, **__: Any) -> None:
    return None


@contextmanager
def without_compiler() -> Generator[None]:
    """Keep torch from importing `torch._dynamo` inside the context.

    Optimizers and kernels of the meta device import the module, only to exclude themselves from `torch.compile`. A
    stand-in leaves these functions as they are. After the context an import finds the real module. If the real module
    is already imported, it stays. A test checks that the stand-in suffices for the installed torch.
    """
    name = "torch._dynamo"
    if name in sys.modules:
        yield
        return
    stand_in = ModuleType(name)
    vars(stand_in).update(disable=_unchanged, graph_break=_nothing)
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]
