"""Members from outside the package: files and modules that a study names, and installed packages.

A plugin is Python code whose import registers members of families. The sources of a plugin are read once. The same
bytes are hashed, executed and sent to workers, so the hash always belongs to the code that runs.

The hash is that of the parsed code. Comments and formatting do not count. Docstrings count, because code can read them.
Earlier versions hashed the bytes. Records with such a hash belong to a plugin with the same bytes.
"""

import ast
import hashlib
import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, cast

from typing_extensions import override

from loopscale.core.member_faults import class_lines, member_fault
from loopscale.errors import StudyError

GROUP = "loopscale.members"
"""The entry-point group of installed packages with members. An entry point names a module."""
VARIABLE = "LOOPSCALE_PLUGINS"
"""Environment variable with further files and modules, separated like the folders of PATH."""
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
MOST_BYTES = 2**22
"""Bytes of the Python files of one plugin. Every worker receives them."""
OWN = "loopscale"

families: list[type[Any]] = []
"""Every family. `Family` adds each."""
loaded: dict[str, "Plugin"] = {}
"""The plugins of this process, by their names."""
hashed_by_bytes: set[str] = set()
"""The hashes of bytes under which this process knows plugins, because their records have these hashes."""
unloadable: dict[str, str] = {}
"""The reason why a plugin could not be loaded, by its name."""


class PluginError(StudyError):
    """A plugin cannot be used. The text is one line: file, line, mistake and remedy."""

    def __init__(self, file: str, line: int | None, what: str, remedy: str) -> None:
        self.file, self.line, self.what, self.remedy = file, line, " ".join(what.split()), remedy
        where = file if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {self.what}; {remedy}")


class UnusableMember(TypeError):
    """A class or a function from which no member can be made. The text is `<mistake>; <remedy>`."""

    def __init__(self, what: str, remedy: str, code: CodeType | None = None) -> None:
        self.what, self.remedy, self.code = what, remedy, code
        super().__init__(f"{what}; {remedy}")


class MissingPlugin(StudyError):
    """Records name a member of a plugin that is not loaded, or of another version of a plugin."""

    def __init__(
        self, member: str, recorded: str, current: str = "", all_missing: Sequence[str] = ()
    ) -> None:
        name, _, digest = recorded.rpartition(" ")
        what = f"{member} belongs to the plugin {name} with the hash {digest}"
        if current:
            changed = f"the plugin has changed, and its hash is {current.rpartition(' ')[2]} now"
            super().__init__(f"{what}, but {changed}; restore the file, or run the study again")
            return
        reason = f" ({unloadable[name]})" if name in unloadable else ""
        files = os.pathsep.join(all_missing)  # one command loads all of them
        remedy = f"name the study by its file, or set {VARIABLE} to {files or 'the plugin'}"
        super().__init__(f"{what}, which is not loaded{reason}; {remedy}")


class NoPlugin(StudyError):
    """There is no such file or module. The text is `<mistake>; <remedy>`."""


class Source(NamedTuple):
    """A module of a plugin."""

    module: str
    path: str
    """The file, as messages show the file."""
    package: bool
    content: bytes


@dataclass(frozen=True)
class Plugin:
    """The sources of one file or of one package."""

    name: str
    """The file's name, such as `my_model.py`, or the name of the package."""
    module: str
    """The module whose import registers members."""
    sources: tuple[Source, ...] = field(repr=False)
    root: Path
    """The file, or the folder of the package."""
    written: str = field(default="", compare=False)
    """The file, the folder or the module, as the study names the plugin."""
    by_bytes: bool = field(init=False, compare=False)
    """True if the plugin keeps the hash of its bytes, as its records do. Workers get this field with the sources."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_bytes", self.byte_digest in hashed_by_bytes)

    @property
    def is_path(self) -> bool:
        """True if the study names a file or a folder, and not a module."""
        return is_path(self.written)

    @property
    def digest(self) -> str:
        """The hash of all sources, 16 hexadecimal digits."""
        return self.byte_digest if self.by_bytes else self.code_digest

    @cached_property
    def code_digest(self) -> str:
        """The hash of the parsed code."""
        return _digest(self.sources, _code)

    @cached_property
    def byte_digest(self) -> str:
        """The hash of the bytes, which records of earlier versions have."""
        return _digest(self.sources)

    def has_digest(self, recorded: str) -> bool:
        """True if records with this hash belong to this code."""
        return recorded in (self.byte_digest, self.code_digest)

    @property
    def text(self) -> str:
        """The name and the hash, as records keep the plugin."""
        return f"{self.name} {self.digest}"

    @property
    def modules(self) -> set[str]:
        return {source.module for source in self.sources}

    @property
    def members(self) -> list[type[Any]]:
        """The members of all families that the plugin has registered."""
        modules = self.modules
        return [
            each for family in families for each in family._choices.values() if each.__module__ in modules
        ]

    @property
    def files(self) -> dict[str, bytes]:
        """The content of every file, by its path relative to the folder that holds the plugin."""
        above = self.root.parent
        return {
            Path(source.path).absolute().relative_to(above).as_posix(): source.content
            for source in self.sources
        }


def is_path(written: str) -> bool:
    """True if a study names a file or a folder in this way, and not a module."""
    return written.endswith(".py") or "/" in written


def _digest(sources: Sequence[Source], part: Callable[[bytes], bytes] = bytes) -> str:
    content = hashlib.sha256()
    for source in sorted(sources):
        inner = source.module.partition(".")[2] if len(sources) > 1 else ""
        hashed = part(source.content)
        content.update(f"{inner}\0{len(hashed)}\0".encode() + hashed)
    return content.hexdigest()[:16]


def _code(content: bytes) -> bytes:
    """The parsed code as text; the bytes if they cannot be parsed."""
    try:
        return repr(_shape(ast.parse(content))).encode()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return content


def _shape(node: Any) -> Any:
    """A syntax tree without places. Empty fields are left out, because versions of Python differ in them."""
    if isinstance(node, ast.AST):
        fields = [(name, _shape(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
        return type(node).__name__, fields
    return [_shape(each) for each in cast(list[Any], node)] if isinstance(node, list) else node


def hash_as_recorded(recorded: Mapping[str, str]) -> bool:
    """Let loaded plugins have the hash of their records, by name, if the code is equal; True if a hash changes."""
    changed = False
    for name, plugin in list(loaded.items()):
        digest = recorded.get(plugin.name, plugin.digest)
        if digest == plugin.digest or not plugin.has_digest(digest):
            continue
        if plugin.by_bytes:
            hashed_by_bytes.discard(plugin.byte_digest)
        else:
            hashed_by_bytes.add(plugin.byte_digest)
        loaded[name], changed = replace(plugin), True
        for member in plugin.members:
            member.plugin = loaded[name].text
    return changed


def is_recorded_code(recorded: str, current: str) -> bool:
    """True if a recorded plugin is the loaded plugin `current`; both are texts with name and hash."""
    old, new = (text.rpartition(" ")[2] for text in (recorded, current))
    return old == new or any(each.digest == new and each.has_digest(old) for each in loaded.values())


def find_plugin(written: str, folder: Path | None = None) -> Plugin:
    """The plugin of a file or a module, relative to `folder`. Nothing is executed. Raises NoPlugin."""
    folder = (folder or Path.cwd()).absolute()
    if is_path(written):
        path = Path(os.path.normpath(folder / written))
        package = path.parent if path.name == "__init__.py" else path
        if (package / "__init__.py").is_file():
            if not package.name.isidentifier():
                what = f"the folder {package.name} cannot be a package"
                raise NoPlugin(f"{what}; use letters, digits and _ in its name")
            if package != path:  # the file inside names the folder
                written = os.path.join(os.path.dirname(written), "..", package.name)
            return replace(_find_module(package.name, package.parent), written=written)
        if path.suffix != ".py" or not path.is_file():
            what = f"there is no Python file {written} beside the study"
            if path.is_dir():
                what = f"the folder {written} has no file __init__.py"
                raise NoPlugin(f"{what}; add the file, which imports the members, or name a .py file")
            raise NoPlugin(f"{what}; write the path from the study's file")
        source = Source("", _shown(path), False, _content(path))
        module = f"{OWN}_plugin_{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_{_digest([source])[:8]}"
        return Plugin(path.name, module, (source._replace(module=module),), path, written)
    return _find_module(written, folder)


def _find_module(written: str, folder: Path) -> Plugin:
    if not MODULE.fullmatch(written):
        raise NoPlugin(
            f"{written!r} is neither a file nor a module; write ./my_model.py or my_package.module"
        )
    if written.partition(".")[0] == OWN:
        raise NoPlugin(f"{written} is part of {OWN} itself; take the plugin out")
    spec, name = None, ""
    places: Sequence[str] | None = [str(folder), *sys.path]
    for part in written.split("."):
        name = f"{name}.{part}".lstrip(".")
        spec = PathFinder.find_spec(name, places)
        if spec is None or spec.origin:
            break
        places = list(spec.submodule_search_locations or ())  # a namespace package
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise NoPlugin(
            f"there is no module {written} beside the study or in the environment; correct the name"
        )
    file = Path(spec.origin)
    package = spec.submodule_search_locations is not None
    sources = (
        tuple(_sources_below(name, file.parent))
        if package
        else (Source(name, _shown(file), False, _content(file)),)
    )
    if written not in {source.module for source in sources}:
        raise NoPlugin(f"the package {name} has no module {written}; correct the name")
    return Plugin(name, written, sources, file.parent if package else file, written)


def _sources_below(package: str, folder: Path) -> Iterator[Source]:
    total = 0
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if not all(map(str.isidentifier, parts)):
            continue
        content = _content(path)
        if (total := total + len(content)) > MOST_BYTES:
            raise NoPlugin(
                f"the package {package} has more than {MOST_BYTES // 2**20} MiB of Python files; name a smaller package"
            )
        inner = parts[-1] == "__init__"
        yield Source(".".join([package, *parts[: len(parts) - inner]]), _shown(path), inner, content)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise NoPlugin(f"{path} cannot be read ({problem.strerror}); allow reading") from None


def _shown(path: Path) -> str:
    current = Path.cwd()
    return str(path.relative_to(current) if path.is_relative_to(current) else path)


class _Loader(SourceFileLoader):
    """Executes sources from memory. A worker's machine need not have the file."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.module, source.path)
        self._source = source

    @override
    def get_data(self, path: Any) -> bytes:
        return self._source.content if path == self._source.path else super().get_data(path)

    @override
    def path_stats(self, path: Any) -> Any:
        raise OSError("the source has no time, so that Python keeps no bytecode")


class _Finder(MetaPathFinder):
    """Finds the modules of plugins."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        source = self.sources.get(fullname)
        if source is None:
            return None
        inner = [str(Path(source.path).parent)] if source.package else None
        return spec_from_file_location(
            fullname, source.path, loader=_Loader(source), submodule_search_locations=inner
        )


_finder = _Finder()


def load(plugin: Plugin, members: bool = True) -> None:
    """Import the plugin, and check its members. An earlier version of it is forgotten.

    Parameters
    ----------
    members
        Whether a plugin without any member is an error.

    Raises
    ------
    PluginError
    """
    earlier = loaded.get(plugin.name)
    if earlier and earlier.byte_digest != plugin.byte_digest:
        _unload(earlier)
    for known in loaded.values():  # a file may be named twice, and an equal file may have another name
        same_module = known.module == plugin.module or len(plugin.sources) == 1
        if known.byte_digest == plugin.byte_digest and same_module:
            if members and not known.members:
                raise _no_member(plugin)
            loaded[plugin.name] = known
            return
    _forget_imported(plugin)
    try:
        _import(plugin)
        if members and not plugin.members:
            raise _no_member(plugin)
        for member in plugin.members:
            _check(member, plugin)
    except PluginError as problem:
        _unload(plugin)
        unloadable[plugin.name] = str(problem)
        raise
    except BaseException:  # an interrupt
        _unload(plugin)
        raise
    for member in plugin.members:
        member.plugin = plugin.text
    unloadable.pop(plugin.name, None)
    loaded[plugin.name] = plugin


def _forget_imported(plugin: Plugin) -> None:
    """Forget the modules of the plugin that a program has imported by itself, in a notebook for example.

    The program may have imported an earlier content of a file. The hash must belong to the code that runs.

    Raises
    ------
    PluginError
        Another module has the name of a module of the plugin.
    """
    paths = {os.path.realpath(source.path) for source in plugin.sources}
    for name, module in list(sys.modules.items()):
        if name in _finder.sources or name == "__main__":
            continue
        file = getattr(module, "__dict__", {}).get("__file__")  # the table may hold None
        if isinstance(file, str) and file.endswith(".py") and os.path.realpath(file) in paths:
            _forget(name)
        elif name in plugin.modules:
            path = next(source.path for source in plugin.sources if source.module == name)
            what = f"the name {name} belongs to another module, which is imported already"
            raise PluginError(path, None, what, "rename the file")


def _forget(module: str) -> None:
    for family in families:
        for kind in [kind for kind, each in family._choices.items() if each.__module__ == module]:
            del family._choices[kind]
    sys.modules.pop(module, None)


def _import(plugin: Plugin) -> None:
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.sources |= {source.module: source for source in plugin.sources}
    try:
        with redirect_stdout(sys.stderr):  # standard output is the answer of a command, as of `query --json`
            importlib.import_module(plugin.module)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        file, line = _place(problem, plugin)
        text = _text_of(problem)
        if type(problem).__name__ == "KindTaken":
            raise PluginError(file, line, text, "choose another kind") from problem
        if isinstance(problem, UnusableMember):
            raise PluginError(file, line, problem.what, problem.remedy) from problem
        what = f"the file does not import ({type(problem).__name__}: {text})"
        remedy = "correct the line"
        if isinstance(problem, ModuleNotFoundError):
            remedy = "install the module, or name a package that holds both files"
        if isinstance(problem, SystemExit):
            what = "the import of the file ends the program (SystemExit)"
            remedy = 'put the program below `if __name__ == "__main__":`'
        raise PluginError(file, line, what, remedy) from problem


def _text_of(problem: BaseException) -> str:
    """The first line of an exception's text. The code of the text may be a plugin's, and may raise."""
    try:
        return str(problem).strip().partition("\n")[0]
    except Exception as other:
        return f"no text, because __str__ raises {type(other).__name__}"


def _place(problem: BaseException, plugin: Plugin) -> tuple[str, int | None]:
    """The file and the line of the plugin where an error came up."""
    paths = {source.path for source in plugin.sources}
    if isinstance(problem, SyntaxError) and problem.filename in paths:
        return str(problem.filename), problem.lineno
    if isinstance(problem, UnusableMember) and problem.code and problem.code.co_filename in paths:
        return problem.code.co_filename, problem.code.co_firstlineno
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if frame.filename in paths]
    return (frames[-1].filename, frames[-1].lineno) if frames else (plugin.sources[0].path, 1)


def fault_of_plugin(problem: BaseException) -> PluginError | None:
    """The exception of a plugin's code as one line; None if no line of a plugin was at work."""
    paths = {source.path: plugin for plugin in loaded.values() for source in plugin.sources}
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if frame.filename in paths]
    if not frames:
        return None
    what = f"{frames[-1].name} raises {type(problem).__name__}: {_text_of(problem)}"
    if isinstance(problem, SystemExit):
        what = f"{frames[-1].name} ends the program (SystemExit)"
    return PluginError(
        frames[-1].filename, frames[-1].lineno, what, _check_remedy(paths[frames[-1].filename])
    )


def contract_error(owner: type[Any], method: str, what: str) -> Exception:
    """The error of a class that does not do what its family declares: a PluginError for a class of a plugin."""
    for plugin in loaded.values():
        for source in plugin.sources:
            if source.module == owner.__module__:
                lines = class_lines(source.content, owner.__name__)
                line = lines.get(method, lines.get("", 1))
                return PluginError(
                    source.path, line, f"{owner.__name__}.{method} {what}", _check_remedy(plugin)
                )
    return TypeError(f"{owner.__name__}.{method} {what}")


def member_place(plugin: Plugin, member: type[Any], method: str) -> str:
    """File and line of a member's method, else of the class or the function that the member is made of."""
    (draw,) = getattr(member, "draws", (None,))
    if isinstance(draw, FunctionType):
        return f"{_shown(Path(draw.__code__.co_filename))}:{draw.__code__.co_firstlineno}"
    for owner in (getattr(member, "wrapped", None), member):
        for source in plugin.sources:
            if owner is not None and source.module == owner.__module__:
                lines = class_lines(source.content, owner.__name__)
                if lines:
                    return f"{source.path}:{lines.get(method, lines[''])}"
    return plugin.sources[0].path


def function_error(function: FunctionType, what: str) -> Exception:
    """The error of a function that does not do what a member declares: a PluginError for a function of a plugin."""
    name, code = function.__name__, function.__code__
    for plugin in loaded.values():
        if code.co_filename in {source.path for source in plugin.sources}:
            remedy = _check_remedy(plugin, "function", "task")
            return PluginError(code.co_filename, code.co_firstlineno, f"{name} {what}", remedy)
    return TypeError(f"{name} {what}")


def owner_in_plugin(*owners: type[Any]) -> type[Any]:
    """The first class whose code a loaded plugin has; the last class if there is none."""
    modules = {module for plugin in loaded.values() for module in plugin.modules}
    return next((owner for owner in owners if owner.__module__ in modules), owners[-1])


def calling_module() -> str:
    """The name of the module that called into this package.

    A member that `wrap` or `task_from` makes belongs to that module. A run with checked shapes puts frames of a
    decorator between.
    """
    name, frame = OWN, inspect.currentframe()
    while frame and name.partition(".")[0] in (OWN, "jaxtyping"):
        name, frame = frame.f_globals["__name__"], frame.f_back
    return name


def _check_remedy(plugin: Plugin, part: str = "method", whole: str = "class") -> str:
    written = _shown(plugin.root) if plugin.is_path else plugin.module
    return f"correct the {part}; `loopscale check {written}` tests the {whole}"


def _no_member(plugin: Plugin) -> PluginError:
    path = next(source.path for source in plugin.sources if source.module == plugin.module)
    remedy = (
        'write a class such as `class MyModel(Model, kind="my_model")`, or name a measure under evaluate.measures of '
        "a study, which `loopscale plan` checks"
    )
    return PluginError(path, 1, "the plugin registers no member of any family", remedy)


def _check(member: type[Any], plugin: Plugin) -> None:
    family = next(each for each in families if issubclass(member, each))
    source = next(source for source in plugin.sources if source.module == member.__module__)
    if fault := member_fault(member, family, source.content):
        raise PluginError(source.path, *fault)


def _unload(plugin: Plugin) -> None:
    """Forget the plugin: its members and its modules."""
    for module in plugin.modules:
        _forget(module)
        _finder.sources.pop(module, None)
    for name in [name for name, each in loaded.items() if each.byte_digest == plugin.byte_digest]:
        del loaded[name]


def find_function(written: str, folder: Path) -> tuple[Plugin, str]:
    """The plugin and the name of a function, given as `my_module:function` or `./my_file.py:function`.

    Nothing is executed. Raises NoPlugin.
    """
    file, colon, name = written.rpartition(":")
    if not colon or not name.isidentifier():
        raise NoPlugin(f"{written!r} names no function; write my_module:function or ./my_file.py:function")
    return find_plugin(file, folder), name


def function_text(written: str, folder: Path) -> tuple[Plugin, str]:
    """The plugin and the recorded text of a function, given as for `find_function`.

    The plugin is loaded. The text has the plugin's name, the function's name and the hash. Raises NoPlugin,
    PluginError.
    """
    plugin, name = find_function(written, folder)
    load(plugin, members=False)
    text = f"{plugin.name}:{name} {plugin.digest}"
    if not callable(_function(text)):
        path = next(source.path for source in plugin.sources if source.module == plugin.module)
        raise PluginError(path, 1, f"there is no function {name}", "write the function, or correct the name")
    return plugin, text


@cache
def named_function(text: str) -> Callable[..., Any]:
    """The function of a recorded text. Raises MissingPlugin."""
    function = _function(text)
    if function is None:
        load_installed()
        function = _function(text)
    if function is None:
        place, _, digest = text.rpartition(" ")
        name, _, function_name = place.rpartition(":")
        current = loaded[name].text if name in loaded else ""
        raise MissingPlugin(f"the function {function_name}", f"{name} {digest}", current)
    return function


def _function(text: str) -> Any:
    place, _, digest = text.rpartition(" ")
    name, _, function = place.rpartition(":")
    plugin = loaded.get(name)
    if plugin is None or not plugin.has_digest(digest):
        return None
    return getattr(importlib.import_module(plugin.module), function, None)


@cache
def load_installed() -> None:
    """Load the members of installed packages, and the plugins of the environment variable.

    A package that cannot be loaded is no error, because other names do not depend on it; see `unloadable`. A plugin of
    the variable needs no member, because its functions may be measures.
    """
    from importlib.metadata import (
        entry_points,  # here, because `loopscale --help` does not wait for the import
    )

    named = [each for each in os.environ.get(VARIABLE, "").split(os.pathsep) if each]
    installed = [each.module for each in entry_points(group=GROUP)]
    for written, members in [*((each, True) for each in installed), *((each, False) for each in named)]:
        try:
            load(find_plugin(written), members)
        except PluginError:
            continue  # `load` has noted the reason
        except NoPlugin as problem:
            unloadable[Path(written).name] = str(problem)
