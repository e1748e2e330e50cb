"""A study's condition, such as `training.window <= training.loops`: arithmetic and comparisons, no more."""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from loopscale.studies.mistakes import shown
from loopscale.studies.space import get

LONGEST, MOST_PARTS = 500, 100
ALLOWED = "write comparisons of settings, numbers and strings with and, or, not, in, + - * / // %"

OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
Look = Callable[[str], Any]


def holds(condition: str, tree: Mapping[str, Any] | Look) -> bool:
    """Whether the condition is true of a trial's settings: a tree, or what gives the value at a dotted path.

    Raises ValueError, in the form `what is wrong; what would be right`, for what is not allowed or cannot be
    compared, and KeyError(path) where a path that matters is not there.
    """
    look = tree if callable(tree) else lambda path: get(tree, path)
    value = _value(parse(condition), look)
    if not isinstance(value, bool):
        raise ValueError(
            f"where gives {value!r}, neither true nor false; compare it with something, as in a <= b"
        )
    return value


def paths(condition: str) -> tuple[str, ...]:
    """Every dotted path that the condition names."""
    return tuple(dict.fromkeys(_paths(parse(condition))))


def parse(condition: str) -> ast.expr:
    if len(condition) > LONGEST:
        raise ValueError(f"where is {len(condition)} characters long; write at most {LONGEST}")
    try:
        tree = ast.parse(condition.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"where {condition!r} is not a condition; {ALLOWED}") from None
    if sum(1 for _ in ast.walk(tree)) > MOST_PARTS:
        raise ValueError(f"where has more than {MOST_PARTS} parts; write a shorter condition")
    return tree.body


def _paths(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute | ast.Name):
        if (path := ast.unparse(node)) not in WORDS:
            yield path
        return
    for child in ast.iter_child_nodes(node):
        yield from _paths(child)


def _value(node: ast.expr, look: Look) -> Any:
    match node:
        case ast.Constant(value=str() | bool() | int() | float()):
            return node.value
        case ast.Name() | ast.Attribute():
            path = ast.unparse(node)
            return WORDS[path] if path in WORDS else look(path)
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            return _apply(op, node, _value(node.left, look), _value(node.right, look))
        case ast.Compare(ops=ops) if all(type(op) in OPERATORS for op in ops):
            values = [_value(each, look) for each in (node.left, *node.comparators)]
            return all(
                bool(_apply(op, node, a, b)) for op, a, b in zip(ops, values, values[1:], strict=False)
            )
        case ast.BoolOp():
            together = all if isinstance(node.op, ast.And) else any
            return together(bool(_value(each, look)) for each in node.values)
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, look)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List() | ast.Tuple():
            return [_value(each, look) for each in node.elts]
    raise ValueError(f"where may not hold {ast.unparse(node)!r}; {ALLOWED}")


def _apply(op: ast.AST, node: ast.expr, left: Any, right: Any) -> Any:
    numbers = all(isinstance(each, int | float) for each in (left, right))
    if not numbers and not isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn):
        raise ValueError(
            f"where cannot work out {ast.unparse(node)!r} of {left!r} and {right!r}; use numbers there"
        )
    try:
        return OPERATORS[type(op)](left, right)
    except (TypeError, ZeroDivisionError, OverflowError) as problem:
        raise ValueError(
            f"where cannot work out {shown(ast.unparse(node))} ({problem}); use other values there"
        ) from None
