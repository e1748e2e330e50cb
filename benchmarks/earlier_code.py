"""This project at an earlier commit, as a side of a benchmark."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def code_at(commit: str | None) -> Iterator[Path | None]:
    """A folder with this project at `commit`; None without a commit."""
    if commit is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="earlier-") as folder:
        here = Path(__file__).parent.parent
        archive = subprocess.run(["git", "-C", here, "archive", commit], stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)
