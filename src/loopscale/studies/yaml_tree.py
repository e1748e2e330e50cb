"""A YAML file as a tree of plain values, with the line of each value.

Numbers and booleans follow YAML 1.2: 1e-4 is a number, and `no` is a word. Only the part of YAML that data needs is
read: no tags, no merge keys, and aliases only as long as they stay small.
"""

import math
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import yaml

from loopscale.core.visible import UNSEEN
from loopscale.studies.mistakes import Fault, Mistake, Mistakes, Place, quoted

MOST_BYTES = 2**18
MOST_NODES, MOST_ENTRIES, DEEPEST = 5_000, 1_000, 50
"""Values in a file; values in one list or mapping; levels. Larger files would take minutes to read."""
LONGEST_NUMBER, LONGEST_KEY = 40, 200
"""Characters."""
TOO_MANY = f"more than {MOST_NODES:,} values are written"
TOO_DEEP = "the file is nested too deeply"
PREFIX = "tag:yaml.org,2002:"


class Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2 and numbers such as 500_000. Stops at the limits above."""

    nodes = depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.nodes, self.depth = self.nodes + 1, self.depth + 1
        for amount, most, what in ((self.nodes, MOST_NODES, TOO_MANY), (self.depth, DEEPEST, TOO_DEEP)):
            if amount > most:
                raise yaml.MarkedYAMLError(problem=what, problem_mark=cast(Any, self).peek_event().start_mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803  (PyYAML's name)
        """Check the depth before composing: PyYAML's scanner becomes slower with every open bracket."""
        if self.flow_level >= DEEPEST:
            raise yaml.MarkedYAMLError(problem=TOO_DEEP, problem_mark=cast(Any, self).get_mark())
        cast(Any, super()).fetch_flow_collection_start(TokenClass)


Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9][0-9_]*", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    cast(Any, Loader).add_implicit_resolver(PREFIX + _tag, re.compile(f"^(?:{_pattern})$"), _first)


@dataclass
class YamlTree:
    """Plain values, and where each value comes from: a line of `file`, or a `--set` option."""

    tree: dict[str, Any]
    file: str
    text: str = ""
    lines: dict[Place, int] = field(default_factory=dict[Place, int])
    overrides: dict[Place, str] = field(default_factory=dict[Place, str])
    """Place -> the `--set` option that put the value there."""

    def line_of(self, place: Place) -> int:
        """The line of the value at `place`, or of the nearest value above it."""
        return next((self.lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in self.lines), 1)

    def mistake(self, fault: Fault) -> Mistake:
        """The fault with the file and the line, or with the `--set` option."""
        for n in range(len(fault.place), 0, -1):
            if override := self.overrides.get(fault.place[:n]):
                return Mistake(f"--set {override}", None, fault.what, fault.remedy)
        if fault.place not in self.lines:  # an override created the component
            for place, override in self.overrides.items():
                if place[: len(fault.place)] == fault.place:
                    return Mistake(f"--set {override}", None, fault.what, fault.remedy)
        return Mistake(self.file, self.line_of(fault.place) if self.lines else None, fault.what, fault.remedy)

    @classmethod
    def of(cls, tree: Any, name: str) -> Self:
        """A tree without a file, as in tests and notebooks."""
        if not isinstance(tree, dict):
            raise Mistakes.one(name, "a study is a mapping", "write question: and fixed: first")
        return cls(cast(dict[str, Any], tree), name)


def read_yaml(path: Path, name: str | None = None) -> YamlTree:
    """Read a file; mistakes call it `name`. Raises Mistakes."""
    name = name or str(path)
    return parse_yaml(_text(path, name), name)


def parse_yaml(text: str, name: str) -> YamlTree:
    with _yaml_errors(name):
        node: yaml.Node | None = cast(Any, yaml).compose(text, Loader)
    reader = _Reader(name)
    with _yaml_errors(name):
        tree = reader.value(node, ()) if node is not None else None
    if reader.mistakes:
        raise Mistakes(reader.mistakes)
    if not isinstance(tree, dict):
        form = "empty" if tree is None else "a list" if isinstance(tree, list) else "a single value"
        raise Mistakes.one(name, f"the file is {form}, not a mapping", "begin with question: and fixed:", 1)
    return YamlTree(cast(dict[str, Any], tree), name, text, reader.lines)


def _text(path: Path, name: str) -> str:
    if path.exists() and not path.is_file() and not path.is_dir():  # reading might never end
        raise Mistakes.one(name, "this is a device or a pipe, not a file", "name a file")
    if path.is_dir():
        example = Path(name) / "study.yaml"
        raise Mistakes.one(name, "this is a folder", f"name one study file in it, as in {example}")
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as problem:
        what = f"the file cannot be read ({problem.strerror})"
        raise Mistakes.one(name, what, "name a file that exists and may be read") from None
    if len(data) > MOST_BYTES:
        what = f"the file is larger than {MOST_BYTES // 2**10} KiB"
        raise Mistakes.one(name, what, "name a study, not a data file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data[: problem.start].count(b"\n") + 1
        what = f"byte {data[problem.start]:#04x} is not UTF-8 text"
        raise Mistakes.one(name, what, "save the file as UTF-8", line) from None


@contextmanager
def _yaml_errors(name: str) -> Generator[None]:
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(filter(None, (error.context, error.problem)))
        line = mark.line + 1 if mark else 1
        remedy = {TOO_MANY: "name a study, not a data file", TOO_DEEP: "write at most a few levels"}
        if what in remedy:
            raise Mistakes.one(name, what, remedy[what], line) from None
        raise Mistakes.one(name, f"not YAML: {what}", _yaml_remedy(what), line) from None
    except yaml.reader.ReaderError as error:
        what = f"character {error.character!r} is not allowed in YAML"
        raise Mistakes.one(name, what, "remove the character", 1) from None
    except RecursionError:
        raise Mistakes.one(name, TOO_DEEP, "write at most a few levels", 1) from None


def _yaml_remedy(what: str) -> str:
    if "\\t" in what:
        return "indent with spaces, not with tabs"
    if "alias" in what or "anchor" in what:
        return "write the value out"
    if "expected a single document" in what:
        return "keep one study in a file: remove the ---"
    return "check the indentation, brackets, quotes and colons there and on the line before"


class _Reader:
    """Turns nodes into plain values and notes their lines. Mistakes are collected; `None` replaces the wrong value."""

    def __init__(self, name: str) -> None:
        self.name, self.mistakes = name, list[Mistake]()
        self.lines: dict[Place, int] = {}
        self.nodes, self.open, self.too_large = 0, set[int](), False

    def wrong(self, node: yaml.Node, what: str, remedy: str) -> None:
        self.mistakes.append(Mistake(self.name, node.start_mark.line + 1, what, remedy))

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.lines.setdefault(place, node.start_mark.line + 1)
        self.nodes += 1
        if id(node) in self.open or self.nodes > MOST_NODES:
            if not self.too_large:
                self.wrong(node, "aliases unfold into too much", "write the values out, without & and *")
            self.too_large = True
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
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*place, n)) for n, child in enumerate(node.value)]
        if unseen := UNSEEN.search(node.value):
            what = f"a text holds the character {unseen[0]!a}, which is invisible"
            self.wrong(node, what, "remove the character")
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
                self.wrong(key, f"the key is {text}", "write the name of a setting")
            elif UNSEEN.search(key.value) or len(key.value) > LONGEST_KEY:
                self.wrong(key, f"the key is {quoted(key.value)}", "write the name of a setting")
            elif key.value in tree:
                first = self.lines[*place, key.value]
                self.wrong(key, f"{key.value} is written twice, first in line {first}", "keep one of the two")
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
        case _:
            return text
