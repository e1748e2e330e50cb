"""A YAML file as a plain tree, with the line of everything in it.

YAML 1.2's numbers and booleans, so that 1e-4 is a number and `no` a word. Of YAML only what data
needs: no tags, no merge keys, and aliases only as far as they stay small.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from loopscale.core.visible import UNSEEN
from loopscale.studies.mistakes import Fault, Mistake, Mistakes, Place, shown

LARGEST = 2**18
"""Bytes."""
MOST_NODES, MOST_ENTRIES, DEEPEST = 5_000, 1_000, 50
"""Values in a file, and in one list or mapping; levels of lists and mappings. Beyond, reading would take minutes."""
LONGEST_NUMBER, LONGEST_KEY = 40, 200
"""Characters."""
TOO_MANY = f"more than {MOST_NODES:,} values are written"
TOO_DEEP = "is nested too deeply"
PREFIX = "tag:yaml.org,2002:"


class Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2, and 500_000 beside them; stops at what is too much."""

    nodes = depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.nodes, self.depth = self.nodes + 1, self.depth + 1
        for amount, most, what in ((self.nodes, MOST_NODES, TOO_MANY), (self.depth, DEEPEST, TOO_DEEP)):
            if amount > most:
                mark = self.peek_event().start_mark  # pyright: ignore[reportOptionalMemberAccess]
                raise yaml.MarkedYAMLError(problem=what, problem_mark=mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803  (PyYAML's name)
        """Found before anything is composed, since looking ahead takes PyYAML longer with every open bracket."""
        if self.flow_level >= DEEPEST:
            raise yaml.MarkedYAMLError(problem=TOO_DEEP, problem_mark=self.get_mark())
        super().fetch_flow_collection_start(TokenClass)


Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9][0-9_]*", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    Loader.add_implicit_resolver(PREFIX + _tag, re.compile(f"^(?:{_pattern})$"), _first)


@dataclass
class Source:
    """A tree, and where everything in it was written: in `file`, but for what an override put there."""

    tree: dict[str, Any]
    file: str
    text: str = ""
    lines: dict[Place, int] = field(default_factory=dict)
    overrides: dict[Place, str] = field(default_factory=dict)
    """What came in by `--set`, by its place."""

    def line_of(self, place: Place | str) -> int | None:
        """The line of the nearest thing that was written; a dotted path or, where keys hold dots, a tuple."""
        place = tuple(place.split(".")) if isinstance(place, str) else place
        return next((self.lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in self.lines), 1)

    def mistake(self, fault: Fault) -> Mistake:
        for n in range(len(fault.place), 0, -1):
            if override := self.overrides.get(fault.place[:n]):
                return Mistake(f"--set {override}", None, fault.what, fault.remedy)
        if fault.place not in self.lines:  # the file does not have it: an override opened it
            for place, override in self.overrides.items():
                if place[: len(fault.place)] == fault.place:
                    return Mistake(f"--set {override}", None, fault.what, fault.remedy)
        return Mistake(self.file, self.line_of(fault.place) if self.lines else None, fault.what, fault.remedy)

    @classmethod
    def of(cls, tree: Any, name: str) -> Self:
        """A tree that comes from no file, as in tests and notebooks."""
        if not isinstance(tree, dict):
            raise Mistakes([Mistake(name, None, "a study is a mapping", "write question: and fixed: first")])
        return cls(tree, name)


def read(path: Path, name: str | None = None) -> Source:
    """The file as a tree; `name` is what mistakes call it. Raises Mistakes."""
    name = name or str(path)
    return text_source(_text(path, name), name)


def text_source(text: str, name: str) -> Source:
    with _yaml_errors(name):
        node = yaml.compose(text, Loader)
    reader = _Reader(name)
    with _yaml_errors(name):
        tree = reader.value(node, ()) if node is not None else None
    if reader.mistakes:
        raise Mistakes(reader.mistakes)
    if not isinstance(tree, dict):
        found = "empty" if tree is None else f"a {'list' if isinstance(tree, list) else 'single value'}"
        raise Mistakes(
            [Mistake(name, 1, f"the file is {found}, not a mapping", "begin with question: and fixed:")]
        )
    return Source(tree, name, text, reader.lines)


def _text(path: Path, name: str) -> str:
    def wrong(what: str, remedy: str) -> Mistakes:
        return Mistakes([Mistake(name, None, what, remedy)])

    if path.exists() and not path.is_file() and not path.is_dir():
        raise wrong("this is no file but a device or a pipe", "name a file")  # reading it might never end
    if path.is_dir():
        raise wrong("this is a folder", "name one study file in it, as in " + str(Path(name) / "study.yaml"))
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as problem:
        raise wrong(
            f"cannot be read ({problem.strerror})", "name a file that exists and may be read"
        ) from None
    if len(data) > LARGEST:
        raise wrong(f"is larger than {LARGEST // 2**10} KiB", "name a study, not a data file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data[: problem.start].count(b"\n") + 1
        mistake = Mistake(
            name, line, f"byte {data[problem.start]:#04x} is not UTF-8 text", "save the file as UTF-8"
        )
        raise Mistakes([mistake]) from None


@contextmanager
def _yaml_errors(name: str) -> Iterator[None]:
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(filter(None, (error.context, error.problem)))
        line = mark.line + 1 if mark else 1
        remedy = {TOO_MANY: "name a study, not a data file", TOO_DEEP: "a study is at most a few levels deep"}
        if what in remedy:
            raise Mistakes([Mistake(name, line, what, remedy[what])]) from None
        raise Mistakes([Mistake(name, line, f"not YAML: {what}", _yaml_remedy(what))]) from None
    except yaml.reader.ReaderError as error:
        what = f"character {error.character!r} is not allowed in YAML"
        raise Mistakes([Mistake(name, 1, what, "take it out")]) from None
    except RecursionError:
        raise Mistakes([Mistake(name, 1, TOO_DEEP, "a study is at most a few levels deep")]) from None


def _yaml_remedy(what: str) -> str:
    if "\\t" in what:
        return "indent with spaces, not with tabs"
    if "alias" in what or "anchor" in what:
        return "write the value out"
    if "expected a single document" in what:
        return "keep one study in a file: take out the ---"
    return "check the indentation, brackets, quotes and colons there and on the line before"


class _Reader:
    """Nodes to plain values, noting lines. What is wrong is collected, and None stands in its place."""

    def __init__(self, name: str) -> None:
        self.name, self.mistakes = name, list[Mistake]()
        self.lines: dict[Place, int] = {}
        self.nodes, self.open, self.unfolded = 0, set[int](), False

    def wrong(self, node: yaml.Node, what: str, remedy: str) -> None:
        self.mistakes.append(Mistake(self.name, node.start_mark.line + 1, what, remedy))

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.lines.setdefault(place, node.start_mark.line + 1)
        self.nodes += 1
        if id(node) in self.open or self.nodes > MOST_NODES:
            if not self.unfolded:
                self.wrong(node, "aliases unfold into too much", "write the values out, without & and *")
            self.unfolded = True
            return None
        if node.tag.removeprefix(PREFIX) not in ("map", "seq", "str", "int", "float", "bool", "null"):
            self.wrong(node, f"the tag {node.tag.replace(PREFIX, '!!')} is not allowed", "write plain data")
            return None
        self.open.add(id(node))
        try:
            return self._inner(node, place)
        finally:
            self.open.discard(id(node))

    def _inner(self, node: yaml.Node, place: Place) -> Any:
        if not isinstance(node, yaml.ScalarNode) and len(node.value) > MOST_ENTRIES:
            what = f"{len(node.value):,} values are written here"
            self.wrong(node, what, f"write at most {MOST_ENTRIES} in one place")
            return None
        match node:
            case yaml.MappingNode():
                return self._mapping(node, place)
            case yaml.SequenceNode():
                return [self.value(child, (*place, n)) for n, child in enumerate(node.value)]
        if found := UNSEEN.search(node.value):
            what = f"a text holds the character {found[0]!a}, which cannot be seen"
            self.wrong(node, what, "take it out")
            return None
        try:
            return _scalar(node.tag.removeprefix(PREFIX), node.value)
        except ValueError:
            self.wrong(
                node, f"{node.value[:40]!r} cannot be read as a number", "write a number, as in 1000 or 1e-4"
            )

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != PREFIX + "str" or key.value == "<<":
                text = f"{key.value!r}" if isinstance(key, yaml.ScalarNode) else "a list or mapping"
                self.wrong(key, f"the key is {text}", "a key is the name of a setting")
            elif UNSEEN.search(key.value) or len(key.value) > LONGEST_KEY:
                self.wrong(key, f"the key is {shown(key.value)}", "a key is the name of a setting")
            elif key.value in tree:
                first = self.lines[*place, key.value]
                self.wrong(key, f"{key.value} is there twice, first in line {first}", "keep one of the two")
            else:
                self.lines[*place, key.value] = key.start_mark.line + 1
                tree[key.value] = self.value(child, (*place, key.value))
        return tree


def _scalar(tag: str, text: str) -> Any:
    if tag in ("int", "float") and len(text) > LONGEST_NUMBER:
        raise ValueError(text)
    match tag:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text)
        case "float":
            if math.isinf(number := float(text)):
                raise ValueError(text)
            return number
    return text
