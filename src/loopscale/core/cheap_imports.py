"""Imports that cost little: at the first use, without torch's compiler, and without searches for garbage.

torch's compiler takes seconds of processor time. The imports of torch make a million objects that live as long as the
process. By default Python searches all of them for cycles again and again.
"""

import atexit
import gc
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


class Deferred:
    """Stands for a module, and imports the module when an attribute is read.

    A module that uses the name must not read an attribute while it is loaded itself. Annotations stand in quotes.
    """

    def __init__(self, name: str, environment: Mapping[str, str] = {}) -> None:
        """`environment` holds defaults of environment variables that the module reads while it is imported."""
        self._name, self._environment = name, environment

    def __getattr__(self, attribute: str) -> Any:
        for name, value in self._environment.items():
            os.environ.setdefault(name, value)
        return getattr(import_module(self._name), attribute)


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


def search_rarely() -> None:
    """Search new objects after 200,000 of them, all objects seldom, and none at the end of the process.

    Processor time saved at the start: .6 s for `loopscale plan`, and .25 s for a worker. At the end: .4 s for every
    process with torch. The operating system frees the memory at the end anyway.
    """
    gc.set_threshold(200_000, 20, 100)
    atexit.unregister(_end)
    atexit.register(_end)


def _end() -> None:
    # DuckDB prints a list of its types as leaks, unless a search frees them.
    if "duckdb" not in sys.modules:
        gc.freeze()
