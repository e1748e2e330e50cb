"""The packages that translation needs beside those of loopscale: the extra `translation`."""

from collections.abc import Iterator
from contextlib import contextmanager

from loopscale.errors import UsageError


@contextmanager
def extra_packages() -> Iterator[None]:
    """Imports of packages of the extra stand inside this context. Raises UsageError for a missing package."""
    try:
        yield
    except ModuleNotFoundError as problem:
        what = f"translation needs {problem.name}, which is not installed"
        raise UsageError(f"{what}; run pip install 'loopscale[translation]'") from problem
