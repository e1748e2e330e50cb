"""On PYTHONPATH of the kill tests: each checkpoint that any process saves writes a line to $TRACE_SAVES.

The tests therefore count repeated work. While the file $SAVE_SECONDS exists, each save takes as many seconds more as
the file says, at most until the file is gone. While the file $MOST_SAVES exists, a save waits if there are at least as
many saves as the file says. A test thereby keeps a trial from its end, on a machine of any speed.
Python imports this file at its start. The file itself does not import torch.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import time
from collections.abc import Callable
from types import ModuleType


def wait_as_told() -> None:
    start = time.monotonic()
    while True:
        try:
            with open(os.environ["SAVE_SECONDS"]) as file:
                seconds = float(file.read())
        except (KeyError, OSError, ValueError):
            return
        if time.monotonic() - start >= seconds:
            return
        time.sleep(0.05)


def wait_after_most_saves() -> None:
    with open(os.environ["TRACE_SAVES"]) as file:
        saves = file.read().count("\n")
    while True:
        try:
            with open(os.environ["MOST_SAVES"]) as file:
                most = int(file.read())
        except (KeyError, OSError, ValueError):
            return
        if saves < most:
            return
        time.sleep(0.05)


class Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, change: Callable[[ModuleType], None]) -> None:
        self.loader, self.change = loader, change

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        self.change(module)


class AfterImport(importlib.abc.MetaPathFinder):
    """Changes a module after its import."""

    def __init__(self, name: str, change: Callable[[ModuleType], None]) -> None:
        self.name, self.change = name, change

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec
        assert spec.loader
        spec.loader = Loader(spec.loader, self.change)
        return spec


def trace_saves(checkpoints: ModuleType) -> None:
    save = checkpoints.save

    def traced_save(store, key, checkpoint) -> None:
        save(store, key, checkpoint)
        with open(os.environ["TRACE_SAVES"], "a") as file:
            file.write(f"{key} {checkpoint.state.step} {store.url}\n")
        wait_as_told()
        wait_after_most_saves()

    checkpoints.save = traced_save


if "TRACE_SAVES" in os.environ:
    sys.meta_path.insert(0, AfterImport("loopscale.training.checkpoint", trace_saves))
