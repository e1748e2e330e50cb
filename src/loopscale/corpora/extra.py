"""The packages that translation needs beside those of loopscale: the extra `translation`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from loopscale.core.cheap_imports import Deferred
from loopscale.errors import UsageError

if TYPE_CHECKING:  # loopscale works without these packages
    import polib
    import tokenizers
else:
    polib = Deferred("polib")
    # The library otherwise starts a thread on each processor, and warns in every process that a trial starts.
    tokenizers = Deferred("tokenizers", environment={"TOKENIZERS_PARALLELISM": "false"})


@contextmanager
def extra_packages() -> Iterator[None]:
    """The first use of a package of the extra stands inside this context. Raises UsageError for a missing package."""
    try:
        yield
    except ModuleNotFoundError as problem:
        what = f"translation needs {problem.name}, which is not installed"
        raise UsageError(f"{what}; run pip install 'loopscale[translation]'") from problem
