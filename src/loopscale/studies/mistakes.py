"""What is wrong with a study: one line a mistake, with its place, what is there and what would be right."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from loopscale.core.visible import shortened, visible

Place = tuple[str | int, ...]
"""Where something stands in a study's tree: keys and positions, from the top. A key may hold dots."""

SHOWN = 60
MANY = 20
LONGEST = 500
"""Characters of each part of a line."""
LINES = 50
"""How many mistakes are told at once."""


class Fault(NamedTuple):
    """A mistake by its place in the tree, before anyone knows what file the tree is from."""

    place: Place
    what: str
    remedy: str


@dataclass(frozen=True)
class Mistake:
    """`file` is a path, or the `--set` that brought it in; `line` counts from 1, `None` without a file."""

    file: str
    line: int | None
    what: str
    remedy: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        parts = (shortened(visible(part), LONGEST) for part in (where, self.what, self.remedy))
        return " ".join("{}: {}; {}".format(*parts).split())


class Mistakes(Exception):
    """All that is wrong with a study; its text has one line for each."""

    def __init__(self, items: Iterable[Mistake]) -> None:
        self.items = tuple(dict.fromkeys(items))
        more = [f"and {len(self.items) - LINES:,} more"] if len(self.items) > LINES else []
        super().__init__("\n".join([*map(str, self.items[:LINES]), *more]))


def shown(value: Any) -> str:
    """A value as it is quoted in a mistake: on one line, and not the whole of a long one."""
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def dotted(place: Sequence[str | int]) -> str:
    return ".".join(map(str, place))


def one_of(name: object, known: Iterable[object]) -> str:
    """The remedy for a name that is none of the known ones: the nearest first, if one is near."""
    names = [str(each) for each in known]
    begun = [each for each in names if str(name) and each.startswith(str(name))]
    near = difflib.get_close_matches(str(name), begun or names, 1, 0.6)
    if near and len(names) > MANY:
        return f"did you mean {near[0]}?"
    if near and len(names) == 1:
        return f"did you mean {near[0]}?"
    listed = ", ".join(names[:MANY]) + (", ..." if len(names) > MANY else "")
    return f"did you mean {near[0]}? There is {listed}" if near else f"use one of {listed}"
