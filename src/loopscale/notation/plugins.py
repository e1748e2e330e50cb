"""The plugins of a study: named by its file, by its members and by its records."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, cast

from loopscale.core.config import is_tree
from loopscale.core.plugins import (
    OWN,
    MissingPlugin,
    NoPlugin,
    Plugin,
    PluginError,
    find_function,
    find_plugin,
    function_text,
    load,
    load_installed,
    loaded,
)
from loopscale.core.visible import tell
from loopscale.notation.files import BASE_KEY, YamlTree, find_study, read_study
from loopscale.notation.mistakes import Fault, Mistake, Mistakes, quoted

PLUGINS_KEY = "plugins"
"""The key of a study's file, and of a cluster's file."""
MEASURES_KEY = "measures"
"""The key of further measures, below `evaluate`."""


def load_plugins(source: YamlTree, folder: Path) -> tuple[Plugin, ...]:
    """Load the plugins that a file names, relative to its folder. Raises Mistakes."""
    plugins = find_plugins(source, folder)
    for plugin in plugins:
        load_plugin(plugin)
    return plugins


def with_measures(source: YamlTree, folder: Path) -> tuple[dict[str, Any], tuple[Plugin, ...]]:
    """The tree with the recorded texts of its further measures, and their loaded plugins. Raises Mistakes."""
    written = _written_measures(source.tree)
    if written is None:
        return source.tree, ()
    plugins, texts = list[Plugin](), list[str]()
    for n, each in enumerate(written):
        try:
            plugin, text = function_text(str(each), folder)
        except NoPlugin as problem:
            raise Mistakes([source.mistake(Fault.from_text(("evaluate", "measures", n), problem))]) from None
        except PluginError as problem:
            raise Mistakes([Mistake(problem.file, problem.line, problem.what, problem.remedy)]) from problem
        plugins.append(plugin)
        texts.append(text)
    return {**source.tree, "evaluate": {**source.tree["evaluate"], MEASURES_KEY: texts}}, tuple(plugins)


def _written_measures(tree: Mapping[str, Any]) -> list[Any] | None:
    """The further measures as a file has them. None if they are no list: validation reports any other value."""
    evaluate = tree.get("evaluate")
    written = evaluate.get(MEASURES_KEY) if is_tree(evaluate) else None
    return cast(list[Any], written) if isinstance(written, list) else None


def load_plugin(plugin: Plugin, members: bool = True) -> None:
    """Load a plugin. Raises Mistakes."""
    try:
        load(plugin, members)
    except PluginError as problem:
        raise Mistakes([Mistake(problem.file, problem.line, problem.what, problem.remedy)]) from problem


def find_plugins(source: YamlTree, folder: Path) -> tuple[Plugin, ...]:
    """The plugins that a file names. Nothing is executed. Raises Mistakes."""
    written = source.tree.get(PLUGINS_KEY)
    if not isinstance(written, list):
        return ()  # validation reports any other value
    plugins: list[Plugin] = []
    for n, each in enumerate(cast(list[Any], written)):
        try:
            if not isinstance(each, str):
                raise NoPlugin(f"a plugin is {quoted(each)}; write ./my_model.py or my_package.module")
            plugin = find_plugin(each, folder)
        except NoPlugin as problem:
            raise Mistakes([source.mistake(Fault.from_text((PLUGINS_KEY, n), problem))]) from None
        if any(other.name == plugin.name and other.root != plugin.root for other in plugins):
            what = f"two plugins are called {plugin.name}"
            raise Mistakes([source.mistake(Fault((PLUGINS_KEY, n), what, "rename one of the files"))])
        plugins.append(plugin)
    return tuple(plugins)


def named_plugins(study: str | Path) -> tuple[Plugin, ...]:
    """The plugins and the files of measures that a study's file names, without executing them.

    None without a file or with mistakes in it.
    """
    try:
        file = find_study(study)
        if not file.is_file():
            return ()
        text = file.read_text()
        if not any(f"{key}:" in text for key in (PLUGINS_KEY, MEASURES_KEY, BASE_KEY)):
            return ()
        source = read_study(file)
        measures = _written_measures(source.tree) or ()
        of_measures = [find_function(str(each), file.parent)[0] for each in measures]
        return tuple(dict.fromkeys([*find_plugins(source, file.parent), *of_measures]))
    except (Mistakes, NoPlugin, OSError, UnicodeDecodeError):
        return ()


def load_named_plugins(study: str | Path) -> None:
    """Load the plugins of a study's file, as far as they can be loaded. `loaded` and `unloadable` have the outcome."""
    for plugin in named_plugins(study):
        try:
            load(plugin, members=False)
        except PluginError:
            continue  # records that need the plugin report the reason


def require_recorded_plugins(study: str | Path, name: str, recorded: Iterable[str]) -> None:
    """Load the plugins that records of a study name. Raises MissingPlugin.

    Parameters
    ----------
    study
        The study's file, or its name below `studies/`.
    recorded
        The name and the hash of each plugin.
    """
    recorded = tuple(recorded)
    if not recorded:
        return
    load_named_plugins(study)
    if any(plugin not in loaded for plugin in digests(recorded)):
        load_installed()
    missing = [plugin for plugin in digests(recorded) if plugin not in loaded]
    for text in recorded:
        plugin, _, digest = text.rpartition(" ")
        current = loaded[plugin].text if plugin in loaded else ""
        if not current or not loaded[plugin].has_digest(digest):
            raise MissingPlugin(f"a part of {name}", text, current, missing)


def load_recorded_plugins(
    study: str | Path, name: str, recorded: Iterable[str], notice: Callable[[str], None] = tell
) -> None:
    """Load the plugins that records of a study name. Give a notice if one is missing or has changed.

    Recorded numbers need no plugin. Only a reader that makes a net or a prompt needs the code.
    """
    try:
        require_recorded_plugins(study, name, recorded)
    except MissingPlugin as problem:
        notice(f"note: only recorded numbers are shown: {problem}")


def plugin_texts(tree: Any) -> list[str]:
    """The plugins that settings name, at any depth: name and hash."""
    texts: list[str] = []
    if is_tree(tree):
        for name, value in tree.items():
            texts += [value] if name.endswith("plugin") and isinstance(value, str) else plugin_texts(value)
    elif isinstance(tree, list | tuple):
        for value in cast(Sequence[Any], tree):
            texts += plugin_texts(value)
    return sorted({text for text in texts if text})


def packed_files(file: str, folder: Path, plugins: Iterable[Plugin]) -> dict[str, bytes]:
    """The files of plugins by their paths in a package for a cluster. Raises Mistakes.

    Parameters
    ----------
    file
        The path of the study's file in the package.
    folder
        The folder of the study's file on this machine.
    """
    files: dict[str, bytes] = {}
    for plugin in plugins:
        beside = PurePosixPath(file).parent
        if plugin.is_path:
            relative = os.path.normpath(beside / PurePosixPath(plugin.written).parent)
            if relative.startswith(("..", "/", OWN)):
                what = f"the plugin {plugin.written} lies outside of the folders that a cluster gets"
                raise Mistakes.one(
                    str(folder / PurePosixPath(file).name), what, "put the file beside the study"
                )
            beside = PurePosixPath(relative)
        files |= {str(beside / path): content for path, content in plugin.files.items()}
    return files


def digests(texts: Iterable[str]) -> dict[str, str]:
    """The hashes of recorded plugins, by name."""
    return {name: digest for name, _, digest in (text.rpartition(" ") for text in texts)}


def changed_plugins(study: str, description: Mapping[str, Any]) -> list[str]:
    """The names of the plugins whose files have changed since the records of the study."""
    recorded = digests(description.get(PLUGINS_KEY) or ())
    if not recorded:
        return []
    current = {plugin.name: plugin for plugin in named_plugins(study)}
    return [
        name for name, digest in recorded.items() if name in current and not current[name].has_digest(digest)
    ]
