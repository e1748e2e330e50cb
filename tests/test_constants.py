"""A constant has one value in the package, so that an import from the wrong module cannot change its meaning."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "loopscale"
MODULES = {
    ".".join(("loopscale", *file.relative_to(PACKAGE).with_suffix("").parts)): ast.parse(file.read_text())
    for file in sorted(PACKAGE.rglob("*.py"))
}
# fmt: off
PRIVATE_TO_THEIR_MODULES = {
    "BUSY", "CLEAR", "COSTS", "CPU_SHARE", "DAMAGED", "DIGITS", "DRAWS", "EVERY", "FEW", "FIRST",
    "FORMS", "HEADER", "LARGEST", "LEAST_NOISE", "LEAST_VARIANCE", "MEASURABLE_PIECES",
    "MOST_ALGORITHMS", "MOST_BYTES", "MOST_CURVES", "MOST_NAMED", "MOST_POINTS",
    "MOST_STEPS", "NAMED", "NODES", "NUMBERS", "PATIENCE", "REMEDY", "SCHEMES", "SHORTEST", "SOLVERS",
    "SOURCE", "SQUARED", "STATES", "STEPS", "STOP_SECONDS", "SYSTEM", "TAG", "TIE", "TINY", "TOLERANCE",
    "VARIANTS", "VERSION", "WITHOUT_ANSWER",
}
# fmt: on
"""Names with several values. Each module uses its own value, and no module imports the value of another."""


def constants(module: ast.Module) -> dict[str, str]:
    """The constants of a module, with their expressions."""
    found = dict[str, str]()
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper():
                found[name] = ast.unparse(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if name.isupper():
                found[name] = ast.unparse(value)
    return found


def with_several_values() -> set[str]:
    values = defaultdict[str, set[str]](set)
    for module in MODULES.values():
        for name, value in constants(module).items():
            values[name].add(value)
    return {name for name, different in values.items() if len(different) > 1}


def imported() -> set[str]:
    statements = [node for module in MODULES.values() for node in ast.walk(module)]
    return {
        alias.name
        for node in statements
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("loopscale")
        for alias in node.names
    }


def test_a_name_with_several_values_is_declared():
    assert with_several_values() == PRIVATE_TO_THEIR_MODULES


def test_no_module_imports_a_constant_whose_name_has_another_value_elsewhere():
    assert with_several_values() & imported() == set()
