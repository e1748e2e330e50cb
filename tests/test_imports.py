"""The rule of CONTRIBUTING.md for imports that do not stand at the top of their file."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "loopscale"
QUICK_START = ("cli", "interface")
"""Rooms that import inside their functions, as the docstring of each room says."""
FILES = sorted(SRC.rglob("*.py"))
MOST_TYPE_BLOCKS = 12
"""Files with imports for annotations alone. A further file uses `interface/types.py` or `core.cheap_imports`."""


def inner_imports(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """Groups of imports, one behind the other, inside functions."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    bodies = (
        body
        for function in functions
        for node in ast.walk(function)
        for body in (getattr(node, "body", None), getattr(node, "orelse", None))
        if isinstance(body, list)
    )
    for body in bodies:
        group: list[ast.stmt] = []
        for statement in [*body, None]:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                group.append(statement)
            elif group:
                yield group
                group = []


def type_blocks(tree: ast.Module) -> Iterator[ast.If]:
    """The blocks of imports for annotations alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield node


def names_of_types_in_use(tree: ast.Module) -> set[int]:
    """The lines that read a name of `interface.types` outside of an annotation. The name does not exist there."""
    annotations = (node.annotation for node in ast.walk(tree) if isinstance(node, ast.AnnAssign))
    allowed = {id(node) for annotation in annotations for node in ast.walk(annotation)}
    return {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and id(node) not in allowed
        if isinstance(node.value, ast.Name) and node.value.id == "types"
    }


def unexplained(path: Path) -> set[int]:
    """The lines of imports without a comment on the same lines, or on the line above."""
    text = path.read_text(encoding="utf-8")
    lines, tree = text.splitlines(), ast.parse(text)
    found = set[int]()
    if path.relative_to(SRC).parts[0] not in QUICK_START:
        for group in inner_imports(tree):
            first, last = group[0].lineno, group[-1].end_lineno
            if not any("#" in line for line in lines[first - 2 : last]):
                found.add(first)
    for block in type_blocks(tree):
        if "#" not in lines[block.lineno - 1]:
            found.add(block.lineno)
    return found


@pytest.mark.parametrize("room", QUICK_START)
def test_a_room_that_imports_inside_functions_gives_the_reason(room: str):
    assert "inside the functions" in ast.get_docstring(ast.parse((SRC / room / "__init__.py").read_text()))


def test_every_import_inside_a_function_and_every_block_of_types_has_a_reason():
    without = {str(path.relative_to(SRC)): lines for path in FILES if (lines := unexplained(path))}
    assert without == {}


def test_few_files_import_for_annotations_alone():
    files = [path.name for path in FILES if any(type_blocks(ast.parse(path.read_text(encoding="utf-8"))))]
    assert len(files) <= MOST_TYPE_BLOCKS, files


def test_names_of_types_stand_in_annotations_alone():
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
    importing = {
        path: tree
        for path, tree in trees.items()
        if any(
            isinstance(node, ast.ImportFrom)
            and node.module == "loopscale.interface"
            and any(alias.name == "types" for alias in node.names)
            for node in tree.body
        )
    }
    assert len(importing) > 20
    assert {
        path.name: lines for path, tree in importing.items() if (lines := names_of_types_in_use(tree))
    } == {}
