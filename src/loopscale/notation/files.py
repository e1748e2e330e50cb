"""The file of a study: its place and name, its content as a tree of plain values, and changes by `--set`.

Numbers and booleans follow YAML 1.2: 1e-4 is a number, and `no` is a word. Only the part of YAML that data needs is
read: no tags, no merge keys, and aliases only as long as they stay small.
"""

import copy
import math
import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import yaml

from loopscale.core.files import LONGEST_STUDY_NAME
from loopscale.core.plugins import is_path
from loopscale.core.visible import UNSEEN
from loopscale.notation.mistakes import Fault, Mistake, Mistakes, Place, dotted, one_of, quoted

SUFFIXES = (".yaml", ".yml")
FOLDER = "studies"
SHIPPED = Path(__file__).parents[1] / "shipped" / FOLDER
"""The studies of the package. In a checkout this is a link to the checkout's `studies/`."""
PARTS = ("task", "model", "training")
"""Parts of a trial that a study fixes, varies and tunes. The study itself chooses the fourth part, the seed."""
BUDGET_PATHS = ("training.flops", "training.seconds")
"""Settings from which a study derives the steps of its trainings."""
STUDY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*")


def find_study(name_or_path: str | Path) -> Path:
    """The file of a study, given its path or its name. Raises Mistakes.

    A name is searched below the nearest `studies/`, then as a file, then among the shipped studies.
    """
    path, folder = Path(name_or_path), studies_folder()
    if not str(name_or_path).strip():
        raise _empty_name()
    if path.suffix in SUFFIXES:
        if os.path.exists(path):
            return path
        if os.path.islink(path):
            what = f"the link leads to {os.readlink(path)}, where there is no file"
            raise Mistakes.one(str(path), what, "correct the link")
        raise Mistakes.one(str(path), "there is no such file", _nearest_file(path, folder))
    if folder and (file := _below(folder, path)):
        return file
    for file in (path, *(Path(f"{path}{suffix}") for suffix in SUFFIXES)):
        if os.path.exists(file):
            return file
    if file := _below(SHIPPED, path):
        return file
    if folder is None:
        what = f"there is no such file, no {FOLDER}/ here or above, and no such shipped study"
    else:
        what = f"there is no such study below {FOLDER}/"
    known = known_studies()
    same = [name for name in known if name.endswith(f"/{path.as_posix()}")]
    remedy = f"did you mean {' or '.join(same)}?" if same else one_of(name_or_path, known)
    raise Mistakes.one(str(path), what, remedy)


def _below(folder: Path, name: Path) -> Path | None:
    """The file of a study below a `studies/` folder. Raises Mistakes for a link that leads out of the folder."""
    for suffix in SUFFIXES if STUDY_NAME.fullmatch(name.as_posix()) else ():
        if os.path.isfile(file := Path(f"{folder}/{name}{suffix}")):
            if not file.resolve().is_relative_to(folder.resolve()):
                what = f"this link leads out of {FOLDER}/"
                raise Mistakes.one(str(file), what, "name the file that the link points to")
            return file
    return None


def known_studies() -> list[str]:
    """The names of all studies: below the nearest `studies/`, and of the shipped studies."""
    folder = studies_folder()
    return list(dict.fromkeys([*(study_names(folder) if folder else []), *study_names(SHIPPED)]))


def study_names(folder: Path) -> list[str]:
    """The names of all studies in a `studies/` folder."""
    files = sorted(file for suffix in SUFFIXES for file in folder.rglob(f"*{suffix}"))
    names = [file.relative_to(folder).with_suffix("").as_posix() for file in files if file.is_file()]
    return [name for name in names if STUDY_NAME.fullmatch(name)]


def studies_folder(start: Path | None = None) -> Path | None:
    """The `studies/` folder in the current folder or in the nearest folder above."""
    current = (start or Path.cwd()).resolve()
    if current.name == FOLDER:
        return current
    above = (current, *current.parents)
    return next((folder / FOLDER for folder in above if (folder / FOLDER).is_dir()), None)


def study_name(path: Path) -> str:
    """The path below the nearest `studies/`, without suffix, or else the stem. Raises Mistakes."""
    whole = path.resolve().with_suffix("")
    depth = next((n for n, part in reversed(list(enumerate(whole.parts[:-1]))) if part == FOLDER), None)
    name = whole.name if depth is None else "/".join(whole.parts[depth + 1 :])
    if not STUDY_NAME.fullmatch(name):
        what = f"{name!r} cannot be a study's name"
        raise Mistakes.one(str(path), what, "rename the file, with letters, digits, _ . and - only")
    return name


def new_name(text: str) -> str:
    """The name that records shall have, given the name or a file. Raises Mistakes for a name that no file can have."""
    path = Path(text)
    if path.suffix in SUFFIXES:
        return study_name(path)
    if len(text) > LONGEST_STUDY_NAME:
        what = f"{len(text):,} characters are too many for the name of a study"
        raise Mistakes.one(quoted(text), what, f"use at most {LONGEST_STUDY_NAME}")
    if not STUDY_NAME.fullmatch(text):
        what = f"{quoted(text)} cannot be a study's name"
        raise Mistakes.one(quoted(text), what, "use letters, digits, _ . and - only, and / between folders")
    return text


def recorded_name(study: str) -> str:
    """The name of a study in the records, given its file or its name. The file may be gone.

    Raises Mistakes for an empty text, for a character that no name holds, and for a file whose name no study can have.
    """
    if not study.strip():
        raise _empty_name()
    if UNSEEN.search(study):
        what = "the name holds an invisible character, or a byte that is not UTF-8"
        raise Mistakes.one(quoted(study), what, "type the name again")
    path = Path(study)
    try:
        path = find_study(study)
    except Mistakes:
        return study_name(path) if path.suffix in SUFFIXES else study
    return study if path.is_dir() else study_name(path)


def _empty_name() -> Mistakes:
    return Mistakes.one("STUDY", "the name is empty", f"give a study's file, or its name below {FOLDER}/")


def _nearest_file(path: Path, studies: Path | None) -> str:
    """The remedy for a missing file: the study of that name below studies/, or a file in the same folder."""
    if studies and os.path.isfile(studies / path):
        return f"name the study, {path.with_suffix('')}"
    try:
        files = [file for file in sorted(path.parent.iterdir()) if file.suffix in SUFFIXES and file.is_file()]
    except OSError:
        files = []
    return one_of(path, files) if files else f"name a file that exists; {path.parent} has no studies"


MOST_BYTES = 2**18
MOST_NODES, MOST_ENTRIES, DEEPEST = 5_000, 1_000, 50
"""Values in a file; values in one list or mapping; levels. Larger files would take minutes to read."""
LONGEST_NUMBER, LONGEST_KEY = 40, 200
"""Characters."""
TOO_MANY = f"more than {MOST_NODES:,} values are written"
TOO_DEEP = "the file is nested too deeply"
YAML_TAG = "tag:yaml.org,2002:"


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
    cast(Any, Loader).add_implicit_resolver(YAML_TAG + _tag, re.compile(f"^(?:{_pattern})$"), _first)


@dataclass
class YamlTree:
    """Plain values, and where each value comes from: a line of `file`, or a `--set` option."""

    tree: dict[str, Any]
    file: str
    text: str = ""
    lines: dict[Place, int] = field(default_factory=dict[Place, int])
    overrides: dict[Place, str] = field(default_factory=dict[Place, str])
    """Place -> the `--set` option that put the value there."""
    files: dict[Place, str] = field(default_factory=dict[Place, str])
    """Place -> the base whose value stands there. All other values come from `file`."""

    def mistake(self, fault: Fault) -> Mistake:
        """The fault with the file and the line of the nearest value, or with the `--set` option."""
        place, depth = fault.place, len(fault.place)
        nearest = [place[:n] for n in range(depth, 0, -1)]
        changed = [above for above in nearest if above in self.overrides]
        if place not in self.lines:  # an override may have created the component
            changed += [inner for inner in self.overrides if inner[:depth] == place]
        if changed:
            return Mistake(f"--set {self.overrides[changed[0]]}", None, fault.what, fault.remedy)
        above = next((above for above in nearest if above in self.lines), ())
        line = self.lines.get(above, 1) if above else 1
        return Mistake(
            self.files.get(above, self.file), line if self.lines else None, fault.what, fault.remedy
        )

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


def read_study(path: Path, name: str | None = None) -> YamlTree:
    """Read a study's file, merged with its base; mistakes call the file `name`. Raises Mistakes."""
    return with_base(read_yaml(path, name), path.parent)


def parse_yaml(text: str, name: str) -> YamlTree:
    with _yaml_errors(name):
        node: yaml.Node | None = cast(Any, yaml).compose(text, Loader)
        reader = _Reader(name)
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
        if node.tag.removeprefix(YAML_TAG) not in ("map", "seq", "str", "int", "float", "bool", "null"):
            self.wrong(node, f"the tag {node.tag.replace(YAML_TAG, '!!')} is not allowed", "write plain data")
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
            return _scalar(node.tag.removeprefix(YAML_TAG), node.value)
        except ValueError:
            self.wrong(
                node, f"{node.value[:40]!r} cannot be read as a number", "write a number, as in 1000 or 1e-4"
            )

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != YAML_TAG + "str" or key.value == "<<":
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
    """The value of a scalar. Raises ValueError for a number that is too long or infinite."""
    if tag in ("int", "float"):
        if len(text) > LONGEST_NUMBER or math.isinf(float(text)):
            raise ValueError(text)
        return int(text) if tag == "int" else float(text)
    return {"null": None, "bool": text.lower() == "true"}.get(tag, text)


class Dumper(yaml.SafeDumper):
    """SafeDumper that quotes every text which `Loader` would read as a number, such as 1e-4."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_RESOLVERS = (yaml.SafeDumper.yaml_implicit_resolvers, Loader.yaml_implicit_resolvers)
Dumper.yaml_implicit_resolvers = {
    first: [each for resolvers in _RESOLVERS for each in resolvers.get(first, [])]
    for first in {*_RESOLVERS[0], *_RESOLVERS[1]}
}


def dump_yaml(tree: Mapping[str, Any]) -> str:
    """Plain values as YAML. `parse_yaml` reads the same values."""
    return yaml.dump(
        dict(tree), Dumper=Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
    )


BASE_KEY = "base"
"""The key of the file that a study extends."""
REPLACED = "nuisance"
"""The key whose ranges a file replaces as a whole."""


def with_base(source: YamlTree, folder: Path) -> YamlTree:
    """The tree merged with its base, a file relative to `folder`. The text is then the merged tree as YAML.

    Mappings merge key by key, and the values of `source` win. Lists and ranges are replaced. The paths of plugins in
    the base are relative to the base. Raises Mistakes.
    """
    if BASE_KEY not in source.tree:
        return source
    written = source.tree[BASE_KEY]
    if not isinstance(written, str) or Path(written).suffix not in SUFFIXES:
        what, remedy = (
            f"base is {quoted(written)}",
            "write the path of a YAML file, as in base: ../common.yaml",
        )
        raise Mistakes([source.mistake(Fault((BASE_KEY,), what, remedy))])
    path, current = Path(os.path.normpath(folder / written)), Path.cwd()
    if not os.path.exists(path):
        what = f"there is no file {written}, seen from the study's file"
        files = sorted(os.path.relpath(file, folder) for file in _yaml_files(path.parent))
        remedy = one_of(written, files) if files else "correct the path"
        raise Mistakes([source.mistake(Fault((BASE_KEY,), what, remedy))])
    base = read_yaml(path, str(path.relative_to(current) if path.is_relative_to(current) else path))
    if BASE_KEY in base.tree:
        what, remedy = "a base extends no other file", "copy the keys of the other file, and take base out"
        raise Mistakes([base.mistake(Fault((BASE_KEY,), what, remedy))])
    _move_plugins(base.tree, os.path.relpath(path.parent, folder))
    own = {name: value for name, value in source.tree.items() if name != BASE_KEY}
    merged = YamlTree(_merge(own, base.tree), source.file, lines=dict(source.lines))
    for place in base.lines:
        if _of_base(own, place):
            merged.lines[place], merged.files[place] = base.lines[place], base.file
    merged.text = f"# {Path(source.file).name}, with the keys of its base {written}\n{dump_yaml(merged.tree)}"
    try:
        parse_yaml(merged.text, source.file)
    except Mistakes as problem:
        what = f"with its base, the file is too large ({problem.items[0].what})"
        fault = Fault((BASE_KEY,), what, "name a study, not a data file")
        raise Mistakes([source.mistake(fault)]) from None
    return merged


def _yaml_files(folder: Path) -> list[Path]:
    try:
        return [file for file in folder.iterdir() if file.suffix in SUFFIXES and file.is_file()]
    except OSError:
        return []


def _merge(own: Mapping[str, Any], base: Mapping[str, Any], place: Place = ()) -> dict[str, Any]:
    """The values of both trees. The own values come first, and win."""
    tree = {**own, **{name: copy.deepcopy(value) for name, value in base.items() if name not in own}}
    for name in own.keys() & base.keys():
        above, below = own[name], base[name]
        if isinstance(above, dict) and isinstance(below, dict) and place != (REPLACED,):
            above, below = cast(dict[str, Any], above), cast(dict[str, Any], below)
            tree[name] = _merge(above, below, (*place, name))
    return tree


def _of_base(own: Mapping[str, Any], place: Place) -> bool:
    """True if the merged value at the place comes from the base."""
    tree: Any = own
    for n, step in enumerate(place):
        if not isinstance(tree, dict) or (n == 2 and place[0] == REPLACED):
            return False
        if step not in tree:
            return True
        tree = cast(dict[Any, Any], tree)[step]
    return False


def _move_plugins(tree: dict[str, Any], folder: str) -> None:
    """Let the paths of plugins and of functions begin at the study's folder; `folder` is the way to the base."""

    def moved(written: Any) -> Any:
        file, colon, function = written.rpartition(":") if isinstance(written, str) else ("", "", "")
        file, function = (file, function) if colon else (written, "")
        if folder == "." or not isinstance(file, str) or not is_path(file):
            return written
        path = os.path.normpath(os.path.join(folder, file))
        return (path if path.startswith(("/", "..")) else f"./{path}") + colon + function

    for place in (tree, tree.get("evaluate")):
        for name in ("plugins", "measures"):
            if isinstance(place, dict) and isinstance(listed := cast(Any, place).get(name), list):
                place[name] = [moved(each) for each in cast(list[Any], listed)]


MOST_DIGITS = 6
"""A number with more digits is no position in a list."""
ROLES = ("scientific", "nuisance")


def with_overrides(source: YamlTree, overrides: Mapping[str, str]) -> YamlTree:
    """A copy of the tree with other values: dotted path -> value as YAML. Raises Mistakes, which name the `--set`.

    A path begins with a key of the study, or with a part of a trial, which is set under `fixed`.
    """
    changed = copy.deepcopy(source)
    for path, text in overrides.items():
        assignment = f"{path}={text}"
        if len(path) > LONGEST_KEY or UNSEEN.search(path):
            what, remedy = f"{quoted(path)} names no setting", "write a dotted path, as in training.steps"
            raise Mistakes.one(f"--set {quoted(path)}", what, remedy)
        if path == BASE_KEY:
            what = "--set cannot change the base"
            raise Mistakes.one(f"--set {assignment}", what, "write base: into the study's file")
        value = parse_value(text, assignment)
        place = _place(changed.tree, path, assignment)
        _put(changed.tree, place, value, assignment)
        changed.overrides[place] = assignment
    return changed


def parse_value(text: str, assignment: str) -> Any:
    """The value of an assignment `path=text`. Raises Mistakes."""
    try:
        tree = parse_yaml(f"value: {text}", f"--set {assignment}").tree
    except Mistakes as problem:
        raise Mistakes(
            Mistake(f"--set {assignment}", None, mistake.what, "write the value as YAML")
            for mistake in problem.items
        ) from None
    if len(tree) > 1:
        raise Mistakes.one(f"--set {assignment}", "more than one setting is given", "write a --set for each")
    return tree["value"]


def _place(tree: Mapping[str, Any], path: str, assignment: str) -> Place:
    steps = path.split(".")
    if steps[0] in PARTS:
        for role in ROLES:
            if path in (tree.get(role) or {}):
                what = f"{path} is {role} in this study, not fixed"
                raise Mistakes.one(f"--set {assignment}", what, f"write --set {role}.{path}=...")
        return ("fixed", *steps)
    if steps[0] in ROLES and len(steps) > 1:
        axes: Any = tree.get(steps[0])
        for n in range(len(steps), 1, -1):
            if isinstance(axes, dict) and ".".join(steps[1:n]) in axes:
                return (steps[0], ".".join(steps[1:n]), *map(_step, steps[n:]))
        return (steps[0], ".".join(steps[1:]))
    return tuple(map(_step, steps))


def _step(text: str) -> str | int:
    """A key, or a position in a list."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else text


def _put(root: dict[str, Any], place: Place, value: Any, assignment: str) -> None:
    *parents, last = place
    tree: Any = root
    for n, step in enumerate(parents):
        _require_step(tree, place, n, assignment)
        if isinstance(tree, dict) and cast(dict[Any, Any], tree).get(step) is None:
            tree[step] = {}
        tree = cast(Any, tree)[step]
    _require_step(tree, place, len(parents), assignment)
    tree[last] = value


def _require_step(tree: Any, place: Place, n: int, assignment: str) -> None:
    """Raise Mistakes if step `n` of the place can neither be found nor created in the tree."""
    if isinstance(tree, dict):
        return
    positions = range(len(cast(list[Any], tree))) if isinstance(tree, list) else ()
    if place[n] not in positions:
        remedy = one_of(place[n], positions) if positions else f"set {dotted(place[:n])} as a whole"
        raise Mistakes.one(f"--set {assignment}", f"there is no {dotted(place[: n + 1])} to set", remedy)
