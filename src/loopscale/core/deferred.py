"""Import a heavy module at its first use, as in SPEC 1 of Scientific Python."""

import os
from collections.abc import Mapping
from importlib import import_module
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
