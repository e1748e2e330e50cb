"""Mistakes in a study. Each is one line: the file, the line, the mistake and the remedy."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from loopscale.core.visible import shortened, visible
from loopscale.errors import StudyError

Place = tuple[str | int, ...]
"""Position in a study's tree: keys and list positions, from the top. A key may contain dots."""

MOST_QUOTED = 60
"""Characters of a quoted value."""
MOST_NAMES = 20
"""Names that a remedy lists."""
MOST_CHARACTERS = 500
"""Characters of each part of a line."""
MOST_LINES = 50
"""Mistakes that are reported at once."""


class Fault(NamedTuple):
    """A mistake by its place in the tree; the file and the line are not known yet."""

    place: Place
    what: str
    remedy: str

    @classmethod
    def from_text(cls, place: Place, text: object, prefix: str = "", remedy: str = "") -> "Fault":
        """Split a message `what is wrong; what would be right`; `remedy` stands in for a missing second part."""
        what, _, right = str(text).partition("; ")
        return cls(place, prefix + what, right or remedy)


class Mistake(NamedTuple):
    """A mistake as it is printed. `file` may also be a `--set` option; `line` counts from 1, `None` without a file."""

    file: str
    line: int | None
    what: str
    remedy: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        parts = (shortened(visible(part), MOST_CHARACTERS) for part in (where, self.what, self.remedy))
        return " ".join("{}: {}; {}".format(*parts).split())


class Mistakes(StudyError):
    """All mistakes of a study; the text has one line for each."""

    def __init__(self, items: Iterable[Mistake]) -> None:
        self.items = tuple(dict.fromkeys(items))
        rest = len(self.items) - MOST_LINES
        more = [f"and {rest:,} more"] if rest > 0 else []
        super().__init__("\n".join([*map(str, self.items[:MOST_LINES]), *more]))

    @classmethod
    def one(cls, file: str, what: str, remedy: str, line: int | None = None) -> "Mistakes":
        return cls([Mistake(file, line, what, remedy)])


def quoted(value: Any) -> str:
    """A value as a mistake quotes it: on one line, and shortened."""
    text = " ".join(repr(value).split())
    return text if len(text) <= MOST_QUOTED else text[: MOST_QUOTED - 3] + "..."


def dotted(place: Sequence[str | int]) -> str:
    return ".".join(map(str, place))


def one_of(name: object, known: Iterable[object]) -> str:
    """The remedy for an unknown name: the nearest known name, if one is near, and the list of known names."""
    names = [str(each) for each in known]
    completions = [each for each in names if str(name) and each.startswith(str(name))]
    near = difflib.get_close_matches(str(name), completions or names, 1, 0.6)
    if near and (len(names) > MOST_NAMES or len(names) == 1):
        return f"did you mean {near[0]}?"
    listed = ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
    return f"did you mean {near[0]}? There is {listed}" if near else f"use one of {listed}"
